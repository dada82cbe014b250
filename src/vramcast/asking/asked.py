"""A question as it was understood, with what reading it took for granted."""

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

from vramcast.errors import unknown_name
from vramcast.ledger import Assumption, Unmodelled
from vramcast.models.inventory import Model
from vramcast.units import parse_count
from vramcast.untrusted import whole_number
from vramcast.workload import Serving, Training

Question = TypeVar("Question", Serving, Training)


class Asked(msgspec.Struct, Generic[Question], frozen=True, kw_only=True):
    """A question; the model, where it was given by numbers alone; and what the answer must list beside its own assumptions."""

    question: Question
    model: Model | None = None
    assumed: tuple[Assumption, ...] = ()
    unmodelled: tuple[Unmodelled, ...] = ()


def check_words(words: Mapping[str, object], known: Iterable[str], *, what: str) -> None:
    """Raises QuestionError for a word that no question has, with the nearest that one has."""
    names = set(known)
    for word in words:
        if word not in names:
            raise unknown_name(what, word, names)


def count_of(value: int | str, name: str) -> int:
    """The number, ``128k`` and the like included; a negative one is left to the question to refuse."""
    if isinstance(value, str) and value.startswith("-") and (below := whole_number(value[1:])) is not None:
        return -below
    return parse_count(value, what=flag_of(name))


def flag_of(name: str) -> str:
    """How the command line spells a word: ``micro_batch`` is ``--micro-batch``."""
    return f"--{name.replace('_', '-')}"
