"""Engine messages as a page: what the engine was doing, its numbers, what to change; then what the log says of the start."""

from vramcast.asking.logged_run import LoggedRun
from vramcast.cli.pages.page import Page
from vramcast.planning.verdict import exit_code, headline
from vramcast.reading.engine_messages import Figure, Finding
from vramcast.units import MiB, gib


def engine_message_page(findings: tuple[Finding, ...]) -> Page:
    """The failures one by one, then the lines that only report."""
    page = Page()
    for finding in findings:
        if finding.failed:
            _failure(page, finding)
    reported = [finding for finding in findings if not finding.failed]
    if reported:
        page.heading("What the log says") if page.lines else page.line(("What the log says", "title"))
        page.table([row for finding in reported for row in _rows(finding)], styles=("", "number", "faint"), right=frozenset({1}))
    return page


def again_page(again: LoggedRun) -> Page:
    """The run asked again: the verdict, what suffices, one corrected line."""
    page = Page()
    fit, workload = again.forecast.fit, again.forecast.workload
    page.heading("The same run, asked again")
    page.line(f"  {again.forecast.model.id} on {workload['gpus']} x {workload['gpu']}, context {workload['context']:,} tokens")
    word = {"no": "DOES NOT FIT"}.get(fit.verdict, fit.verdict.upper())
    page.line("  ", (word, "bad" if exit_code(fit) else "good"), "  ", headline(fit))
    rows = [
        (_MEASURES[name], _size(name, own), _size(name, said), f"{said / own - 1:+.1%}")
        for name, own, said in again.beside
        if own
    ]
    if rows:
        page.table([("", "printed", "forecast", ""), *rows], styles=("", "number", "number", "faint"), right=frozenset({1, 2, 3}))
    for advice in again.forecast.advice:
        if advice.then_fits:
            page.line("  ", ("enough: ", "good"), (advice.change, "title"), (f"  {advice.costs}", "faint"))
    if again.corrected:
        page.heading("Corrected")
        page.line("  ", (again.corrected, "title"))
    return page


_MEASURES = {"weights": "weights", "kv_pool": "room for the cache", "cache_tokens": "tokens of cache"}


def _size(measure: str, value: float) -> str:
    return f"{value:,.0f}" if measure == "cache_tokens" else gib(round(value))


def _failure(page: Page, finding: Finding) -> None:
    if page.lines:
        page.blank()
    page.line((f"{finding.engine}: ", "bad"), (finding.what, "title"))
    page.line(("while ", "faint"), finding.moment)
    if finding.figures:
        page.blank()
        page.table([(f.name, shown(f)) for f in finding.figures], styles=("", "number"), right=frozenset({1}))
    page.heading("What to change")
    for advice in finding.advice:
        page.line("  ", advice)


def _rows(finding: Finding) -> list[tuple[str, str, str]]:
    return [(figure.name, shown(figure), f"{finding.engine}, {finding.moment}") for figure in finding.figures]


def shown(figure: Figure) -> str:
    """A figure with its unit; bytes of less than a MiB are written out."""
    if figure.unit == "bytes":
        return gib(round(figure.value)) if abs(figure.value) >= MiB else f"{figure.value:,.0f} B"
    return f"{figure.value:,.0f} {figure.unit}".rstrip()
