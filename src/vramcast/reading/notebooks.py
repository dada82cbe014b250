"""Notebooks (.ipynb): their code as one program, and their shell lines as one script. Outputs are never read."""

import ast
import textwrap
import warnings
from typing import Any

from vramcast.errors import QuestionError

_MOST_CELLS = 5_000
_SHELL = ("!", "%%bash", "%%sh", "%%shell", "%%script")


def code_of(notebook: Any, what: str) -> str:
    """The Python of the code cells without lines of shells and magics, and without cells that are no Python.

    Raises QuestionError for no notebook.
    """
    cells = (_source(cell) for cell in _cells(notebook, what))
    plain = (text for text in cells if not text.startswith(_SHELL[1:]) and not text.startswith("%%"))
    return "\n".join(_parsable(_without_shell(text)) for text in plain)


def _parsable(text: str) -> str:
    """A cell that is Python, "" for one that is not: a notebook's other cells ran without it."""
    for form in (text, textwrap.dedent(text)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compile(form, "cell", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        return form
    return ""


def shell_of(notebook: Any, what: str) -> str:
    """The shell of a notebook: lines after ``!`` and cells of ``%%bash``. Raises QuestionError for no notebook."""
    lines: list[str] = []
    for cell in _cells(notebook, what):
        text = _source(cell)
        whole = text.startswith(_SHELL[1:])
        going = False
        for line in text.splitlines()[1:] if whole else text.splitlines():
            if whole or going or line.lstrip().startswith("!"):
                lines.append(line if whole or going else line.lstrip()[1:])
                going = line.rstrip().endswith("\\")
    return "\n".join(lines)


def _cells(notebook: Any, what: str) -> list[Any]:
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise QuestionError(f"{what} is no notebook: it has no cells")
    return [cell for cell in cells[:_MOST_CELLS] if isinstance(cell, dict) and cell.get("cell_type") == "code"]


def _source(cell: dict[str, Any]) -> str:
    source = cell.get("source")
    return "".join(str(line) for line in source) if isinstance(source, list) else str(source or "")


def _without_shell(text: str) -> str:
    """A cell whose shell lines are ``pass``, those that go on after a backslash included."""
    lines, inside = [], False
    for line in text.splitlines():
        shell = inside or line.lstrip().startswith(("!", "%"))
        lines.append("" if inside else _blank(line))
        inside = shell and line.rstrip().endswith("\\")
    return "\n".join(lines)


def _blank(line: str) -> str:
    """A line that Python can read: magics and shell lines become ``pass`` at their indentation."""
    plain = line.lstrip()
    return f"{line[: len(line) - len(plain)]}pass" if plain.startswith(("!", "%")) else line
