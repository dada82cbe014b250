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

import draw_accuracy
import msgspec

from vramcast.truth import bars
from vramcast.truth.calibration import Choice, HeldOut, calibrate, choose, encode, fold_of_row, fold_of_source, held_out
from vramcast.truth.evaluation import Evaluation, evaluate
from vramcast.truth.first_look import held_groups, looked_cells, read_looks
from vramcast.truth.scales import OF_A_NEW_KIND, OF_A_STEP
from vramcast.truth.scoring import Point, Score, fit, macro, quantile, worst

HERE = Path(__file__).parent
CHOICES = HERE / "choices.json"
LOOKS = HERE / "first_look.jsonl"
SWEEP = HERE.parent / "benchmarks" / "tracing" / "sweep.jsonl"
TRACED_WITHIN = 0.02  # of allocated memory, what the sweep asks of a cell
PAGE = HERE.parent / "docs" / "accuracy.md"
_NAMES = re.compile(r"'[^']*'|[\w.-]+/[\w.-]+(?= )")
WORST_ROWS = 25
FEWEST_OF_A_GROUP = 3
_INTRO = (HERE / "accuracy_intro.md").read_text("utf-8")
_LOOKED = """Measured/forecast of rows that nobody had tuned on (`truth/first_look.jsonl`; each line says the release). A bar is
made from groups, each weighing the same, and one more that is still to come.
"""


def corpus() -> Evaluation:
    """The committed rows beside their forecasts, from bundled models alone: the page must not depend on a cache or a network."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(HERE / "no-hub-cache")}
    return evaluate(sorted(file for file in HERE.glob("*.jsonl") if not file.name.endswith("first_look.jsonl")))


def page(found: Evaluation) -> str:
    """The whole page as text."""
    scores = found.scores()
    parts = [_INTRO, f"{found.rows:,} rows, {len(found.judgements):,} of them asked, {len(found.unexpressed):,} not expressed.\n"]
    parts += ["## First look\n", _LOOKED, _first_look()]
    parts += ["## Tuned rows, by measure\n", _measures(found, scores), _decisions(found)]
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


def _first_look() -> str:
    looks = read_looks(LOOKS)
    head = (
        "measure",
        "combination",
        "rows",
        "groups",
        "sources",
        "median error",
        "p90",
        "held, groups",
        "held, rows",
        "width",
        "GiB",
    )
    held, body = held_groups(looks), []
    for measure, seen in sorted({(look.measure, look.seen) for look in looks}, key=lambda kind: (kind[0], not kind[1])):
        own = [look for look in looks if (look.measure, look.seen) == (measure, seen)]
        errors = sorted(abs(1 / look.ratio - 1) for look in own)
        groups = [group for name in bars_of(measure) for group in held.get((name, seen), [])]
        rows = sum(g.rows for g in groups)
        body.append((
            measure, "seen" if seen else "new", str(len(own)), str(len({look.group for look in own})),
            str(len({look.source for look in own})), _percent(quantile(errors, 0.5)), _percent(quantile(errors, 0.9)),
            _percent(sum(g.share for g in groups) / len(groups), digits=0) if groups else "-",
            _percent(sum(g.share * g.rows for g in groups) / rows, digits=0) if groups else "-",
            _percent(sorted(g.width for g in groups)[len(groups) // 2], digits=0) if groups else "-",
            _gib(sorted(g.size for g in groups)[len(groups) // 2]) if groups else "-",
        ))  # fmt: skip
    return _table([head, *body])


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


def bars_of(measure: str) -> tuple[str, ...]:
    """The names under which bars of a measure are kept: its own, and those of a training step or of new kinds of model."""
    return measure, *(table[measure] for table in (OF_A_STEP, OF_A_NEW_KIND) if measure in table)


def _held(held: dict[str, list[HeldOut]], measure: str) -> str:
    values = [value for name in bars_of(measure) for value in held.get(name, [])]
    return _percent(sum(value.inside for value in values) / len(values), digits=0) if values else "-"


def _combinations(points: Iterable[Point]) -> bytes:
    """Model families by engine or framework that stand in the corpus or were traced: what a question was measured by.

    A traced family counts under a framework only where that was measured with another family: the trace runs the framework's
    own step over the class's own code, and measured runs speak for what a trace does not see (context, libraries, the host).
    """
    found: dict[str, set[str]] = defaultdict(set)
    for point in points:
        if point.keys.get("family") and not point.keys.get("novel"):
            found[point.keys["engine"]].add(point.keys["family"])
    traced = _traced()
    for engine in found:
        found[engine] |= traced["hf_trainer" if engine in bars.TRAINERS else engine]
    lines = [msgspec.json.encode(e) + b": " + msgspec.json.encode(sorted(f)) for e, f in sorted(found.items())]
    return b"{\n" + b",\n".join(lines) + b"\n}\n"


def _traced() -> dict[str, set[str]]:
    """Families by framework whose traced cells (``benchmarks/tracing/sweep.py``) the forecast meets in nine of ten."""
    errors: dict[tuple[str, str], list[float]] = defaultdict(list)
    for line in SWEEP.read_bytes().splitlines():
        row = msgspec.json.decode(line)
        if row.get("traced") and row.get("forecast") and not row["error"]:
            errors[row["cell"]["framework"], row["cell"]["kind"]].append(abs(row["forecast"][0] / row["traced"][0] - 1))
    met: dict[str, set[str]] = defaultdict(set)
    for (framework, kind), of_cells in errors.items():
        if sum(error <= TRACED_WITHIN for error in of_cells) >= bars.COVERAGE * len(of_cells):
            met[framework].add(kind)
    return met


def _size(value: float) -> str:
    return f"{value / 2**30:,.2f} GiB" if abs(value) >= 2**20 else f"{value:,.0f}"


def _gib(size: float) -> str:
    """Bytes as GiB, of a measure whose errors are bytes; the others' looks kept no bytes."""
    return f"{size / 2**30:.1f}" if size else "-"


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
    table, bars.TABLE = bars.TABLE, bars.TABLE.with_name("none.json")  # bars are made from errors alone: no table is read
    points = list(corpus().points)
    bars.TABLE = table
    bars.SEEN.write_bytes(_combinations(points))
    choices = choose(points)
    CHOICES.write_bytes(msgspec.json.format(msgspec.json.encode(choices)) + b"\n")
    bars.TABLE.write_bytes(encode(looked_cells(read_looks(LOOKS)) | calibrate(points, choices)))
    bars.forget()
    PAGE.write_text(page(corpus()), "utf-8")
    draw_accuracy.main()
    sys.stdout.write(f"wrote {bars.TABLE.name} and {PAGE.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
