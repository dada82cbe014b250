"""Facts of ``families.toml``: what transformers' tables say of a model type, apart from the model itself."""

import itertools
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec


class Style(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The special tokens of a family by their part, what stands around a text, and whether a chat template comes with it.

    ``beside``: positions that no token takes. Where the config names none: ``plain`` positions, ``places`` of tokens.
    ``more``: further special tokens, one after another from ``more_from``. ``picture``: what stands for one in a chat.
    """

    of: tuple[str, ...]
    special: dict[str, str]
    places: dict[str, int] = {}
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    between: tuple[str, ...] = ()
    types: bool = False
    chat: bool = False
    longest: int = 0
    beside: int = 0
    plain: int = 0
    more_from: int = 0
    more: tuple[str, ...] = ()
    picture: str = "<image>"


def style_of(kind: str) -> Style:
    """How the family of a model type writes its special tokens; GPT-2's way where no other is known."""
    styles = [msgspec.convert(row, Style) for row in facts("style").values()]
    exact = (style for style in styles if kind in style.of)
    near = (style for style in styles if any(kind.startswith(word) or f"-{word}" in kind for word in style.of))
    return next(itertools.chain(exact, near, styles[-1:]))


@cache
def _facts() -> dict[str, dict[str, Any]]:
    return msgspec.toml.decode(files(__package__).joinpath("families.toml").read_text(), type=dict[str, dict[str, Any]])


def facts(table: str) -> dict[str, Any]:
    """One table of the file."""
    return _facts()[table]
