"""One small hierarchy of errors. Every message says what was wrong, what was found, and what to try.

The command line maps ``exit_code`` to the process exit code (docs: DESIGN, "the contract"); nobody ever sees a traceback
for a mistake of their own.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any


class VramcastError(Exception):
    """Base of everything this package raises on purpose."""

    exit_code = 2
    told: tuple[str, dict[str, str]] | None = None
    """The message's key in the catalogues and its values, where it has one: said so in other languages."""


class QuestionError(VramcastError):
    """The question is wrong: an unknown name, an impossible layout, a malformed file."""


class ConfigError(QuestionError):
    """A model's config.json lacks a field or holds a value that no model can have."""


class UnmodelledError(QuestionError):
    """The input is legitimate but this program has no rule for it; the message says what would answer it."""


class NamedElsewhereError(UnmodelledError):
    """A part of the model is only named, by the id of another checkpoint: ``build`` makes the whole of what reads such ids."""

    def __init__(self, message: str, *, build: Callable[..., Any]) -> None:
        super().__init__(message)
        self.build = build


class UnsafeFileError(QuestionError):
    """A file is truncated, lies about its sizes or tries to leave its folder."""


class MissingError(VramcastError):
    """Something needed is absent: an extra, the network, a GPU."""

    exit_code = 3

    @classmethod
    def extra(cls, extra: str, because: str) -> "MissingError":
        """The error for a missing optional dependency, with the line that installs it."""
        error = cls(f"{because} needs the [{extra}] extra: pip install 'vramcast[{extra}]'")
        error.told = "error-extra", {"because": because, "extra": extra}
        return error


class UntraceableError(MissingError):
    """The installed libraries lack something that a trace needs, which the message names; a forecast answers without them."""


def unknown_name(kind: str, given: str, known: Iterable[str], *, hint: str = "") -> QuestionError:
    """The error for a name that is not in a table, with the nearest names that are."""
    names = sorted(set(known), key=lambda name: (name[:1].isdigit(), name))  # names that begin with a number come last
    begun = re.compile(rf"(?:^|[/ _.-]){re.escape(given.lower())}")
    near = [n for n in names if given and begun.search(n.lower())][:3] or nearest(given, names)
    offer = f"did you mean {', '.join(near)}?" if near else f"known: {', '.join(names[:12])}{' ...' if len(names) > 12 else ''}"
    more = f" {hint}" if hint else ""
    error = QuestionError(f"unknown {kind} {given[:80]!r}: {offer}{more}")
    listed = ", ".join(near) if near else offer.removeprefix("known: ")
    values = {"kind": kind, "given": repr(given[:80]), "near": listed, "hint": more}
    error.told = ("error-unknown-near" if near else "error-unknown-known", values)
    return error


def nearest(given: str, known: Iterable[str], *, most: int = 3, cutoff: float = 0.58) -> list[str]:
    """The known names most like the given one, best first."""
    import difflib

    lowered = {name.lower(): name for name in known}
    return [lowered[n] for n in difflib.get_close_matches(str(given)[:200].lower(), lowered, n=most, cutoff=cutoff)]
