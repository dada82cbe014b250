"""Facts of ``families.toml``: what transformers' tables say of a model type, apart from the model itself."""

from functools import cache
from importlib.resources import files
from typing import Any

import msgspec


class Style(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The special tokens of a family by their part, what stands around a text, and whether a chat template comes with it.

    ``beside``: positions that no token takes. Where the config names none: ``plain`` positions, ``places`` of tokens.
    ``vocab``: of these numbers of tokens alone. ``more``: further special tokens, one after another from ``more_from``.
    ``picture``: what stands for one in a chat.
    """

    of: tuple[str, ...]
    special: dict[str, str]
    vocab: tuple[int, ...] = ()
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


def style_of(kind: str, vocab: int) -> Style:
    """How the family of a model type writes its special tokens; GPT-2's way where no other is known.

    One that names the number of tokens goes before one of the model type itself, and that before one of its family.
    """
    styles = [msgspec.convert(row, Style) for row in facts("style").values()]
    fitting = [style for style in styles if not style.vocab or vocab in style.vocab]
    near = [style for style in fitting if kind in style.of or any(kind.startswith(w) or f"-{w}" in kind for w in style.of)]
    ranked = sorted(near, key=lambda style: (not style.vocab, kind not in style.of))
    return next(iter(ranked), styles[-1])


@cache
def _facts() -> dict[str, dict[str, Any]]:
    return msgspec.toml.decode(files(__package__).joinpath("families.toml").read_text(), type=dict[str, dict[str, Any]])


def facts(table: str) -> dict[str, Any]:
    """One table of the file."""
    return _facts()[table]
