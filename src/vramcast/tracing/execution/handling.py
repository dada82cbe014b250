"""Where a program's own files deal with failures: lines in a ``try`` that catches a missing file, and lines of a ``finally``."""

import ast
import functools
import re
from pathlib import Path

_CAUGHT = re.compile(r"FileNotFoundError|OSError|IOError|EnvironmentError|Exception|BaseException")


@functools.lru_cache(maxsize=256)
def _nodes(path: str) -> tuple[ast.AST, ...]:
    try:
        return tuple(ast.walk(ast.parse(Path(path).read_bytes())))
    except (OSError, SyntaxError, ValueError):
        return ()


@functools.lru_cache(maxsize=256)
def _without_file(path: str) -> tuple[tuple[int, int], ...]:
    found = []
    for node in _nodes(path):
        if isinstance(node, ast.Try) and any(one.type is None or _CAUGHT.search(ast.unparse(one.type)) for one in node.handlers):
            found.append((node.body[0].lineno, node.body[-1].end_lineno or 0))
        elif isinstance(node, ast.With) and any("suppress" in ast.unparse(one.context_expr) for one in node.items):
            found.append((node.lineno, node.end_lineno or 0))
    return tuple(found)


def does_without_file(path: str, line: int) -> bool:
    """Whether the program itself deals with a file that is missing at that line."""
    return any(first <= line <= last for first, last in _without_file(path))


def is_cleaning_up(path: str, line: int) -> bool:
    """Whether a line stands in a ``finally``, which runs while another failure passes through."""
    parts = (node.finalbody for node in _nodes(path) if isinstance(node, ast.Try) and node.finalbody)
    return any(part[0].lineno <= line <= (part[-1].end_lineno or 0) for part in parts)
