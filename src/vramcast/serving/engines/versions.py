"""Engine versions as tuples, and tables of facts by the version they hold from."""

import re
from typing import TypeVar

import msgspec

from vramcast.errors import QuestionError

Version = tuple[int, ...]
Value = TypeVar("Value")
Table = tuple[tuple[Version, Value], ...]
"""Rows of (version it holds from, value), in version order."""

_NUMBER = re.compile(r"\s*v?(\d+(?:\.\d+){0,3})")


class Fitted(msgspec.Struct, frozen=True):
    """A number without a mechanism of its own here: fitted to measured cases, and said to be so in every answer it enters."""

    value: float
    cases: int
    source: str

    @property
    def why(self) -> str:
        """How many cases it rests on, and where they come from."""
        return f"fitted, {self.cases} case{'s' * (self.cases != 1)}, from {self.source}"


def parse_version(text: str, engine: str) -> Version:
    """``0.19.0``, ``v0.11.2rc1`` or ``0.8.5.post1`` as numbers; raises QuestionError when there is no number in front."""
    match = _NUMBER.match(text)
    if match is None:
        raise QuestionError(f"{engine} version {text[:40]!r} is not a version: write for example {engine}==0.19.0")
    return tuple(int(part) for part in match[1].split("."))


def at(version: Version, table: Table[Value]) -> Value:
    """The value of the last row whose version is not newer; the first row's for anything older."""
    found = table[0][1]
    for since, value in table:
        if since > version:
            break
        found = value
    return found
