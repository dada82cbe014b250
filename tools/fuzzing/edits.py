"""Damage that keeps most of a file's structure, so that it gets past the first check and reaches the rules behind it."""

import copy
import json
import random
import re
from typing import Any

NUMBERS: tuple[Any, ...] = (
    0,
    -1,
    1,
    2,
    3,
    7,
    255,
    4096,
    2**31 - 1,
    2**31,
    2**53 + 1,
    2**63,
    -(2**63),
    10**30,
    0.5,
    -0.0,
    1e-9,
    1e308,
    float("inf"),
    float("-inf"),
    float("nan"),
    True,
    False,
)
TEXTS = (
    "",
    "0",
    "-1",
    "1e999",
    "nan",
    "Infinity",
    "x",
    "\u00b2",
    "\u0661",
    "9" * 5000,
    "a" * 4000,
    "\x1b]0;title\x07\x1b[31m",
    "\x00",
    "../../etc/passwd",
    "${a:-${b:-$c}}",
    "$" * 50,
    "re:(\\w|.)*!",
    "re:" + ".*" * 12,
    "model.layers.{0-9999,0-9999}",
    "%s%n{0}",
    "\ud800",
    "null",
    "auto",
    "float8_e4m3fn",
    "int4",
    "[1, 2",
    "{}",
    "\u202e",
    "1,024",
    "12GiB",
    "=",
    "--",
    "\t",
    "\r\n",
)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_WORD = re.compile(r"[A-Za-z_][\w./-]*")


def edited_tree(chance: random.Random, tree: Any) -> Any:
    """A copy of a JSON-like value with one to four of its places changed."""
    found = {"": copy.deepcopy(tree)}
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 4))):
        place = _place(chance, found[""])
        if place is None:
            return chance.choice(NUMBERS)
        _edit_place(chance, *place, _place(chance, found[""]) or place)
    return found[""]


def _place(chance: random.Random, tree: Any) -> tuple[Any, Any] | None:
    """A (container, key), as likely near the root as below: a long list of leaves must not draw all the damage."""
    found = None
    while isinstance(tree, (dict, list)) and tree and (found is None or chance.random() < 0.6):
        key = chance.choice(list(tree)) if isinstance(tree, dict) else chance.randrange(len(tree))
        found, tree = (tree, key), tree[key]
    return found


def _edit_place(chance: random.Random, holder: Any, key: Any, elsewhere: tuple[Any, Any]) -> None:
    other, name = elsewhere
    what = chance.randrange(9)
    if what <= 2:
        holder[key] = chance.choice(NUMBERS)
    elif what == 3:
        holder[key] = chance.choice(TEXTS)
    elif what == 4:
        del holder[key]
    elif what == 5:
        holder[key] = copy.deepcopy(other[name])
    elif what == 6:
        holder[key] = chance.choice(([], {}, None, [holder[key]], {"a": holder[key]}, [[[[1]]]], "text"))
    elif what == 7 and isinstance(holder, dict):
        holder[str(name)] = holder.pop(key)
    else:
        _stretch(chance, holder, key)


def _stretch(chance: random.Random, holder: Any, key: Any) -> None:
    """A list made long, a text made long, a number made another of its size."""
    value = holder[key]
    if isinstance(value, list):
        holder[key] = value * chance.choice((0, 2, 50))
    elif isinstance(value, str):
        holder[key] = value * chance.choice((0, 2, 200))
    elif isinstance(value, int) and not isinstance(value, bool):
        holder[key] = value + chance.choice((-1, 1, value, -value, -2 * value, value * 999))
    else:
        holder[key] = deep(chance.choice((20, 200)))


def deep(levels: int) -> Any:
    """Lists inside lists."""
    found: Any = 1
    for _ in range(levels):
        found = [found]
    return found


def edited_text(chance: random.Random, text: str, others: tuple[str, ...]) -> str:
    """The text with some lines moved, doubled, cut or spliced, and numbers and words replaced."""
    for _ in range(chance.choice((1, 1, 2, 3, 5))):
        text = _edit_text(chance, text, others)[:200_000]
    return text


def _edit_text(chance: random.Random, text: str, others: tuple[str, ...]) -> str:
    what = chance.randrange(8)
    if what == 0:
        return _replaced(chance, _NUMBER, text, str(chance.choice(NUMBERS)))
    if what == 1:
        return _replaced(chance, _WORD, text, chance.choice(TEXTS))
    if what == 2:
        words = _WORD.findall(chance.choice(others)) or ["x"]
        return _replaced(chance, _WORD, text, chance.choice(words))
    lines = text.splitlines(keepends=True) or [""]
    at = chance.randrange(len(lines))
    if what == 3:
        del lines[at]
    elif what == 4:
        lines[at] = lines[at] * chance.choice((2, 30))
    elif what == 5:
        more = chance.choice(others).splitlines(keepends=True) or [""]
        start = chance.randrange(len(more))
        lines[at:at] = more[start : start + chance.choice((1, 3, 10))]
    elif what == 6:
        return text[: chance.randrange(len(text) + 1)]
    else:
        place = chance.randrange(len(text) + 1)
        return text[:place] + chance.choice((*TEXTS, *"(){}[]<>\"'`$\\|&;:,=#@*?~\n")) + text[place:]
    return "".join(lines)


def _replaced(chance: random.Random, pattern: re.Pattern[str], text: str, new: str) -> str:
    found = list(pattern.finditer(text))
    if not found:
        return text + new
    one = chance.choice(found)
    return text[: one.start()] + new + text[one.end() :]


def edited_bytes(chance: random.Random, data: bytes) -> bytes:
    """The bytes with a few changed, cut off, doubled or blown up."""
    body = bytearray(data)
    for _ in range(chance.choice((1, 2, 4, 16))):
        if not body:
            return b""
        at = chance.randrange(len(body))
        what = chance.randrange(5)
        if what == 0:
            body[at] = chance.randrange(256)
        elif what == 1:
            body[at : at + 8] = chance.choice((b"\xff" * 8, b"\0" * 8, (2**31).to_bytes(8, "little"), b"\x01" + b"\0" * 7))
        elif what == 2:
            del body[at : at + chance.choice((1, 8, 64))]
        elif what == 3:
            body[at:at] = body[at : at + chance.choice((1, 8, 64))]
        else:
            body[at] ^= 1 << chance.randrange(8)
    return bytes(body if chance.random() < 0.8 else body[: chance.randrange(len(body) + 1)])


def as_json(tree: Any) -> bytes:
    """JSON as lax writers write it: NaN and lone surrogates and all."""
    return json.dumps(tree).encode("utf-8", "replace")
