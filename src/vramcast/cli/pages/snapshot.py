"""A memory snapshot as people read it: the peak by category, fragmentation and its remedies, leaks, the largest origins."""

from vramcast.cli.pages.page import Page
from vramcast.tracing.snapshots.report import Origin, SnapshotReport
from vramcast.units import gib

_MOST_ORIGINS = 10
_WORTH_SAYING = 0.05  # of reserved memory


def snapshot_page(what: str, reading: SnapshotReport, *, terminal: bool | None = None) -> Page:
    """The page of one snapshot."""
    page = Page(terminal=terminal)
    page.line((what, "title"), (f"  device {reading.device}, {reading.actions:,} recorded actions", "faint"))
    _peak(page, reading)
    _fragmentation(page, reading)
    _leak(page, reading)
    page.heading("Largest at the peak")
    _origins(page, reading.top)
    return page


def _peak(page: Page, reading: SnapshotReport) -> None:
    when = f"action {reading.peak_at:,} of {reading.actions:,}" if reading.peak_at >= 0 else "before the first recorded action"
    page.heading(f"Peak: {gib(reading.peak_allocated)} allocated ({when}), {gib(reading.peak_reserved)} reserved")
    total = max(reading.peak_allocated, 1)
    rows = [(name, gib(size), f"{size / total:.1%}") for name, size in reading.categories]
    page.table(rows, styles=("", "number", "faint"), right=frozenset({1, 2}))
    for size in reading.out_of_memory:
        page.line("  ", ("out of memory", "bad"), f" when {gib(size)} more was asked for")


def _fragmentation(page: Page, reading: SnapshotReport) -> None:
    page.heading("At the end of the recording")
    rows = [
        ("allocated", gib(reading.allocated), ""),
        (
            "free, whole segments",
            gib(reading.whole_free),
            "given back when memory runs out, or by torch.cuda.empty_cache()",
        ),
        ("free, split segments", gib(reading.split_free), "fragmentation: something else lives in the same segment"),
        ("reserved", gib(reading.reserved), f"{reading.segments} segments, largest free block {gib(reading.largest_free)}"),
    ]
    page.table(rows, styles=("", "number", "faint"), right=frozenset({1}))
    if reading.expandable_saves > _WORTH_SAYING * reading.peak_reserved:
        page.line("  ", ("PYTORCH_ALLOC_CONF=expandable_segments:True", "good"), f" would save {gib(reading.expandable_saves)}")


def _leak(page: Page, reading: SnapshotReport) -> None:
    if reading.leak is None:
        return
    floors = " → ".join(gib(size) for size in reading.leak.floors[:8])
    page.heading("Memory grows from step to step: something seems to be kept")
    page.line("  ", ("after each step: ", "faint"), (floors, "warn"))
    _origins(page, reading.leak.origins)


def _origins(page: Page, origins: tuple[Origin, ...]) -> None:
    for origin in origins[:_MOST_ORIGINS]:
        where = origin.frames[0] if origin.frames else "(no Python stack was recorded)"
        page.line("  ", (gib(origin.bytes).rjust(12), "number"), f" {origin.count:>5} x  {origin.category:<21}",
                  page.fitted(where, used=46))  # fmt: skip
