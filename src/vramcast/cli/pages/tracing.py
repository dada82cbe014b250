"""A trace as people read it: the same ledger as a forecast, then what only a trace knows."""

import msgspec

from vramcast.cli.pages.answer import training_page
from vramcast.cli.pages.page import Page
from vramcast.ledger import Fit
from vramcast.planning.tracing.against import Change
from vramcast.planning.tracing.answer import Traced
from vramcast.planning.tracing.limits import TracedLimits
from vramcast.planning.tracing.remedies import Remedy
from vramcast.planning.verdict import headline
from vramcast.tracing.allocator.replay import Usage
from vramcast.tracing.reports.life import Stage
from vramcast.tracing.reports.report import TraceReport
from vramcast.tracing.request import TraceResult
from vramcast.units import MiB, gib

_MOST_TOLD = 5
_MOST_TOP = 10
_MOST_MODULES = 8
_WORTH_COMPARING = 32 * MiB


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace tells beside its answer: of less memory, of an earlier trace, of the stages of a job.

    ``under_capacity``: the run in the memory of --capacity; ``smallest_capacity_bytes``: the least in which it can run.
    """

    under_capacity: Usage | None
    smallest_capacity_bytes: int
    limits: TracedLimits | None = None
    remedies: tuple[Remedy, ...] = ()
    against: tuple[Change, ...] = ()
    life: tuple[Stage, ...] = ()


def tracing_page(traced: Traced, findings: Findings, *, terminal: bool | None = None) -> Page:
    """The page of one trace."""
    page = _opening(traced, terminal)
    _stages(page, findings.life)
    _against(page, findings.against)
    _beside(page, traced)
    _allocator(page, traced.reading, findings.under_capacity, findings.smallest_capacity_bytes)
    if findings.limits is not None:
        _limits(page, findings.limits)
    _remedies(page, findings.remedies)
    _top(page, traced.reading)
    _how(page, traced.result)
    return page


def _opening(traced: Traced, terminal: bool | None) -> Page:
    answer, result = traced.answer, traced.result
    if "script" not in answer.workload:
        return training_page(answer, terminal=terminal)
    page = Page(terminal=terminal)
    page.line((" ".join(answer.workload["script"])[:100], "title"))
    if result.error:
        page.line(("the script failed: ", "bad"), result.error)
        for line in result.told[-_MOST_TOLD:]:
            page.line(("  its error output: ", "faint"), line)
    _verdict(page, answer.fit, of_card=bool(answer.workload.get("gpu")))
    more = ": what comes later and is longer is not in it (--steps N)" if result.steps and not result.error else ""
    page.line(f"{result.steps} optimizer steps traced{more}")
    for note in result.notes:
        page.line(("note: ", "faint"), note)
    _files(page, result)
    page.heading(f"Memory of one card ({answer.worst.peak.name})")
    for term in answer.worst.terms:
        page.line("  ", (term.name.ljust(15), term.name), (gib(term.bytes).rjust(12), "number"))
    page.line("  ", ("needed".ljust(15), "title"), (gib(answer.worst.needed_bytes).rjust(12), "number"))
    return page


def _files(page: Page, result: TraceResult) -> None:
    """What the script wrote, the largest first."""
    if not result.written:
        return
    page.line(f"{result.written_files} files went into a scratch folder that is gone (--write-through: where the script says):")
    for path, size in result.written[:_MOST_TOLD]:
        page.line("  ", (gib(size).rjust(12), "number"), f"  {path}")


def _verdict(page: Page, fit: Fit, *, of_card: bool) -> None:
    """Whether it fits, where a card was named; why nothing tells, where nothing does."""
    word, style = {"fits": ("FITS", "good"), "tight": ("TIGHT", "warn"), "no": ("DOES NOT FIT", "bad")}.get(
        fit.verdict, ("UNKNOWN", "warn")
    )
    if fit.error or (of_card and fit.verdict != "unknown"):
        page.line((word, style), "  ", fit.error or headline(fit))


def _stages(page: Page, stages: tuple[Stage, ...]) -> None:
    """The peaks of a job's stages."""
    if not stages:
        return
    page.heading("The life of the job, as far as it was traced")
    rows = [(s.name, f"{s.times:,} x", gib(s.allocated_bytes), gib(s.reserved_bytes)) for s in stages]
    page.table([("", "", "allocated", "reserved"), *rows], styles=("", "faint", "number", "number"), right=frozenset({1, 2, 3}))


def _against(page: Page, changed: tuple[Change, ...]) -> None:
    """What differs from an earlier trace."""
    if not changed:
        return
    page.heading("Against the earlier trace")
    rows = [
        (c.name, gib(c.before_bytes), gib(c.after_bytes), ("+" if c.more_bytes >= 0 else "-") + gib(abs(c.more_bytes)))
        for c in changed
    ]
    page.table([("", "before", "now", "difference"), *rows], styles=("", "faint", "number", "number"), right=frozenset({1, 2, 3}))


def _beside(page: Page, traced: Traced) -> None:
    if traced.forecast is None:
        return
    page.heading("Beside the forecast of the same recipe")
    expected, found = traced.expected, traced.answer.worst
    rows = [("", "traced", "forecast", "")]
    rows += [(name, gib(a), gib(b), _difference(a, b)) for name, a, b in traced.beside]
    for counter in ("allocated", "reserved"):
        a, b = (getattr(r, f"{counter}_bytes") for r in (found, expected))
        rows.append((counter, gib(a), gib(b), _difference(a, b)))
    page.table(rows, styles=("", "number", "", "faint"), right=frozenset({1, 2}))


def _difference(traced: int, forecast: int) -> str:
    return f"forecast {forecast / traced - 1:+.1%}" if traced > _WORTH_COMPARING and forecast else ""


def _allocator(page: Page, reading: TraceReport, limited: Usage | None, smallest: int) -> None:
    usage = reading.usage
    page.heading("The allocator, replayed")
    rows = [
        ("allocated", gib(usage.peak_allocated_bytes), "peak of torch.cuda.max_memory_allocated"),
        (
            "reserved",
            gib(usage.peak_reserved_bytes),
            f"{gib(usage.fragmentation_bytes)} more than allocated: {usage.segments} segments",
        ),
    ]
    if reading.expandable is not None:
        with_it = gib(reading.expandable.peak_reserved_bytes)
        saves = reading.expandable_saves_bytes
        rows.append(("expandable", with_it, f"expandable_segments:True would save {gib(saves)}" if saves > 0 else "no saving"))
    rows.append(("least", gib(smallest), "the smallest pool in which every request is served, cache retries included"))
    if limited is not None:
        verdict = f"served with {limited.retries} cache retries" if limited.fits else _refusal(limited)
        rows.append(("capacity", gib(limited.peak_reserved_bytes), verdict))
    page.table(rows, styles=("", "number", "faint"), right=frozenset({1}))


def _refusal(limited: Usage) -> str:
    return f"out of memory: {gib(limited.failed_request_bytes)} asked for with {gib(limited.peak_allocated_bytes)} allocated"


def _remedies(page: Page, remedies: tuple[Remedy, ...]) -> None:
    if not remedies:
        return
    page.heading("What each remedy would save")
    rows = [(r.change, _saved(r.saves_allocated_bytes), _saved(r.saves_bytes), gib(r.reserved_bytes), r.how) for r in remedies]
    head = ("", "allocated", "reserved", "to", "")
    page.table([head, *rows], styles=("", "number", "good", "number", "faint"), right=frozenset({1, 2, 3}))


def _saved(size: int) -> str:
    return f"-{gib(size)}" if size >= 0 else f"+{gib(-size)}"


def _limits(page: Page, limits: TracedLimits) -> None:
    page.heading(f"Limits in {gib(limits.room_bytes)} for the allocator")
    longest = f"{limits.max_seq:,} tokens" if limits.max_seq else "none fits"
    batch = f"{limits.max_micro_batch:,}" if limits.max_micro_batch else "none fits"
    rows = [(f"longest sequence, micro-batch {limits.micro_batch}", longest)]
    rows += [(f"largest micro-batch, {limits.seq:,} tokens", batch)]
    page.table(rows, styles=("", "number"))
    if limits.reach:
        page.blank()
        tokens = [(f"{r.seq:,}", f"{r.micro_batch:,}", f"{r.seq * r.micro_batch:,}", gib(r.reserved_bytes)) for r in limits.reach]
        page.table(
            [("length", "largest micro-batch", "tokens a step", "reserved"), *tokens],
            styles=("", "number", "faint", "faint"),
            right=frozenset({0, 1, 2, 3}),
        )
    exact = all(check.predicted_bytes == check.traced_bytes for check in limits.checks)
    agreed = "to the byte" if exact else "up to library workspaces" if all(c.holds for c in limits.checks) else "in the end"
    points = ", ".join(f"{check.micro_batch} x {check.seq:,}" for check in limits.checks)
    page.line((f"from {len(limits.traced)} traces; predicted and then traced, agreeing {agreed}: {points}", "faint"))


def _top(page: Page, reading: TraceReport) -> None:
    page.heading("By module at the peak")
    total = max(reading.usage.peak_allocated_bytes, 1)
    rows = [(name, gib(size), f"{size / total:.1%}") for name, size in reading.by_module[:_MOST_MODULES]]
    page.table(rows, styles=("", "number", "faint"), right=frozenset({1, 2}))
    page.heading("Largest at the peak")
    for top in reading.top[:_MOST_TOP]:
        where = " ".join(filter(None, (top.module, top.op.removeprefix("aten."), f"({top.phase})", top.line)))
        page.line("  ", (gib(top.bytes).rjust(12), "number"), f" {top.count:>4} x  ", page.fitted(where, used=24))


def _how(page: Page, result: TraceResult) -> None:
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    kernels = ", ".join(f"{name} {count}" for name, count in result.attention.items()) or "none"
    page.blank()
    page.line((f"traced {result.operators:,} operators in {result.seconds:.1f} s on {result.backend} tensors", "faint"))
    page.line((f"attention kernels: {kernels}", "faint"))
    page.line((versions, "faint"))
