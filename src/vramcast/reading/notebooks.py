"""Notebooks (.ipynb): their code as one program, and their shell lines as one script. Outputs are never read."""

import ast
import re
import textwrap
import warnings
from typing import Any

from vramcast.errors import QuestionError

_MOST_CELLS = 5_000
_RUNS_IT = re.compile(r"\s*%%(?:time|timeit|capture|prun|debug)\b[^\n]*\n?")  # magics whose cell is Python all the same
_SETS = re.compile(r"\b(\w*TrainingArguments|(?:SFT|DPO|GRPO|KTO|ORPO|Reward)Config|LoraConfig|get_peft_model)\s*\(")
_COMMANDS = ("!", "%pip ", "pip install ")  # IPython takes the last two for magics
_SHELL = ("!", "%%bash", "%%sh", "%%shell", "%%script")


def code_of(notebook: Any, what: str) -> str:
    """The Python of the code cells without lines of shells and magics, and without cells that are no Python.

    Raises QuestionError for no notebook, and where a cell that is no Python alone makes the arguments of its training.
    """
    cells = (_RUNS_IT.sub("", _source(cell), count=1) for cell in _cells(notebook, what))
    plain = [_without_shell(text) for text in cells if not text.startswith(_SHELL[1:]) and not text.startswith("%%")]
    code = [_parsable(text) for text in plain]
    made = {name for text in code for name in _SETS.findall(text)}
    for text, read in zip(plain, code, strict=True):
        if not read and (lost := set(_SETS.findall(_uncommented(text))) - made):
            raise QuestionError(
                f"{what}: the cell that makes {min(lost)} is no Python ({_fault(text)}), so that what it sets is not known: "
                f"mend the cell, or give its settings as flags, vramcast train MODEL --micro-batch N --seq N"
            )
    return "\n".join(code)


def _uncommented(text: str) -> str:
    return re.sub(r"^\s*#[^\n]*", "", text, flags=re.M)


def _fault(text: str) -> str:
    """What Python says of a cell that it cannot read, with the line in the cell."""
    try:
        ast.parse(text)
    except SyntaxError as error:
        return f"line {error.lineno} of it: {str(error.msg)[:80]}"
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error)[:80]
    return "its indentation"


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
            if whole or going or line.lstrip().startswith(_COMMANDS):
                lines.append(line if whole or going else line.lstrip().lstrip("!%"))
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
