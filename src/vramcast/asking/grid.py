"""A grid of questions: every word of a question may be an axis, and each point is asked as if its values had been typed."""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, get_args

import msgspec

from vramcast.asking.asked import Asked, count_of, flag_of
from vramcast.errors import QuestionError, VramcastError, unknown_name
from vramcast.ledger import Fit, RankMemory

MOST_CELLS = 2000
Point = dict[str, Any]
Ask = Callable[..., Asked[Any]]


class Axis(msgspec.Struct, frozen=True):
    """One word and the values it takes."""

    name: str
    values: tuple[Any, ...]


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One point of the grid: its worst rank and verdict, or the reason it was refused."""

    point: Point
    worst: RankMemory | None = None
    fit: Fit | None = None
    refused: str = ""


def read_axis(text: str, words: Mapping[str, Any]) -> Axis:
    """``rank=2,4,8`` or ``micro_batch=1..8``. Raises QuestionError when it is not NAME=V,V or the name is none of the words."""
    name, equals, values = text.partition("=")
    name = name.strip().removeprefix("--").replace("-", "_")
    if not equals or not values:
        raise QuestionError(f"--sweep {text[:60]!r} is not NAME=V,V,...: for example micro_batch=2,4,8")
    known = {*words, "gpus"}
    if name not in known:
        raise unknown_name("sweep axis", name, known)
    kinds = get_args(words.get(name, int | None))
    listed = [one for part in values.split(",") for one in _spread(part.strip(), kinds)]
    return Axis(name, tuple(_value(one, kinds, name) for one in listed))


def _spread(text: str, kinds: tuple[type, ...]) -> list[str]:
    """``1..8`` as 1, 2 ... 8 where the word takes counts; anything else as it stands."""
    found = re.fullmatch(r"(\d+)\.\.(\d+)", text) if int in kinds else None
    if not found:
        return [text]
    first, last = int(found[1]), int(found[2])
    if not first <= last < first + MOST_CELLS:
        raise QuestionError(f"--sweep: {text[:40]} is no range of at most {MOST_CELLS:,} values from the least to the most")
    return [str(value) for value in range(first, last + 1)]


def _value(text: str, kinds: tuple[type, ...], name: str) -> Any:
    """The text as its word takes it: a count, a fraction, or text. Raises QuestionError for a number that is none."""
    if int in kinds:
        return count_of(text, name)
    if float not in kinds:
        return text
    try:
        return float(text)
    except ValueError:
        raise QuestionError(f"{flag_of(name)} is {text[:40]!r}, expected a number") from None


def axes_of(texts: Sequence[str] | Mapping[str, Sequence[Any]], words: Mapping[str, Any]) -> list[Axis]:
    """The axes of ``["rank=2,4", ...]`` or of ``{"rank": (2, 4), ...}``; ``words``: the annotations of the question's words."""
    if not isinstance(texts, Mapping):
        return [read_axis(text, words) for text in texts]
    return [Axis(read_axis(f"{name}=1", words).name, tuple(values)) for name, values in texts.items()]


def points_of(axes: Sequence[Axis]) -> list[Point]:
    """Every point, the last axis fastest. Raises QuestionError beyond 2,000 points."""
    points = [dict(zip((a.name for a in axes), values, strict=True)) for values in itertools.product(*(a.values for a in axes))]
    if len(points) > MOST_CELLS:
        raise QuestionError(f"{len(points):,} points in the grid: at most {MOST_CELLS:,}")
    return points


def ask_point(ask: Ask, words: Mapping[str, Any], point: Point) -> Asked[Any]:
    """The question with the point's values in the place of what was typed; ``gpus`` multiplies the card."""
    said = {**words, **{name: value for name, value in point.items() if name != "gpus"}}
    if "gpus" in point:
        from vramcast.asking.asked import named_cards

        cards = named_cards(said.get("gpu"))
        if cards.gpu is None:
            raise QuestionError("an axis of gpus needs --gpu with the card's name")
        said["gpu"] = f"{cards.gpu}x{point['gpus']}"
    return ask(**said)


def answer_grid(ask: Ask, words: Mapping[str, Any], axes: Sequence[Axis]) -> Iterator[Cell]:
    """Every point answered by its ledger and verdict alone: no limits, advice or table of cards, which no cell shows."""
    from vramcast.planning.core import core_of

    for point in points_of(axes):
        try:
            asked = ask_point(ask, words, point)
            worst, fit = core_of(asked.question, model=asked.model)
            yield Cell(point=point, worst=worst, fit=fit)
        except VramcastError as error:
            yield Cell(point=point, refused=str(error))
