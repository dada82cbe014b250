"""What a text is, and the answer to what it starts, trains or says; a card named beside it counts where the text names none."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from vramcast.errors import QuestionError, VramcastError
from vramcast.ledger import Forecast
from vramcast.reading.kinds import Kind, kinds_of, taken_for

if TYPE_CHECKING:
    from vramcast.asking.looking import Explained

_MOST_PARTS = 8


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One engine or run that the text starts; ``error``: why there is no forecast."""

    name: str
    forecast: Forecast | None = None
    error: str = ""


class TextRead(msgspec.Struct, frozen=True, kw_only=True):
    """What the text was taken for, the command that reads it, and the answers."""

    kind: str
    because: str
    command: str
    parts: tuple[Part, ...] = ()
    explained: "Explained | None" = None

    def to_dict(self) -> dict[str, Any]:
        """The object that the tool gives back."""
        parts = [
            {"name": part.name, "answer": part.forecast.to_dict() if part.forecast else None, "error": part.error}
            for part in self.parts
        ]
        told = {"schema": "vramcast/1", "kind": self.kind, "because": self.because, "command": self.command, "parts": parts}
        return {**told, "explained": self.explained.to_dict() if self.explained else None}


def read_text(text: str, *, name: str = "", gpu: str | None = None) -> TextRead:
    """What the text is, with its answers. Raises QuestionError where it is nothing known, or not plainly one thing."""
    kinds = kinds_of(text.encode("utf-8", "replace"), name)
    kind = taken_for(kinds)
    if kind is None:
        near = " or ".join(one.what for one in kinds[:2])
        raise QuestionError(
            f"the text is not plainly one thing: it may be {near}; give the file's name" if near else
            "the text is nothing known here: expected a command that serves or trains, its configuration, a log or a config.json"
        )  # fmt: skip
    found = TextRead(kind=kind.what, because=kind.because, command=f"vramcast {' '.join(kind.command)} FILE")
    if kind.command == ("explain",):
        from vramcast.asking.looking import explain_text

        return msgspec.structs.replace(found, explained=explain_text(text, gpu=gpu))
    return msgspec.structs.replace(found, parts=tuple(_parts(kind, text, name, gpu)))


def _parts(kind: Kind, text: str, name: str, gpu: str | None) -> Iterator[Part]:
    words = {"gpu": gpu} if gpu else {}
    if kind.command == ("serve", "--from"):
        yield from _launches(text, name, words)
    elif kind.command == ("train", "--from"):
        yield _part("training", lambda: _training(text, words))
    elif kind.command == ("models",) and kind.what.endswith("config.json"):
        yield _part("serving", lambda: _config(text, words))


def _launches(text: str, name: str, words: dict[str, Any]) -> Iterator[Part]:
    """The answer of each engine that the text starts, the first few of many."""
    from vramcast.asking.asked import answer_serving
    from vramcast.asking.launched import Launched, question_of_launch
    from vramcast.asking.serving import serving_question
    from vramcast.reading.serving.files import read_serving_text

    found = read_serving_text(text, name)
    for launch in found.launches[:_MOST_PARTS]:

        def answered(one: Any = launch) -> Forecast:
            return answer_serving(question_of_launch(Launched(launch=one, kind=found.kind), (), {}, words, serving_question))

        yield _part(launch.name or launch.model or launch.engine, answered)
    if len(found.launches) > _MOST_PARTS:
        yield Part(name="others", error=f"{len(found.launches) - _MOST_PARTS} more engines: give the part that is meant")


def _training(text: str, words: dict[str, Any]) -> Forecast:
    from vramcast.asking.asked import answer_training
    from vramcast.asking.training import training_question

    return answer_training(training_question(text=text, **words))


def _config(text: str, words: dict[str, Any]) -> Forecast:
    from vramcast.asking.asked import answer_serving
    from vramcast.asking.visitor import asked_of_config

    asked: Any = asked_of_config(text.encode("utf-8", "replace"), words)
    return answer_serving(asked)


def _part(name: str, answered: Callable[[], Forecast]) -> Part:
    try:
        return Part(name=name[:200], forecast=answered())
    except VramcastError as error:
        return Part(name=name[:200], error=str(error))
