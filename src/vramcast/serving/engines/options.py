"""An engine's flags as a table, held against their types, bounds and words at one place."""

from collections.abc import Callable, Mapping
from math import inf
from typing import Any

import msgspec

from vramcast.errors import QuestionError, unknown_name
from vramcast.quantity import extent, is_array


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One flag of an engine: its python name, its type, what it decides and where the default was read.

    ``kind``: int, positive (an int from 1), float, fraction (above 0, at most 1), bool, text, count ("128k"), bytes ("4GiB"),
    list, shares ("3,1"), counts ("q4_k:192,f32:65"). ``flags``: further spellings on the engine's own command line beside
    ``--name-with-dashes`` ("-ngl", "--n-gpu-layers"); the command line here accepts all of them. ``least`` and ``most``: the
    numbers that can be, inclusive, where the kind does not say it. ``choices``: the words that can be, in any case; no choices:
    any text.
    """

    name: str
    kind: str
    about: str
    source: str = ""
    choices: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest number that can be."""
        least, most = _BOUNDS[self.kind]
        return least if self.least is None else self.least, most if self.most is None else self.most


def checked(given: Mapping[str, Any], options: tuple[Option, ...], engine: str) -> dict[str, Any]:
    """The options of a question with words in their table's spelling; None, a flag left open, is kept; numbers may be arrays.

    Raises QuestionError for an option the engine does not have, a value of another type, a number that cannot be, or a word
    that is not known, each with what can be.
    """
    known = {option.name: option for option in options}
    for name in given:
        if name not in known:
            raise unknown_name(f"{engine} option", name, known)
    return {name: None if value is None else _value(known[name], value, engine) for name, value in given.items()}


def _value(option: Option, value: Any, engine: str) -> Any:
    of_type, expected = _TYPES[option.kind]
    if not of_type(value):
        raise QuestionError(f"{option.name} is {str(value)[:40]!r}: {engine} takes {expected} ({option.about})")
    if option.kind in _BOUNDS:
        least, most = option.bounds
        for end in extent(value):
            if not least <= end <= most:
                raise QuestionError(f"{option.name} is {end:,}: {engine} takes {least:,.12g} to {most:,.16g} ({option.about})")
    return _known_word(option, value) if option.choices else value


def _known_word(option: Option, value: str) -> str:
    found = next((word for word in option.choices if word.lower() == value.lower()), None)
    if found is None:
        raise unknown_name(f"value for {option.name}", value, option.choices)
    return found


def _is_whole(value: Any) -> bool:
    if is_array(value):
        return value.dtype.kind in "iu"
    return not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))


def _is_number(value: Any) -> bool:
    if is_array(value):
        return value.dtype.kind in "iuf"
    return not isinstance(value, bool) and isinstance(value, int | float)


def _is_shares(value: Any) -> bool:
    """A few shares, none negative or endless, of something."""
    if not isinstance(value, list | tuple) or not 0 < len(value) <= 128:
        return False
    return all(_is_number(v) and 0 <= v < inf for v in value) and 0 < sum(value) < inf


def _is_counts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(k, str) and _is_whole(v) and 0 <= v < 10**9 for k, v in value.items())


_BOUNDS: dict[str, tuple[float, float]] = {
    "int": (0, 10**9), "positive": (1, 10**9), "count": (1, 10**11), "bytes": (0, 2**50), "float": (0, 10**6),
    "fraction": (0.001, 1),
}  # fmt: skip
_WHOLE = (_is_whole, "a whole number")
_TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "int": _WHOLE, "positive": _WHOLE, "count": _WHOLE, "bytes": _WHOLE,
    "float": (_is_number, "a number"), "fraction": (_is_number, "a number"),
    "bool": (lambda v: isinstance(v, bool), "on or off"), "text": (lambda v: isinstance(v, str), "text"),
    "list": (lambda v: isinstance(v, list | tuple) and all(isinstance(x, str) for x in v), "texts with commas between"),
    "shares": (_is_shares, "shares with commas between, such as 3,1"),
    "counts": (_is_counts, "names with counts, such as q4_k:192,f32:65"),
}  # fmt: skip
