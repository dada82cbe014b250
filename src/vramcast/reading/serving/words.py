"""A command's words as YAML and JSON hold them: a list, or one text."""

import re
import shlex
from typing import Any

_PAIR = re.compile(r"--[a-z][\w-]* [^\s-]\S*\s*")  # a flag and its value written as one item of a list


def words_of(value: Any) -> tuple[str, ...]:
    """Words of a list, or of one text as a shell takes it apart."""
    if isinstance(value, list):
        plain = (plain_word(word) for word in value if not isinstance(word, (dict, list)) and word is not None)
        return tuple(part for word in plain for part in (word.split(" ", 1) if _PAIR.fullmatch(word) else (word,)))
    if not isinstance(value, str):
        return ()
    try:
        return tuple(shlex.split(value, comments=False))
    except ValueError:
        return tuple(value.split())


def plain_word(word: Any) -> str:
    """A value of YAML as a word of a command: a switch as true and false."""
    return str(word).lower() if isinstance(word, bool) else str(word)
