"""Which lines of the program some work reaches, and which questions come to a line, by coverage.py."""

import dis
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

SOURCE = Path(__file__).parents[2] / "src" / "vramcast"
PACKAGES = ("serving", "training", "models", "hardware", "planning", "speed")


def unreached(work: Callable[[], object]) -> Iterator[str]:
    """``path: lines`` of each module of PACKAGES that ``work`` never came to, then the share of lines that it did."""
    cover = _recorder()
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


def by_line(count: int, ask: Callable[[int], object]) -> dict[str, dict[int, list[int]]]:
    """Numbers of the questions (0 to ``count``) that come to each line, by file (``serving/weights.py``) and line."""
    cover = _recorder()
    with cover.collect():
        for number in range(count):
            cover.switch_context(str(number))
            ask(number)
    data = cover.get_data()
    return {
        Path(name).relative_to(SOURCE).as_posix(): {
            line: sorted(int(number) for number in asked if number) for line, asked in data.contexts_by_lineno(name).items()
        }
        for name in data.measured_files()
    }


def _recorder() -> Any:
    import coverage

    sources = [str(SOURCE / package) for package in PACKAGES]
    return coverage.Coverage(data_file=None, source=sources, config_file=False, messages=False)


def _lines(code: CodeType) -> set[int]:
    """Lines inside functions: those at a module's or class's own level run when it is imported and say nothing."""
    own = {line for _, line in dis.findlinestarts(code) if line} if code.co_flags & 2 else set()
    own.discard(code.co_firstlineno)
    return own.union(*(_lines(inner) for inner in code.co_consts if isinstance(inner, CodeType)))
