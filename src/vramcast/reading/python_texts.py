"""The text of a Python program, changed by the places of its tree: without the texts that it holds, with other values."""

import ast
import re
import warnings
from collections.abc import Iterable

Splice = tuple[tuple[int, int], tuple[int, int], str]  # from a line and a column in bytes, to them, the text that stands there


def parsed_quietly(text: str) -> ast.Module | None:
    """The tree of a program, without Python's warnings about it; None where it is no Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def spliced(text: str, splices: Iterable[Splice]) -> str:
    """The program's text with others in the places given; of places within each other the last stays."""
    raw = text.encode("utf-8", "replace")
    starts = [0, *(found.end() for found in re.finditer(rb"\r\n?|\n", raw))]
    places = sorted(((starts[a - 1] + b, starts[c - 1] + d, put) for (a, b), (c, d), put in splices), reverse=True)
    last = len(raw) + 1
    for start, end, put in places:
        if end <= last:
            raw, last = raw[:start] + put.encode() + raw[end:], start
    return raw.decode("utf-8", "replace")


def without_texts(text: str) -> str:
    """The program with every text of several lines left blank (samples, templates); as it is where it is no Python."""
    if (tree := parsed_quietly(text)) is None:
        return text
    blanks: list[Splice] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            last, column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
            if last > node.lineno or "\n" in node.value:
                blanks.append(((node.lineno, node.col_offset), (last, column), "\n" * (last - node.lineno)))
    return spliced(text, blanks)
