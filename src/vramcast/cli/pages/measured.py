"""A measurement as a page: forecast, trace and measured on adjacent lines."""

from typing import Any

from vramcast.cli.pages.page import Page
from vramcast.measuring.request import Measurement
from vramcast.units import gib

_OUTCOMES = {"ran": ("RAN", "good"), "oom": ("OUT OF MEMORY", "bad"), "failed": ("FAILED", "bad")}
_MEMORY = ("allocated", "active", "reserved", "device", "context")
_TIMES = (("step_s", "s per step"), ("ttft_s", "s to the first token"), ("tpot_s", "s per further token"), ("run_s", "s in all"))


def measured_page(found: Measurement, forecast: dict[str, Any] | None, trace: dict[str, int] | None, *, name: str) -> Page:
    """What was measured, beside the forecast and the trace where there are such."""
    page = Page()
    word, style = _OUTCOMES[found.outcome]
    page.line((name, "title"), f"  on {found.gpu or 'this machine'}")
    page.line((word, style), f"  {found.message}" if found.message else "")
    _memory(page, found, forecast or {}, trace or {})
    _ranks(page, found)
    times = [(words, f"{found.figures[key]:.4g}") for key, words in _TIMES if key in found.figures]
    if times:
        page.heading("Time")
        page.table(times, styles=("", "number"))
    if "tokens_per_s" in found.figures:
        page.line("  tokens per second     ", (f"{found.figures['tokens_per_s']:,.0f}", "number"))
    page.blank()
    page.line((", ".join(f"{k} {v}" for k, v in found.versions.items()), "faint"))
    return page


def _memory(page: Page, found: Measurement, forecast: dict[str, Any], trace: dict[str, int]) -> None:
    names = [name for name in _MEMORY if name in found.figures or f"{name}_bytes" in forecast]
    if not names:
        return
    page.heading("Memory" if set(names) & set(found.figures) else "Memory (forecast: a processor has no counters)")
    rows = [("", "measured", "forecast", "", "traced", "")]
    for name in names:
        measured, said, seen = found.figures.get(name), forecast.get(f"{name}_bytes"), trace.get(name)
        rows.append((name, _size(measured), _size(said), _part(said, measured), _size(seen), _part(seen, measured)))
    page.table(rows, styles=("", "number", "", "faint", "", "faint"), right=frozenset({1, 2, 4}))
    if found.figures.get("retries"):
        page.line(f"  {found.figures['retries']:.0f} requests were served only after cached segments were given back")


def _ranks(page: Page, found: Measurement) -> None:
    sizes = [figures["allocated"] for figures in found.ranks if "allocated" in figures]
    if sizes:
        page.line(f"  {len(found.ranks)} ranks: the one above holds most; allocated from {gib(min(sizes))} to {gib(max(sizes))}")


def _size(size: float | None) -> str:
    return "" if size is None else gib(size)


def _part(said: float | None, measured: float | None) -> str:
    return f"{said / measured - 1:+.1%}" if said and measured else ""
