"""A grid of questions shown as a table, JSON or a plot: what moves the total and what does not."""

import itertools
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from vramcast.asking.grid import Ask, Axis, Cell, answer_grid
from vramcast.cli.pages.page import Page
from vramcast.cli.plotted import say_written
from vramcast.planning.verdict import exit_code
from vramcast.units import GiB


def show_sweep(ask: Ask, words: dict[str, Any], axes: Sequence[Axis], *, title: str, as_json: bool, plot: str | None) -> int:
    """Answer the grid and show it. Exit code 0 when at least one cell fits (or no card was named), else 1.

    A grid of which every cell is refused is a wrong question: the first reason is raised.
    """
    if plot:
        from vramcast.charts.write import check_file

        check_file(plot)
    cells = list(answer_grid(ask, words, axes))
    if cells and all(c.refused for c in cells):
        from vramcast.errors import QuestionError

        raise QuestionError(cells[0].refused)
    if as_json:
        body = {"schema": "vramcast/1", "sweep": [as_row(c) for c in cells]}
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(body), indent=1) + b"\n")
    else:
        sweep_page(title, axes, cells).show()
    if plot:
        from vramcast.charts.sweep import draw_sweep

        draw_sweep([as_row(c) for c in cells if c.worst], [a.name for a in axes], plot, title=_titled(title, words))
        say_written(plot)
    return 0 if any(c.fit and not exit_code(c.fit) for c in cells) else 1


def _titled(title: str, words: dict[str, Any]) -> str:
    """The plot's title: model, method, card."""
    return ", ".join(str(part) for part in (title, words.get("gpu"), words.get("framework") or words.get("engine")) if part)


def sweep_page(title: str, axes: Sequence[Axis], cells: Sequence[Cell]) -> Page:
    """The grid as a table: the last axis across, the others down; each cell the card's memory in GiB, coloured by verdict."""
    page = Page()
    page.line((title, "title"), "  memory needed by the worst card in GiB")
    page.blank()
    across = axes[-1]
    by_point = {tuple(c.point.values()): c for c in cells}
    head, heads = " ".join(a.name for a in axes[:-1]), [f"{across.name}={v}" for v in across.values]
    points = list(itertools.product(*(a.values for a in axes[:-1])))
    first = max(len(head), *(len(" ".join(map(str, rows))) for rows in points)) + 2
    table = [[_cell_span(by_point[(*rows, v)]) for v in across.values] for rows in points]
    widths = [max(len(name), *(len(row[i][0]) for row in table)) + 2 for i, name in enumerate(heads)]
    page.line("  ", (head.ljust(first), "faint"), *((name.rjust(w), "title") for name, w in zip(heads, widths, strict=True)))
    for rows, spans in zip(points, table, strict=True):
        shown = [(text.rjust(w), style) for (text, style), w in zip(spans, widths, strict=True)]
        page.line("  ", (" ".join(str(r) for r in rows).ljust(first), "title"), *shown)
    refused = next((c.refused for c in cells if c.refused), "")
    if refused:
        page.blank()
        page.line(("refused: ", "warn"), refused)
    return page


_STYLES = {"fits": "good", "tight": "warn", "partly": "bad", "no": "bad", "unknown": "number"}


def _cell_span(cell: Cell) -> tuple[str, str]:
    if cell.worst is None or cell.fit is None:
        return "refused", "faint"
    verdict = cell.fit.verdict
    word = "" if verdict == "unknown" else f" {verdict}"
    return f"{cell.worst.needed_bytes / GiB:.2f}{word}", _STYLES[verdict]


def as_row(cell: Cell) -> dict[str, Any]:
    """The cell as a row of JSON: the point, then its counters and verdict or why it was refused."""
    if cell.worst is None or cell.fit is None:
        return {**cell.point, "refused": cell.refused}
    return {
        **cell.point,
        "verdict": cell.fit.verdict,
        "instant": cell.worst.peak.name,
        "allocated_bytes": cell.worst.allocated_bytes,
        "reserved_bytes": cell.worst.reserved_bytes,
        "device_bytes": cell.worst.device_bytes,
        "needed_bytes": cell.worst.needed_bytes,
        "capacity_bytes": cell.fit.capacity_bytes,
    }
