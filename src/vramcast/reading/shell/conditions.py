"""Conditions of a script that can be decided from its variables; one that cannot says which variables leave it open."""

import fnmatch
import re
from collections.abc import Mapping

from vramcast.reading.shell.variables import open_names, resolved
from vramcast.untrusted import whole_number

_LONGEST = 600
_TEST = re.compile(r"\[\[?\s+(.+?)\s+\]\]?", re.S)
_PARTS = re.compile(r"\s+(&&|\|\||-a|-o)\s+")
_BINARY = re.compile(
    r"[\"']?(?P<left>.*?)[\"']?\s+(?P<how>==?|!=|=~|-eq|-ne|-gt|-ge|-lt|-le|<|>)\s+[\"']?(?P<right>.*?)[\"']?", re.S
)
_NUMBERS = {
    "-eq": lambda a, b: a == b, "-ne": lambda a, b: a != b, "-gt": lambda a, b: a > b, "-ge": lambda a, b: a >= b,
    "-lt": lambda a, b: a < b, "-le": lambda a, b: a <= b, ">": lambda a, b: a > b, "<": lambda a, b: a < b,
}  # fmt: skip


def holds(statement: str, known: Mapping[str, str]) -> tuple[bool | None, tuple[str, ...]]:
    """Whether an ``if`` or ``elif`` runs, None where it cannot be told, and the open variables that would decide.

    A test of the machine (``-f``, ``command -v``) is taken as passed, as scripts are written for the machine they run on.
    """
    text = " ".join(statement.split())[:_LONGEST]
    tests = _TEST.findall(text) or re.findall(r"\(\((.+?)\)\)", text)
    if not tests:
        return True, ()
    found: bool | None = None
    opened: tuple[str, ...] = ()
    pieces = re.split(r"\]\]?\s*(&&|\|\|)\s*\[\[?", text)
    joins = [piece for piece in pieces if piece in ("&&", "||")]
    for place, test in enumerate(tests):
        truth, names = _whole_test(test, known)
        opened += names
        join = joins[place - 1] if 0 < place <= len(joins) else ""
        found = truth if not place else _joined(found, truth, join)
    return found, opened if found is None else ()


def tests_variables(statement: str) -> bool:
    """Whether variables alone decide a test: no command's success, no file."""
    text = " ".join(statement.split())[:_LONGEST]
    tests = _TEST.findall(text) or re.findall(r"\(\((.+?)\)\)", text)
    return bool(tests) and not any(re.search(r"(?:^|\s)-[a-mo-yA-Z]\s+[\"']?[\w$/~.]", test) for test in tests)


def _whole_test(test: str, known: Mapping[str, str]) -> tuple[bool | None, tuple[str, ...]]:
    pieces = _PARTS.split(test)
    truth, names = _one(pieces[0], known)
    for join, piece in zip(pieces[1::2], pieces[2::2], strict=False):
        other, more = _one(piece, known)
        truth, names = _joined(truth, other, "&&" if join in ("&&", "-a") else "||"), (*names, *more)
    return truth, names


def _joined(left: bool | None, right: bool | None, how: str) -> bool | None:
    if how == "||":
        return True if True in (left, right) else None if None in (left, right) else False
    return False if False in (left, right) else None if None in (left, right) else True


def _one(test: str, known: Mapping[str, str]) -> tuple[bool | None, tuple[str, ...]]:
    negated = test.startswith("! ")
    plain = test.removeprefix("! ").strip()
    truth, names = _plain(plain, known)
    return (not truth if negated and truth is not None else truth), names


def _plain(test: str, known: Mapping[str, str]) -> tuple[bool | None, tuple[str, ...]]:
    if empty := re.fullmatch(r"-(n|z)\s+[\"']?(.*?)[\"']?", test):
        value = resolved(empty[2], known)
        names = open_names(value)
        filled = bool(value) and not names
        # A variable that nobody set is empty to the shell; only a script's own arguments may still fill it.
        return (filled if empty[1] == "n" else not filled), ()
    if re.match(r"-[a-zA-Z]\s", test):
        return True, ()
    if (compared := _BINARY.fullmatch(test)) is None:
        value = resolved(test.strip("\"'"), known)
        return (None, open_names(value)) if open_names(value) else (bool(value), ())
    left, right = (resolved(re.sub("[\"']", "", compared[side]), known) for side in ("left", "right"))
    if names := (*open_names(left), *open_names(right)):
        return None, names
    return _compared(left, compared["how"], right), ()


def _compared(left: str, how: str, right: str) -> bool | None:
    if how in _NUMBERS:
        numbers = whole_number(left), whole_number(right)
        return None if None in numbers else bool(_NUMBERS[how](*numbers))
    if how == "=~":
        return right.strip("^$") in left
    same = fnmatch.fnmatchcase(left, right) if "*" in right else left == right
    return same is (how != "!=")
