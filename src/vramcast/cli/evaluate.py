"""``vramcast evaluate``: the program against measured runs, yours or the public corpus."""

import sys
from pathlib import Path

import click
import msgspec

from vramcast.cli.help.grouped import CONTEXT, GroupedCommand
from vramcast.cli.pages.page import Page
from vramcast.truth.evaluation import Evaluation, evaluate
from vramcast.truth.scoring import Point, Score, fit, macro, worst
from vramcast.units import gib, time_text

_BAD, _WARN = 0.10, 0.05


@click.command(
    cls=GroupedCommand,
    context_settings=CONTEXT,
    epilog="\b\nExamples:\n  vramcast evaluate runs.jsonl\n  vramcast evaluate runs.jsonl --group engine --worst 20 --json\n"
    "  vramcast evaluate new_rows.jsonl --first-look looks.jsonl    (before any rule is changed for them)",
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--group", "groups", multiple=True, help="Show errors by this key too: engine, version, source, kind, quant ...")
@click.option("--worst", "worst_rows", default=10, show_default=True, type=click.IntRange(0), help="How many worst rows to list.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object (every group, every unexpressed row).")
@click.option(
    "--first-look",
    "looks",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Add measured/forecast of these rows to FILE: what was said of them before a rule was changed in their view.",
)
def command(files: tuple[Path, ...], groups: tuple[str, ...], worst_rows: int, as_json: bool, looks: Path | None) -> int:
    """Score forecasts against measured rows: JSON lines of cases, public reports or kernel times, told apart row by row.

    A parquet file of kernel times is read too; of more than 100,000 rows, evenly spaced ones.
    """
    found = evaluate(files)
    if looks is not None:
        from vramcast.truth.first_look import add_looks

        added = add_looks(looks, found.points)
        click.echo(f"{added:,} first looks added to {looks}", err=True)
    if as_json:
        sys.stdout.write(msgspec.json.encode(found.report(worst_rows=worst_rows)).decode() + "\n")
        return 0
    _page(found, groups, worst_rows).show()
    return 0


def _page(found: Evaluation, groups: tuple[str, ...], worst_rows: int) -> Page:
    page = Page()
    page.line((f"{found.rows:,} rows", "title"), f"   {len(found.judgements):,} asked   {len(found.unexpressed):,} not expressed")
    tables = found.scores()
    _errors(page, "Errors by measure", [s for s in tables if s.group == "all"])
    for key in groups:
        _errors(page, f"Errors by {key}", [s for s in tables if s.group.startswith(f"{key}=")])
    _macro(page, found)
    _fit(page, found)
    _worst(page, worst(found.points, worst_rows))
    _unread(page, found)
    _unexpressed(page, found)
    return page


def _errors(page: Page, title: str, rows: list[Score]) -> None:
    if not rows:
        return
    page.heading(title)
    head = ("measure", "group", "rows", "median", "p90", "bias", "within 2%", "5%", "10%", "90% interval holds", "width")
    body = [
        (
            s.measure,
            s.group,
            str(s.n),
            _percent(s.median_error),
            _percent(s.p90_error),
            _percent(s.bias, sign=True),
            *(_percent(s.within.get(limit), digits=0) for limit in ("2", "5", "10")),
            _percent(s.interval_coverage, digits=0),
            _percent(s.interval_width),
        )
        for s in rows
    ]
    page.table([head, *body], styles=("title",), right=frozenset(range(2, 11)))


def _macro(page: Page, found: Evaluation) -> None:
    figures = macro(found.points)
    if figures:
        page.heading("Mean over sources of each source's errors")
        head = ("measure", "median", "p90", "sources")
        body = [(m, _percent(f["median_error"]), _percent(f["p90_error"]), f"{f['sources']:.0f}") for m, f in figures.items()]
        page.table([head, *body], styles=("title",), right=frozenset({1, 2, 3}))


def _fit(page: Page, found: Evaluation) -> None:
    counts = fit(found.judgements)
    if counts["oom"] or counts["ran"]:
        page.heading("Fit decisions")
        page.line(f"  runs that did not fit: {counts['oom_called']} of {counts['oom']} called no or tight")
        page.line(f"  runs that fitted: {counts['false_no']} of {counts['ran']} wrongly called no")


# Measures whose name says no unit of time or rate: shares of a peak.
_SHARES = frozenset({"mfu", "hfu"})
_TIMES = frozenset({"ttft", "tpot"})


def _amount(point: Point, value: float) -> str:
    """The figure in the unit of its measure: rates a second, shares of a peak, times (all kernel rows are), else sizes."""
    name = point.measure
    if "_per_s" in name:
        return f"{value:,.{0 if value >= 1000 else 1}f}/s"
    if name in _SHARES:
        return f"{value:.1%}"
    return time_text(value) if "backend" in point.keys or name in _TIMES or name.endswith("_s") else gib(value)


def _worst(page: Page, points: list[Point]) -> None:
    if points:
        page.heading("Worst rows")
        for p in points:
            style = "bad" if abs(p.error) > _BAD else "warn" if abs(p.error) > _WARN else "good"
            page.line(
                f"  {p.id}  ",
                (p.measure, "faint"),
                f"  {_amount(p, p.predicted)} for {_amount(p, p.measured)}  ",
                (f"{p.error:+.1%}", style),
            )


def _unread(page: Page, found: Evaluation) -> None:
    rows = [judged for judged in found.judgements if judged.unread]
    if rows:
        page.heading("Words that no rule reads (their rows get the bar of the unmeasured)")
        for judged in rows[:15]:
            page.line(f"  {judged.id}  ", (", ".join(judged.unread)[:100], "faint"))


def _unexpressed(page: Page, found: Evaluation) -> None:
    if found.unexpressed:
        page.heading("Not expressed")
        reasons: dict[str, int] = {}
        for row in found.unexpressed:
            reasons[row["reason"]] = reasons.get(row["reason"], 0) + 1
        for reason, count in sorted(reasons.items(), key=lambda item: -item[1])[:15]:
            page.line(f"  {count:4}  {reason[:100]}")


def _percent(value: float | None, *, digits: int = 1, sign: bool = False) -> str:
    if value is None:
        return "-"
    return f"{value:+.{digits}%}" if sign else f"{value:.{digits}%}"
