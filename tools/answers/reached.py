"""Which lines of the program some work reaches, by coverage.py."""

import dis
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

SOURCE = Path(__file__).parents[2] / "src" / "vramcast"
PACKAGES = ("serving", "training", "models", "hardware", "planning", "speed")


def unreached(work: Callable[[], object]) -> Iterator[str]:
    """``path: lines`` of each module of PACKAGES that ``work`` never came to, then the share of lines that it did."""
    import coverage

    cover: Any = coverage.Coverage(data_file=None, source=[str(SOURCE / package) for package in PACKAGES], config_file=False)
    with cover.collect():
        work()
    data = cover.get_data()
    whole = missed = 0
    for package in PACKAGES:
        for path in sorted((SOURCE / package).rglob("*.py")):
            lines = _lines(compile(path.read_text("utf-8"), str(path), "exec"))
            left = sorted(lines - {*(data.lines(str(path)) or ())})
            whole, missed = whole + len(lines), missed + len(left)
            if left:
                yield f"{path.relative_to(SOURCE)}: {', '.join(map(str, left))}"
    yield f"{whole - missed} of {whole} lines reached ({1 - missed / max(1, whole):.1%})"


def _lines(code: CodeType) -> set[int]:
    """Lines inside functions: those at a module's or class's own level run when it is imported and say nothing."""
    own = {line for _, line in dis.findlinestarts(code) if line} if code.co_flags & 2 else set()
    own.discard(code.co_firstlineno)
    return own.union(*(_lines(inner) for inner in code.co_consts if isinstance(inner, CodeType)))
