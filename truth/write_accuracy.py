"""The error bars and the accuracy page, made again from the measured corpus.

    python truth/write_accuracy.py            # intervals.json, then docs/accuracy.md
    python truth/write_accuracy.py --check    # exit 1 when docs/accuracy.md is not what it would write

Run it after any change of a rule: the page and the bars follow the program, and a test holds them together.
"""

import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from vramcast.truth import intervals
from vramcast.truth.calibration import Choice, Held, calibrate, choose, encode, fold_of_row, fold_of_source, held_out
from vramcast.truth.evaluation import Evaluation, evaluate
from vramcast.truth.scoring import Score, fit, macro, worst

HERE = Path(__file__).parent
CHOICES = HERE / "choices.json"
PAGE = HERE.parent / "docs" / "accuracy.md"
_NAMES = re.compile(r"'[^']*'|[\w.-]+/[\w.-]+(?= )")
WORST_ROWS = 25
FEWEST_OF_A_GROUP = 3
_INTRO = """# Accuracy

Every row of the measured corpus (`truth/`), forecast from its settings alone and set beside what was measured. Nobody types a
figure on this page: `python truth/write_accuracy.py` writes it, and the same tables come from

```
vramcast evaluate truth/*.jsonl --group engine --group source
```

An error is |forecast/measured - 1|. *Macro* columns are means over sources of each source's own median and p90, so that one large
table does not speak for everybody. Rows of quality C (rounded, unnamed counter, unknown length) are asked, not scored.
A 90 % interval is learned from cases (`vramcast/truth/calibration.py`); *rows* and *sources* say how often intervals hold figures
of rows, and of whole sources, that they were not made from.
"""


def corpus() -> Evaluation:
    """The committed rows beside their forecasts, from bundled models alone: the page must not depend on a cache or a network."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(HERE / "no-hub-cache")}
    return evaluate(sorted(HERE.glob("*.jsonl")))


def page(found: Evaluation) -> str:
    """The whole page as text."""
    scores = found.scores()
    parts = [_INTRO, f"{found.rows:,} rows, {len(found.judgements):,} of them asked, {len(found.unexpressed):,} not expressed.\n"]
    parts += ["## By measure\n", _measures(found, scores), _decisions(found)]
    for key, title in (("engine", "engine or framework"), ("kind", "kind of model"), ("method", "training method")):
        parts += [f"## By {title}\n", _groups(scores, key, 1)]
    for key, title in (("recompute", "recomputation"), ("parallel", "parallelism"), ("source", "source")):
        parts += [f"## By {title}\n", _groups(scores, key, FEWEST_OF_A_GROUP)]
    parts += [f"## The {WORST_ROWS} worst figures\n", _worst(found), "## Rows that cannot be asked\n", _unexpressed(found)]
    return "\n".join(parts)


def _measures(found: Evaluation, scores: list[Score]) -> str:
    over_sources, points = macro(found.points), list(found.points)
    choices = msgspec.json.decode(CHOICES.read_bytes(), type=dict[str, Choice])
    rows, sources = held_out(points, fold_of_row, choices), held_out(points, fold_of_source, choices)
    head = ("measure", "n", "median", "p90", "bias", "within 2 %", "5 %", "10 %", "macro median", "macro p90", "sources")
    bars = ("interval holds", "rows", "sources", "width")
    body = [
        (
            s.measure, str(s.n), *(_percent(v) for v in (s.median_error, s.p90_error)), _percent(s.bias, "+"),
            *(_percent(s.within.get(limit), digits=0) for limit in ("2", "5", "10")),
            *(_percent(over_sources.get(s.measure, {}).get(name)) for name in ("median_error", "p90_error")),
            f"{over_sources.get(s.measure, {}).get('sources', 0):.0f}",
            _percent(s.interval_coverage, digits=0), _held(rows, s.measure), _held(sources, s.measure),
            _percent(s.interval_width),
        )
        for s in scores
        if s.group == "all"
    ]  # fmt: skip
    return _table([(*head, *bars), *body])


def _decisions(found: Evaluation) -> str:
    counts = fit(found.judgements)
    return (
        f"Runs that did not fit: {counts['oom_called']} of {counts['oom']} called *no* or *tight*. "
        f"Runs that fitted: {counts['false_no']} of {counts['ran']} wrongly called *no*.\n"
    )


def _groups(scores: list[Score], key: str, fewest: int) -> str:
    head = (key, "measure", "n", "median", "p90", "bias", "within 5 %", "interval holds")
    chosen = [s for s in scores if s.group.startswith(f"{key}=") and s.n >= fewest]
    body = [
        (
            s.group.removeprefix(f"{key}="), s.measure, str(s.n), _percent(s.median_error), _percent(s.p90_error),
            _percent(s.bias, "+"), _percent(s.within.get("5"), digits=0), _percent(s.interval_coverage, digits=0),
        )
        for s in sorted(chosen, key=lambda s: (s.group, s.measure))
    ]  # fmt: skip
    return _table([head, *body])


def _worst(found: Evaluation) -> str:
    why = msgspec.json.decode((HERE / "explained.json").read_bytes(), type=dict[str, str])
    points = worst(found.points, WORST_ROWS)
    body = [(p.id, p.measure, _size(p.predicted), _size(p.measured), f"{p.error:+.0%}", why.get(p.id, "")) for p in points]
    return _table([("row", "measure", "forecast", "measured", "error", "explanation"), *body])


def _unexpressed(found: Evaluation) -> str:
    reasons: dict[str, list[str]] = defaultdict(list)
    for row in found.unexpressed:
        reasons[_NAMES.sub("...", re.split(": (?:did you mean|known):? ", row["reason"])[0])].append(row["id"])
    ordered = sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0]))
    return _table([("rows", "reason", "ids"), *((str(len(ids)), why[:160], ", ".join(_shown(ids))) for why, ids in ordered)])


def _shown(ids: list[str]) -> Iterator[str]:
    yield from ids[:6]
    if len(ids) > 6:
        yield f"and {len(ids) - 6} more"


def _held(held: dict[str, list[Held]], measure: str) -> str:
    values = held.get(measure, [])
    return _percent(sum(value.inside for value in values) / len(values), digits=0) if values else "-"


def _size(value: float) -> str:
    return f"{value / 2**30:,.2f} GiB" if abs(value) >= 2**20 else f"{value:,.0f}"


def _percent(value: float | None, sign: str = "", digits: int = 1) -> str:
    return "-" if value is None else f"{value:{sign}.{digits}%}"


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    head, *body = rows
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (head, *body)]
    return "\n".join([lines[0], "|" + " --- |" * len(head), *lines[1:], ""])


def main(arguments: list[str]) -> int:
    """Write or check; the exit code."""
    if "--check" in arguments:
        return int(PAGE.read_text("utf-8") != page(corpus()))
    intervals.TABLE.write_bytes(b"{}\n")  # bars are made from errors alone, whatever state the table was left in
    points = list(corpus().points)
    choices = choose(points)
    CHOICES.write_bytes(msgspec.json.format(msgspec.json.encode(choices)) + b"\n")
    intervals.TABLE.write_bytes(encode(calibrate(points, choices)))
    intervals.forget()
    PAGE.write_text(page(corpus()), "utf-8")
    sys.stdout.write(f"wrote {intervals.TABLE.name} and {PAGE.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
