"""What a visitor is told when a question cannot be answered: RFC 9457 problem details, with the field and the words offered."""

import re
from typing import Any

import msgspec

from vramcast.errors import MissingError, UnmodelledError, VramcastError
from vramcast.untrusted import printable

_FIELD = re.compile(r"--([a-z][a-z-]{1,30})\b")
_NAMED = {
    "model": ("unknown model", "model "),
    "gpu": ("unknown GPU", "unknown card", "gpu ", "card "),
    "engine": ("unknown engine",),
}
_OFFER = re.compile(r"did you mean (?P<names>[^?]+)\?|ask for at most (?P<most>[\d,]+)")
_OF_TOKENS = re.compile(r"^(context|seq|prompt|output|concurrency|micro_batch)\b")
_LONGEST = 1_000
_KINDS = {"": (400, "the question is wrong"), "rule": (422, "no rule covers it"), "missing": (424, "something is missing")}


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One problem. ``field``: the word that is wrong, where the message names it; ``suggestions``: words that would do."""

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None
    suggestions: tuple[str, ...] = ()


def problem_of(error: VramcastError) -> Problem:
    """The problem that an error of the question tells; nothing of it can be obeyed by a terminal or a page."""
    text = printable(str(error))[:_LONGEST]
    status, title = _KINDS["missing" if isinstance(error, MissingError) else "rule" if isinstance(error, UnmodelledError) else ""]
    return Problem(
        type=f"about:blank#{type(error).__name__}", title=title, status=status, detail=text, field=_field(text),
        suggestions=_offers(text),
    )  # fmt: skip


def _field(text: str) -> str | None:
    if found := _OF_TOKENS.match(text):  # what the line is about stands before a flag that it offers
        return found[1]
    if found := _FIELD.search(text):
        return found[1].replace("-", "_")
    return next((field for field, starts in _NAMED.items() if text.startswith(starts)), None)


def _offers(text: str) -> tuple[str, ...]:
    found = _OFFER.search(text)
    if found is None:
        return ()
    if found["most"]:
        return (found["most"].replace(",", ""),)
    return tuple(name.strip().strip("'") for name in found["names"].split(","))[:3]


def plain(status: int, title: str, detail: str) -> dict[str, Any]:
    """A problem of the transport itself: too large, not found, too busy."""
    body: dict[str, Any] = msgspec.to_builtins(
        Problem(type="about:blank", title=title, status=status, detail=printable(detail)[:_LONGEST])
    )
    return body
