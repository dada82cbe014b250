"""The page of a trace: where the time went, what limits, kernels, shapes, collectives, steps and launches."""

from pathlib import Path

from vramcast.asking.trace_comparison import TraceComparison
from vramcast.cli.pages.page import Page
from vramcast.planning.attainable import attained
from vramcast.profiling.against import Change, Comparison
from vramcast.profiling.breakdown import GpuTime
from vramcast.profiling.operators import CollectiveRow, ShapeRow
from vramcast.profiling.ranks import RankRow, Ranks
from vramcast.profiling.report import Report
from vramcast.units import gib

_CAUSES = {
    "host": "waits for launches",
    "data": "waits for data",
    "synchronisation": "after a synchronisation",
    "dependency": "between launched kernels",
    "unknown": "cause not in the trace",
}
_MOST_RANKS = 24


def profile_page(report: Report, *, top: int, beside: Page | None = None) -> Page:
    """The page of one trace; ``beside`` is put after its steps."""
    page = Page()
    _head(page, report)
    _where(page, report.where)
    _findings(page, report)
    _steps(page, report)
    page.lines += beside.lines if beside else []
    _classes(page, report)
    _kernels(page, report, top)
    _shapes(page, report, top)
    _collectives(page, report.collectives[:top])
    _copies(page, report)
    _launching(page, report)
    _peers(page, report)
    return page


def duration(seconds: float) -> str:
    """Seconds in the unit that keeps three digits before the point."""
    for scale, unit in ((1, "s"), (1e3, "ms")):
        if abs(seconds) * scale >= 1:
            return f"{seconds * scale:,.{2 if seconds * scale < 100 else 1}f} {unit}"
    return f"{seconds * 1e6:,.1f} us"


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _head(page: Page, report: Report) -> None:
    origin, reading = report.origin, report.reading
    rank = f"rank {origin.rank}{f' of {origin.world_size}' if origin.world_size else ''}" if origin.rank is not None else ""
    about = ", ".join(part for part in (origin.tool, rank, f"GPU {report.device} {report.gpu}".strip()) if part)
    page.line((page.fitted(Path(report.file).name, used=0), "title"))
    _wrapped(page, "", f"{about}; {reading.events:,} events, {reading.bytes / 1e6:,.1f} MB", "", indent="")
    if reading.damage:
        page.line(("partly read: ", "warn"), f"{reading.damage}; the figures are of what came before")
    if reading.skipped:
        page.line((f"{reading.skipped:,} events of another form were skipped", "warn"))
    if len(report.devices) > 1:
        others = ", ".join(f"{d.index}: busy {_share(d.where.busy_s, d.where.span_s)}" for d in report.devices[:12])
        _wrapped(
            page, "", f"{len(report.devices)} GPUs in the file ({others}); the page is of GPU {report.device}", "", indent=""
        )


def _where(page: Page, where: GpuTime) -> None:
    page.heading(f"Where the GPU's time went ({duration(where.span_s)} from first work to last)")
    parts = (
        ("compute", where.compute_s, "activations", ""),
        ("communication, exposed", where.exposed_communication_s, "communication", _hidden(where)),
        ("memory copies, exposed", where.exposed_copies_s, "logits", _hidden_copies(where)),
        ("idle", where.idle_s, "free", ""),
    )
    page.bar([(style, round(s * 1e9)) for _, s, style, _ in parts[:3]], total=round(where.span_s * 1e9), label="")
    for name, seconds, style, note in parts:
        mark = ("■ ", style) if page.terminal else ""
        page.line("  ", mark, name.ljust(25), (duration(seconds).rjust(11), "number"), _share(seconds, where.span_s).rjust(8),
                  ("  " + note if note else "", "faint"))  # fmt: skip
    for cause, seconds in sorted(where.idle.items(), key=lambda item: -item[1]):
        if seconds:
            told = (f"{_CAUSES[cause]:<25}{duration(seconds):>11}{_share(seconds, where.span_s):>8}", "faint")
            page.line("    " + ("  " if page.terminal else ""), told)


def _hidden(where: GpuTime) -> str:
    if where.hidden_share is None:
        return ""
    return f"{where.hidden_share:.0%} of {duration(where.communication_s)} hidden"


def _hidden_copies(where: GpuTime) -> str:
    return f"of {duration(where.copies_s)}" if where.copies_s > where.exposed_copies_s else ""


def _findings(page: Page, report: Report) -> None:
    if not report.findings:
        return
    page.heading("What limits")
    for finding in report.findings:
        _wrapped(page, finding.limit.ljust(17), finding.seen, "title")
        _wrapped(page, "  try".ljust(17), finding.remedy, "faint")


def _wrapped(page: Page, label: str, text: str, style: str, *, indent: str = "  ") -> None:
    import textwrap

    lines = textwrap.wrap(text, max(40, page.width - len(label) - len(indent) - 1))
    page.line(indent, (label, style), lines[0])
    for line in lines[1:]:
        page.line(indent, " " * len(label), line)


def _steps(page: Page, report: Report) -> None:
    if not report.steps:
        return
    page.heading("Steps")
    header = ("step", "host", "GPU window", "compute", "comm.", "exposed", "idle")
    rows = [
        (
            str(s.number),
            duration(s.host_s),
            duration(s.gpu_s),
            duration(s.compute_s),
            duration(s.communication_s),
            duration(s.exposed_communication_s),
            duration(s.idle_s),
        )
        for s in report.steps[:12]
    ]
    page.table([header, *rows], styles=("title",), right=frozenset(range(7)))
    if len(report.steps) > 12:
        page.line("  ", (f"and {len(report.steps) - 12} more (--json lists them)", "faint"))


def _classes(page: Page, report: Report) -> None:
    share = report.matrix_share
    page.heading("Kernels by class" + (f" (tensor cores: at least {share:.0%} of the compute time)" if share is not None else ""))
    header = ("class", "time", "share", "kernels", "on tensor cores")
    rows = [
        (
            row.name,
            duration(row.seconds),
            f"{row.share:.1%}",
            f"{row.kernels:,}",
            f"{row.matrix_share:.0%}" if row.matrix_share else "-",
        )
        for row in report.classes
    ]
    page.table([header, *rows], styles=("title", "number"), right=frozenset({1, 2, 3, 4}))


def _kernels(page: Page, report: Report, top: int) -> None:
    page.heading("Kernels that take most time")
    rows = [
        (duration(k.seconds), f"{k.share:.1%}", f"{k.calls:,} x", duration(k.mean_s), "T" if k.matrix_units else " ",
         page.fitted(k.name, used=48))
        for k in report.kernels[:top]
    ]  # fmt: skip
    page.table(rows, styles=("number", "", "faint", "", "good"), right=frozenset({0, 1, 2, 3}))


def _attained(page: Page, shapes: tuple[ShapeRow, ...]) -> None:
    """What the kernels reach of their laws, in one line by kind."""
    told = [(kind, share) for kind in ("GEMM", "attention") if (share := attained(shapes, kind)) is not None]
    if told:
        text = ", ".join(f"{kind} {share:.0%}" for kind, share in told)
        page.line("  ", (f"of what such kernels reach alone on this card: {text}", "faint"))


def _arithmetic(page: Page, report: Report) -> None:
    """All FLOPs found, over the span."""
    if (found := report.arithmetic) is not None:
        share = f", {found.peak_share:.1%} of what the card could" if found.peak_share is not None else ""
        text = f"{found.flops / 1e12:,.2f} TFLOP in all: {found.flops_per_s / 1e12:,.1f} TFLOP/s over the whole span{share}"
        page.line("  ", (text, "faint"))


def _shapes(page: Page, report: Report, top: int) -> None:
    every = report.shapes
    shapes = every[:top]
    if not shapes:
        return
    page.heading("Matmuls (m x n x k) and attentions (batch x heads, queries x keys, head size)")
    _arithmetic(page, report)
    _attained(page, every)
    law = any(s.attainable_s for s in shapes)
    header = ("shape", "type", "calls", "each", "TFLOP/s", "of peak", *(("alone",) if law else ()))
    rows = [
        (
            shape_text(s),
            s.dtype,
            f"{s.calls:,}",
            duration(s.seconds / s.calls),
            f"{s.flops_per_s / 1e12:,.1f}",
            f"{s.peak_share:.0%}" if s.peak_share is not None else "-",
            *((_attainable(s),) if law else ()),
        )
        for s in shapes
    ]
    page.table([header, *rows], styles=("title", "", "faint", "", "number", "number"), right=frozenset({2, 3, 4, 5, 6}))


def _attainable(shape: ShapeRow) -> str:
    each = shape.seconds / shape.calls
    return f"{duration(shape.attainable_s)} {shape.attainable_s / each:.0%}" if shape.attainable_s else "-"


def shape_text(shape: ShapeRow) -> str:
    """The shape as people write it."""
    if shape.kind == "GEMM":
        batch, m, n, k = shape.shape
        return f"{f'{batch} x ' if batch > 1 else ''}{m} x {n} x {k}"
    batch, heads, queries, keys, size = shape.shape
    return f"{batch} x {heads}, {queries} x {keys}, {size}{' causal' if shape.causal else ''}"


def _collectives(page: Page, rows: tuple[CollectiveRow, ...]) -> None:
    if not rows:
        return
    page.heading("Collectives (a slow call holds its wait for other ranks; bus GB/s is of the fastest)")
    law = any(row.attainable_s for row in rows)
    header = ("", "ranks", "message", "calls", "total", "fastest", "bus GB/s", *(("alone",) if law else ()))
    cells = [
        (
            page.fitted(row.name, used=max(58, page.width - 24)),
            str(row.ranks or "-"),
            gib(row.bytes, 2) if row.bytes else "-",
            f"{row.calls:,}",
            duration(row.seconds),
            duration(row.fastest_s),
            f"{row.bus_bytes_per_s / 1e9:,.1f}" if row.bus_bytes_per_s else "-",
            *((duration(row.attainable_s) if row.attainable_s else "-",) if law else ()),
        )
        for row in rows
    ]
    page.table([header, *cells], styles=("title", "", "", "faint", "number"), right=frozenset(range(1, 8)))


def _copies(page: Page, report: Report) -> None:
    if not report.copies:
        return
    page.heading("Memory copies")
    rows = [
        (
            row.name[:40],
            f"{row.calls:,} x",
            duration(row.seconds),
            gib(row.bytes) if row.bytes else "-",
            f"{row.bytes_per_s / 1e9:,.1f} GB/s" if row.bytes_per_s else "-",
        )
        for row in report.copies[:6]
    ]
    page.table(rows, styles=("title", "faint", "number"), right=frozenset({1, 2, 3, 4}))


def _launching(page: Page, report: Report) -> None:
    told = report.launching
    page.heading("Launches")
    text = f"{told.kernels:,} kernels, mean {duration(told.mean_kernel_s)}, {told.short_share:.0%} under 10 us"
    if told.call_s is not None and told.delay_s is not None:
        text += f"; a launch takes {duration(told.call_s)}, median wait until start {duration(told.delay_s)}"
    if told.empty_queue_share is not None:
        text += f"; nothing queued {told.empty_queue_share:.0%} of the time"
    if told.graph_kernels:
        text += f"; {told.graph_kernels:,} kernels come from CUDA graphs"
    _wrapped(page, "", text, "")
    bound = [row for row in report.ranges if row.launch_bound][:8]
    if bound:
        page.line("  ", ("launch-bound ranges (more host than GPU time, short kernels):", "warn"))
        rows = [(page.fitted(row.name, used=56), duration(row.host_s), duration(row.gpu_s), f"{row.kernels:,}") for row in bound]
        page.table([("range", "host", "GPU", "kernels"), *rows], styles=("title",), right=frozenset({1, 2, 3}))


def _peers(page: Page, report: Report) -> None:
    page.heading("The same under other tools' definitions (--json has all their figures), ms")
    rows: list[tuple[str, ...]] = [("", "compute", "exposed comm.", "idle", "total", "overlap")]
    if h := report.hta:
        overlap = f"{h.overlap_percent:.2f}%" if h.overlap_percent is not None else "-"
        cells = (f"{us / 1e3:,.3f}" for us in (h.compute_us, h.idle_us, h.kernel_time_us))
        compute, idle, total = cells
        rows.append(("HTA (last step dropped)", compute, "-", idle, total, overlap))
    if t := report.tracelens:
        figures = (t.computation_time, t.exposed_comm_time, t.idle_time, t.total_time)
        rows.append(("TraceLens", *(f"{ms:,.3f}" for ms in figures), "-"))
    page.table(rows, styles=("title",), right=frozenset({1, 2, 3, 4, 5}))


def beside_page(found: TraceComparison) -> Page:
    """A traced step beside its forecast."""
    page = Page()
    page.heading(f"A step beside the forecast of {found.model} (mean of {found.steps})")
    rows = [("", "trace", "forecast", "trace / forecast")]
    whole = ("whole step", found.trace_step_s, found.forecast_step_s)
    for name, ours, theirs in (whole, *((p.name, p.trace_s, p.forecast_s) for p in found.parts)):
        rows.append((name, duration(ours), duration(theirs), f"{ours / theirs:.2f}" if ours and theirs else "-"))
    page.table(rows, styles=("title", "number"), right=frozenset({1, 2, 3}))
    page.line("  ", f"MFU {found.trace_mfu:.1%} in the trace, {found.forecast_mfu:.1%} in the forecast")
    if found.doubt:
        _wrapped(page, "! ", found.doubt, "warn")
    return page


def ranks_page(ranks: Ranks) -> Page:
    """The page of a folder of ranks."""
    page = Page()
    page.line((ranks.folder, "title"), f"  {len(ranks.ranks)} ranks")
    for file, why in ranks.unread[:3]:
        page.line(("not read: ", "warn"), page.fitted(f"{Path(file).name}: {why}", used=10))
    if len(ranks.unread) > 3:
        page.line((f"and {len(ranks.unread) - 3} more files were not read (--json lists them)", "warn"))
    page.heading("Ranks")
    page.table(_rank_rows(ranks), styles=("title",), right=frozenset(range(1, 8)))
    if len(ranks.ranks) > _MOST_RANKS:
        page.line("  ", (f"the {_MOST_RANKS} that wait least of {len(ranks.ranks)} (--json lists all)", "faint"))
    page.heading("Stragglers")
    _wrapped(page, "", _straggler(ranks), "")
    page.line("  ", f"compute time: the longest is {ranks.compute_spread:.1%} above the median")
    return page


def _rank_rows(ranks: Ranks) -> list[tuple[str, ...]]:
    chosen = ranks.ranks
    if len(chosen) > _MOST_RANKS:
        chosen = tuple(sorted(chosen, key=lambda r: r.wait_s or 0.0)[:_MOST_RANKS])
    header = ("rank", "step", "span", "compute", "comm.", "exposed", "idle", "waits")
    return [header, *(_rank_cells(row, slowest=row.rank == ranks.slowest) for row in chosen)]


def _rank_cells(row: RankRow, *, slowest: bool) -> tuple[str, ...]:
    where = row.where
    seconds = (where.span_s, where.compute_s, where.communication_s, where.exposed_communication_s, where.idle_s)
    return (
        f"{row.rank}{' slowest' if slowest else ''}",
        duration(row.step_s) if row.step_s is not None else "-",
        *map(duration, seconds),
        duration(row.wait_s) if row.wait_s is not None else "-",
    )


def _straggler(ranks: Ranks) -> str:
    if ranks.slowest is None:
        return "no collectives that could be matched between ranks: waiting cannot be told"
    row = next(r for r in ranks.ranks if r.rank == ranks.slowest)
    return (
        f"rank {ranks.slowest} waits least in collectives ({duration(row.wait_s or 0.0)}): the others wait for it; "
        f"the middle rank loses {duration(ranks.lost_s or 0.0)}"
    )


def comparison_page(found: Comparison) -> Page:
    """The page of two traces side by side."""
    page = Page()
    page.line(("before  ", "faint"), (page.fitted(Path(found.before).name, used=8), "title"))
    page.line(("after   ", "faint"), (page.fitted(Path(found.after).name, used=8), "title"))
    unit = "per step" if found.per_step else "of the whole trace"
    before, after = (duration(s or 0.0) for s in (found.total.before_s, found.total.after_s))
    page.line(f"{unit}: {before} before, {after} after  ", (_faster(found.speedup), "title"))
    for title, rows in (("Parts of the time", found.parts), ("Kernels by class", found.classes),
                        ("Kernels", found.kernels), ("Collectives", found.collectives)):  # fmt: skip
        shown = [row for row in rows if row.before_s or row.after_s]
        if shown:
            page.heading(title)
            page.table([("", "before", "after", "difference"), *(_change(page, row) for row in shown)],
                       styles=("title", "", "", "number"), right=frozenset({1, 2, 3}))  # fmt: skip
    return page


def _faster(speedup: float) -> str:
    if not speedup:
        return ""
    return f"{speedup:.2f} x as fast" if speedup >= 1 else f"{1 / speedup:.2f} x as slow"


def _change(page: Page, row: Change) -> tuple[str, ...]:
    told = [duration(s) if s is not None else "-" for s in (row.before_s, row.after_s)]
    sign = "+" if row.difference_s >= 0 else "-"
    return (page.fitted(row.what, used=46), *told, f"{sign}{duration(abs(row.difference_s))}")
