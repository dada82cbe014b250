"""A grid of training questions, answered and shown as a table, JSON or a plot: what moves the total and what does not."""

import itertools
import sys
from typing import Any

import msgspec

from vramcast.cli.page import Page
from vramcast.errors import QuestionError, VramcastError
from vramcast.ledger import Forecast
from vramcast.units import GiB, parse_count
from vramcast.workload import Adapter, Training

MOST_CELLS = 2000
_ADAPTER_FIELDS = frozenset({"rank", "dropout"})
_OPTIONS = frozenset({"images", "image_patches"})


class Axis(msgspec.Struct, frozen=True):
    """One name and the values it takes."""

    name: str
    values: tuple[Any, ...]


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One answered question of the grid, or the reason it was refused."""

    point: dict[str, Any]
    forecast: Forecast | None = None
    refused: str = ""


def show_sweep(question: Training, texts: tuple[str, ...], *, as_json: bool, plot: str | None) -> int:
    """Answer the grid and show it. Exit code 0 when at least one cell fits (or no card was named), else 1."""
    axes = [read_axis(text) for text in texts]
    if plot:
        from vramcast.charts.write import check_file

        check_file(plot)
    cells = list(answer_grid(question, axes))
    if as_json:
        body = {"schema": "vramcast/1", "sweep": [_as_row(c) for c in cells]}
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(body), indent=1) + b"\n")
    else:
        sweep_page(question, axes, cells).show()
    if plot:
        from vramcast.charts.sweep import draw_sweep

        draw_sweep([_as_row(c) for c in cells if c.forecast], [a.name for a in axes], plot)
    return 0 if any(c.forecast and c.forecast.fit.verdict != "no" for c in cells) else 1


def read_axis(text: str) -> Axis:
    """``rank=2,4,8``. Raises QuestionError when it is not NAME=V,V or the name is not a field of the question."""
    name, equals, values = text.partition("=")
    name = name.replace("-", "_")
    if not equals or not values:
        raise QuestionError(f"--sweep {text[:60]!r} is not NAME=V,V,...: for example micro_batch=2,4,8")
    known = {*Training.__struct_fields__, *_ADAPTER_FIELDS, *_OPTIONS}
    if name not in known:
        from vramcast.errors import unknown_name

        raise unknown_name("sweep axis", name, known)
    return Axis(name, tuple(_number(v) for v in values.split(",")))


def answer_grid(question: Training, axes: list[Axis]) -> Any:
    """Every point of the grid, answered in order. Raises QuestionError beyond 2,000 points."""
    from vramcast.planning.training import forecast_training

    points = list(itertools.product(*(a.values for a in axes)))
    if len(points) > MOST_CELLS:
        raise QuestionError(f"{len(points):,} points in the grid: at most {MOST_CELLS:,}")
    for values in points:
        point = dict(zip((a.name for a in axes), values, strict=True))
        try:
            yield Cell(point=point, forecast=forecast_training(at_point(question, point)))
        except VramcastError as error:
            yield Cell(point=point, refused=str(error))


def at_point(question: Training, point: dict[str, Any]) -> Training:
    """The question with the point's values in their fields; ``rank`` and ``dropout`` are its adapter's, images its options'."""
    adapter = {k: v for k, v in point.items() if k in _ADAPTER_FIELDS}
    seen = {k: v for k, v in point.items() if k in _OPTIONS}
    fields = {k: v for k, v in point.items() if k not in _ADAPTER_FIELDS | _OPTIONS}
    if seen:
        fields["options"] = question.options | seen
    if adapter:
        fields["adapter"] = msgspec.structs.replace(question.adapter or Adapter(), **adapter)
    return msgspec.structs.replace(question, **fields)


def sweep_page(question: Training, axes: list[Axis], cells: list[Cell]) -> Page:
    """The grid as a table: the last axis across, the others down; each cell the card's memory in GiB, coloured by verdict."""
    page = Page()
    page.line((question.model, "title"), f"  {question.method}, device memory of the worst card in GiB")
    page.blank()
    across = axes[-1]
    by_point = {tuple(c.point.values()): c for c in cells}
    head = " ".join(a.name for a in axes[:-1])
    page.line("  ", (head.ljust(22), "faint"), *((f"{across.name}={v}".rjust(18), "title") for v in across.values))
    for rows in itertools.product(*(a.values for a in axes[:-1])):
        spans = [_cell_span(by_point[(*rows, v)]) for v in across.values]
        page.line("  ", (" ".join(str(r) for r in rows).ljust(22), "title"), *spans)
    refused = next((c.refused for c in cells if c.refused), "")
    if refused:
        page.blank()
        page.line(("refused: ", "warn"), refused)
    return page


_STYLES = {"fits": "good", "tight": "warn", "no": "bad", "unknown": "number"}


def _cell_span(cell: Cell) -> tuple[str, str]:
    if cell.forecast is None:
        return "refused".rjust(18), "faint"
    verdict = cell.forecast.fit.verdict
    word = "" if verdict == "unknown" else f" {verdict}"
    return f"{cell.forecast.worst.device_bytes / GiB:.2f}{word}".rjust(18), _STYLES[verdict]


def _as_row(cell: Cell) -> dict[str, Any]:
    if cell.forecast is None:
        return {**cell.point, "refused": cell.refused}
    worst = cell.forecast.worst
    return {
        **cell.point,
        "verdict": cell.forecast.fit.verdict,
        "instant": worst.peak.name,
        "allocated_bytes": worst.allocated_bytes,
        "reserved_bytes": worst.reserved_bytes,
        "device_bytes": worst.device_bytes,
    }


def _number(text: str) -> Any:
    try:
        return parse_count(text)
    except QuestionError:
        return text
