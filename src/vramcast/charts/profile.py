"""Pictures of a trace: streams over time, parts of the time as stacked bars by step or rank, kernels under the roofline."""

from typing import Any

from vramcast.charts.palette import KERNELS, TIMES
from vramcast.charts.write import altair, write_chart
from vramcast.errors import QuestionError
from vramcast.hardware.accelerator import Accelerator
from vramcast.profiling.events import KERNEL, SYNC, Trace
from vramcast.profiling.intervals import union
from vramcast.profiling.kernels import kernel_class
from vramcast.profiling.ranks import Ranks
from vramcast.profiling.report import Report

_PARTS = {name.replace("_", " "): colour for name, colour in TIMES.items()}
GROUPS = KERNELS
_MOST_BARS = 4000
_WIDTH = 860
_MOST_STREAMS = 16


def draw_streams(trace: Trace, report: Report, file: str) -> None:
    """Write the streams of the busiest GPU over time, coloured by class; neighbours closer than a pixel are drawn as one."""
    alt = altair()
    values, order = stream_bars(trace, report)
    chart = (
        alt.Chart(alt.Data(values=values))
        .mark_bar()
        .encode(
            x=alt.X("start:Q", title="ms from the GPU's first work"),
            x2="end:Q",
            y=alt.Y("stream:N", sort=order, title=None),
            color=alt.Color("what:N", scale=alt.Scale(domain=list(GROUPS), range=list(GROUPS.values())), title=None),
            tooltip=["what:N", "start:Q", "end:Q"],
        )
        .properties(width=_WIDTH, height=max(80, 34 * len(order)), title=_title(alt, report))
    )
    write_chart(chart.configure_view(stroke=None).configure_axis(grid=False), file)


def stream_bars(
    trace: Trace, report: Report, *, most: int = _MOST_BARS, streams: int = _MOST_STREAMS, pixels: int = 4 * _WIDTH
) -> tuple[list[dict[str, Any]], list[str]]:
    """Bars of the streams with most work, merged until they are few enough to draw, and the streams' names in order.

    A bar tells its stream, what ran, start and end in ms from the GPU's first work.
    """
    import numpy as np

    mine = (trace.device == report.device) & (trace.kind != SYNC)
    first = int(trace.start[mine].min())
    groups = _groups(trace)
    busy = np.bincount(trace.stream[mine], weights=(trace.end - trace.start)[mine], minlength=len(trace.streams))
    shown = sorted(np.argsort(-busy)[:streams].tolist(), key=lambda s: trace.streams[s].zfill(9))
    shown = [s for s in shown if busy[s] > 0]
    pixel_ns = max(1, int(report.where.span_s * 1e9 / pixels))
    while True:
        values = [bar for s in shown for bar in _stream_bars(trace, mine & (trace.stream == s), groups, pixel_ns, first)]
        if len(values) <= most:
            return values, [f"stream {trace.streams[s]}" for s in shown]
        pixel_ns *= 2


def _groups(trace: Trace) -> Any:
    """By GPU event: its group's index in GROUPS."""
    import numpy as np

    names = list(GROUPS)
    by_name = [names.index(c) if (c := kernel_class(n)) in GROUPS else names.index("other compute") for n in trace.names]
    groups = np.array(by_name, dtype=np.int64)[trace.name]
    return np.where(trace.kind == KERNEL, np.where(trace.talks, names.index("communication"), groups), len(names) - 1)


def _stream_bars(trace: Trace, mine: Any, groups: Any, pixel_ns: int, first: int) -> list[dict[str, Any]]:
    bars = []
    for index, what in enumerate(GROUPS):
        chosen = mine & (groups == index)
        spans = union(trace.start[chosen], trace.end[chosen] + pixel_ns)
        stream = f"stream {trace.streams[trace.stream[chosen][0]]}" if spans.start.size else ""
        for start, end in zip(spans.start.tolist(), spans.end.tolist(), strict=True):
            bars.append({"stream": stream, "what": what, "start": (start - first) / 1e6, "end": (end - pixel_ns - first) / 1e6})
    return bars


def draw_parts(report: Report | Ranks, file: str) -> None:
    """Write the parts of the time as stacked bars: one per step of a trace, one per rank of a folder."""
    alt = altair()
    values = _rank_parts(report) if isinstance(report, Ranks) else _step_parts(report)
    by = "rank" if isinstance(report, Ranks) else "step"
    title = _title_of_ranks(alt, report) if isinstance(report, Ranks) else _title(alt, report)
    for value in values:
        value["rank_of_part"] = list(_PARTS).index(value["part"])
    chart = (
        alt.Chart(alt.Data(values=values))
        .mark_bar()
        .encode(
            x=alt.X("at:O", title=by, sort=None, axis=alt.Axis(labelAngle=0, labelOverlap=True)),
            y=alt.Y("ms:Q", title="ms of the GPU"),
            color=alt.Color("part:N", scale=alt.Scale(domain=list(_PARTS), range=list(_PARTS.values())), title=None),
            order=alt.Order("rank_of_part:Q"),
            tooltip=["at:O", "part:N", "ms:Q"],
        )
        .properties(width=min(_WIDTH, max(240, 26 * len(values) // 4)), height=320, title=title)
    )
    write_chart(chart.configure_view(stroke=None), file)


def _step_parts(report: Report) -> list[dict[str, Any]]:
    if not report.steps:
        where = report.where
        return _parts("whole", where.compute_s, where.exposed_communication_s, where.exposed_copies_s, where.idle_s)
    found = []
    for step in report.steps:
        copies = max(0.0, step.busy_s - step.compute_s - step.exposed_communication_s)
        found += _parts(str(step.number), step.compute_s, step.exposed_communication_s, copies, step.idle_s)
    return found


def _rank_parts(ranks: Ranks) -> list[dict[str, Any]]:
    found = []
    for row in ranks.ranks:
        where = row.where
        found += _parts(str(row.rank), where.compute_s, where.exposed_communication_s, where.exposed_copies_s, where.idle_s)
    return found


def _parts(at: str, *seconds: float) -> list[dict[str, Any]]:
    return [{"at": at, "part": part, "ms": value * 1e3} for part, value in zip(_PARTS, seconds, strict=True)]


def draw_roofline(report: Report, card: Accelerator | None, file: str) -> None:
    """Write matmuls and attentions as points under the card's roofs. Raises QuestionError without a card or without shapes."""
    if card is None:
        raise QuestionError("a roofline needs the card's rates: name it with --gpu, such as --gpu H100")
    points = [s for s in report.shapes if s.flops and s.bytes and s.seconds and s.dtype in card.flops]
    if not points:
        raise QuestionError("a roofline needs shapes of matmuls: record the trace with record_shapes=True")
    alt = altair()
    dtypes = sorted({p.dtype for p in points}, key=lambda d: -card.flops[d])
    values = [
        {"intensity": p.flops / p.bytes, "TFLOP/s": p.flops_per_s / 1e12, "type": p.dtype, "ms": p.seconds * 1e3, "what": p.kind}
        for p in points
    ]
    intensities = [p.flops / p.bytes for p in points]
    low, high = min(1.0, *intensities) / 2, max(2000.0, *intensities) * 2
    lines = [_roof(card, dtype, low, high) for dtype in dtypes]
    x = alt.X("intensity:Q", scale=alt.Scale(type="log", domain=[low, high]), title="FLOP per byte of operands")
    y = alt.Y("TFLOP/s:Q", scale=alt.Scale(type="log"), title="TFLOP/s")
    colour = alt.Color("type:N", sort=dtypes, title=None)
    roofs = alt.Chart(alt.Data(values=[v for line in lines for v in line])).mark_line().encode(x=x, y=y, color=colour)
    marks = (
        alt.Chart(alt.Data(values=values))
        .mark_point(filled=True, opacity=0.7)
        .encode(x=x, y=y, color=colour, shape=alt.Shape("what:N", title=None), size=alt.Size("ms:Q", title="ms in all"),
                tooltip=["what:N", "intensity:Q", "TFLOP/s:Q", "ms:Q"])
    )  # fmt: skip
    title = alt.Title(f"{card.name}: {card.bandwidth_bytes_per_s / 1e9:,.0f} GB/s, dense rates", anchor="start")
    write_chart((roofs + marks).properties(width=640, height=380, title=title), file)


def _roof(card: Accelerator, dtype: str, low: float, high: float) -> list[dict[str, Any]]:
    """Bandwidth up to the ridge, then the rate."""
    bandwidth, rate = card.bandwidth_bytes_per_s, card.flops[dtype]
    corners = (low, rate / bandwidth, high)
    return [{"intensity": at, "TFLOP/s": min(rate, at * bandwidth) / 1e12, "type": dtype} for at in corners]


def _title_of_ranks(alt: Any, ranks: Ranks) -> Any:
    return alt.Title(f"{ranks.folder}: {len(ranks.ranks)} ranks", anchor="start")


def _title(alt: Any, report: Report) -> Any:
    rank = f"rank {report.origin.rank}, " if report.origin.rank is not None else ""
    where = report.where
    share = where.busy_s / where.span_s if where.span_s else 0
    about = f"{rank}GPU {report.device}{f' ({report.gpu})' if report.gpu else ''}"
    return alt.Title(f"{about}: busy {share:.0%} of {where.span_s * 1e3:,.1f} ms", anchor="start")
