"""A measured grid: a progress bar, a store that survives a kill, then a table and a plot of measured beside forecast."""

import sys
from collections.abc import Callable
from typing import Any

import msgspec

from vramcast.asking.grid import Axis, Point, points_of
from vramcast.cli.pages.page import Page, is_terminal
from vramcast.units import GiB


def measure_sweep(
    asked_at: Callable[[Point], Any], axes: list[Axis], *, model: Any, card: Any, given: dict[str, Any], how: Any
) -> int:
    """Measure the grid, keep every finished case, show the table. Exit code 0 when at least one case ran."""
    from functools import partial

    from vramcast.measuring import campaign
    from vramcast.measuring.run import measure_each
    from vramcast.measuring.store import Store
    from vramcast.planning.measuring import forecast_beside, point_of, serving_of, trace_beside
    from vramcast.tracing.run import Tracer

    names = [a.name for a in axes]
    grid = points_of(axes)
    asked = [asked_at(point) for point in grid]
    questions = [serving_of(q, given["generate"]) for q in asked] if given["generate"] else asked
    points = [point_of(q, model, card=card, how=how) for q in questions]
    store = Store(given["store"] or ":memory:")
    rows: dict[int, dict[str, Any]] = {}

    def told(point: Any, case: Any) -> None:
        place = points.index(point)
        forecast = forecast_beside(questions[place], model, card)
        said = case.versions.get("message", "")
        rows[place] = {**grid[place], "figures": case.figures, "forecast": forecast, "message": said}
        if given["trace"]:
            rows[place]["trace"] = trace_beside(point.request, card, tracer)
        advance()

    with progress(len(points)) as advance, Tracer() as tracer:
        on = campaign.identity(given["device"])
        if given["cluster"]:
            campaign.over_cluster(points, store, on=on, told=told, timeout_s=given["timeout"])
        else:
            runner = partial(measure_each, timeout_s=given["timeout"])
            campaign.run_campaign(points, store, on=on, told=told, runner=runner)
    if given["export"]:
        store.export(given["export"])
    return show([rows[place] for place in sorted(rows)], names, as_json=given["as_json"], plot=given["plot"])


def show(rows: list[dict[str, Any]], names: list[str], *, as_json: bool, plot: str | None) -> int:
    """Print the measured grid, and draw it when asked. Exit code 0 when at least one case ran."""
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode({"schema": "vramcast/1", "sweep": rows}) + b"\n")
    else:
        _page(rows, names).show()
    if plot:
        from vramcast.charts.measured import draw_measured

        draw_measured(rows, names, plot)
    return 0 if any("oom" not in r["figures"] and "failed" not in r["figures"] for r in rows) else 1


def progress(total: int) -> Any:
    """A context that yields a function to call after each case: a bar on a terminal's standard error, silence elsewhere."""
    from contextlib import contextmanager

    @contextmanager
    def shown() -> Any:
        if not (is_terminal() or sys.stderr.isatty()):
            yield lambda: None
            return
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("measuring", total=total)
            yield lambda: bar.advance(task)

    return shown()


def _page(rows: list[dict[str, Any]], names: list[str]) -> Page:
    page = Page()
    head = (*names, "allocated GiB", "forecast", "", "traced", "", "reserved GiB", "device GiB", "s")
    page.table([head, *(_cells(row, names) for row in rows)], right=frozenset(range(len(names), len(head))))
    message = next((row["message"] for row in rows if row["message"]), "")
    if message:
        page.blank()
        page.line(message)
    return page


def _cells(row: dict[str, Any], names: list[str]) -> tuple[str, ...]:
    """Sizes in GiB; forecast and trace with their difference from what was measured; the time of a step or of a generation."""
    figures, said, seen = row["figures"], row["forecast"].get("allocated_bytes"), row.get("trace", {}).get("allocated")
    measured = figures.get("allocated")
    outcome = "out of memory" if "oom" in figures else "failed" if "failed" in figures else _gib(measured)
    if outcome != _gib(measured):
        measured = None
    seconds = figures.get("step_s", figures.get("run_s"))
    return (
        *(str(row[name]) for name in names),
        *(outcome, _gib(said), _difference(said, measured), _gib(seen), _difference(seen, measured)),
        *(_gib(figures.get(name)) for name in ("reserved", "device")),
        "" if seconds is None else f"{seconds:.3g}",
    )


def _gib(size: float | None) -> str:
    return "" if size is None else f"{size / GiB:.2f}"


def _difference(said: float | None, measured: float | None) -> str:
    return f"{said / measured - 1:+.1%}" if said and measured else ""
