"""Learns the error bars of a training step's time (``src/vramcast/truth/step_intervals.json``) and prints what they hold.

    python truth/write_step_bars.py            (a minute)
    python truth/write_step_bars.py --score    (prints, writes nothing)

From first looks alone: every row of ``speed/training_steps.jsonl`` and ``community_training.jsonl`` was asked before a rule was
changed for it (``speed_first_look.jsonl``; ``step_look_rows.json`` names the row of each look that does not name it itself).
Widths are the most probable ones under Student's t with four degrees of freedom, every group (one source, one model family)
alike: one run that is 29 times off does not set them. The range of errors in their unit is the shortest that holds the share
of groups, and one more to come, under which sources left out, weights and range made without them, are held as promised.
"""

import json
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

import msgspec

from vramcast.speed.training.unknowns import Unknown, What, unknowns
from vramcast.truth.bars import COVERAGE
from vramcast.truth.first_look import read_looks, shortest
from vramcast.truth.judgement import Unexpressed
from vramcast.truth.rows import training_speed as rows
from vramcast.truth.step_bars import STEP_TABLE, StepBars

HERE = Path(__file__).parent
LOOKS, ROW_OF_LOOK = HERE / "speed_first_look.jsonl", HERE / "step_look_rows.json"
FILES = (HERE / "community_training.jsonl", HERE / "speed" / "training_steps.jsonl")
WHATS: tuple[What, ...] = ("experts", "launches", "few_runs")
_FREEDOM, _LIKELY, _PULL = 4.0, 0.22, 0.02  # degrees of freedom; a width before any look, and how it pulls (in logarithms)
_SHARES, _LEAST, _TOLERANCE = tuple(i / 100 for i in range(84, 97)), 0.85, 0.02


class Looked(NamedTuple):
    """One first look: log(measured/forecast), what was not known of it, and who says so."""

    id: str
    error: float
    found: tuple[Unknown, ...]
    group: str
    source: str
    framework: str


def looked() -> list[Looked]:
    """Every first look of a step whose row can be asked."""
    asked = {row["id"]: row for file in FILES for row in map(json.loads, file.read_text().splitlines())}
    looks = [look for look in read_looks(LOOKS) if look.measure == "step_s"]
    names = json.loads(ROW_OF_LOOK.read_text())
    found = []
    for look, name in zip(looks, [*names, *(look.id for look in looks[len(names) :])], strict=True):
        try:
            speed, model = rows.forecast_of(row := rows.whole_row(asked[name]))
        except Unexpressed as error:
            sys.stderr.write(f"{name}: {error}\n")
            continue
        of = unknowns(speed, model, rows.card_of(row))
        found.append(Looked(name, math.log(look.ratio), of, look.group, look.source, speed.job.framework))
    return found


def learned(looks: Sequence[Looked], share: float) -> StepBars:
    """The bars of these looks."""
    weights = _weights(looks)
    widths = _likeliest(looks, weights)
    bars = StepBars(base=widths[0], widths=dict(zip(WHATS, widths[1:], strict=True)), low=0, high=0, cases=len(looks), groups=0)
    cases = sorted((look.error / bars.unit(look.found), weight) for look, weight in zip(looks, weights, strict=True))
    groups = len({look.group for look in looks})
    low, high = shortest(cases, min(groups, share * (groups + 1)) - 1e-9)
    return msgspec.structs.replace(bars, low=low, high=high, groups=groups)


def _weights(looks: Sequence[Looked]) -> list[float]:
    sizes = Counter(look.group for look in looks)
    return [1 / sizes[look.group] for look in looks]


def _likeliest(looks: Sequence[Looked], weights: Sequence[float]) -> list[float]:
    """Base and widths that make these errors most probable, found one after another in steps of 2 %."""
    shares = [[sum(one.share for one in look.found if one.what == what) for what in WHATS] for look in looks]

    def cost(widths: list[float]) -> float:
        total = _PULL * sum((math.log(width / _LIKELY)) ** 2 for width in widths)
        for look, of, weight in zip(looks, shares, weights, strict=True):
            unit = math.hypot(widths[0], *(width * share for width, share in zip(widths[1:], of, strict=True)))
            total += weight * (math.log(unit) + (_FREEDOM + 1) / 2 * math.log1p((look.error / unit) ** 2 / _FREEDOM))
        return total

    return descended([_LIKELY] * (1 + len(WHATS)), cost)


def descended(values: list[float], cost: Callable[[list[float]], float]) -> list[float]:
    """The values, each made larger or smaller while that costs less: by a quarter, then by 2 %."""
    least = cost(values)
    for step in (1.25, 1.02):
        while True:
            before = least
            for place in range(len(values)):
                for factor in (step, 1 / step):
                    while (tried := cost(changed := [v * factor if i == place else v for i, v in enumerate(values)])) < least:
                        values, least = changed, tried
            if before - least < 1e-6:
                break
    return values


class Held(NamedTuple):
    """A group under bars made without its source: the share of its rows that they hold, how many, and their width."""

    group: str
    share: float
    rows: int
    width: float
    looks: list[Looked]


def left_out(looks: Sequence[Looked], share: float) -> list[Held]:
    """Every group under bars made without its source."""
    found = []
    for source in sorted({look.source for look in looks}):
        bars, groups = learned([look for look in looks if look.source != source], share), defaultdict(list)
        for look in looks:
            if look.source == source:
                groups[look.group].append(look)
        for group, own in groups.items():
            ends = [bars.ends(look.found) for look in own]
            inside = mean(low <= math.exp(look.error) <= high for look, (low, high) in zip(own, ends, strict=True))
            found.append(Held(group, inside, len(own), median(high - low for low, high in ends), own))
    return found


def promised(looks: Sequence[Looked]) -> tuple[StepBars, list[Held]]:
    """The bars under the smallest share that holds what they promise of sources left out, and those."""
    for share in _SHARES:
        held = left_out(looks, share)
        by_group, by_row = coverage(held)
        if (by_group + by_row) / 2 >= COVERAGE - _TOLERANCE and min(by_group, by_row) >= _LEAST:
            break
    return learned(looks, share), held


def coverage(held: Iterable[Held]) -> tuple[float, float]:
    """Share of groups and of rows held."""
    held = list(held)
    return mean(g.share for g in held), sum(g.share * g.rows for g in held) / sum(g.rows for g in held)


def report(bars: StepBars, held: list[Held]) -> None:
    """What the bars are, and what they hold, by what is not known and by framework."""
    sys.stdout.write(f"base {bars.base:.3f}, " + ", ".join(f"{what} {width:.3f}" for what, width in bars.widths.items()) + "\n")
    sys.stdout.write(f"errors in this unit {bars.low:+.2f} to {bars.high:+.2f}\n")
    sys.stdout.write("\n| looks | groups | rows | held, groups | held, rows | width |\n|---|---|---|---|---|---|\n")
    kinds: dict[str, Callable[[Held], bool]] = {"all": lambda g: True, "nothing unknown": lambda g: not _whats(g)}
    kinds |= {what: lambda g, what=what: what in _whats(g) for what in WHATS}
    frameworks = sorted({g.looks[0].framework for g in held})
    kinds |= {f"framework {name}": lambda g, name=name: g.looks[0].framework == name for name in frameworks}
    for name, belongs in kinds.items():
        if own := [group for group in held if belongs(group)]:
            by_group, by_row = coverage(own)
            width = median(g.width for g in own)
            sys.stdout.write(
                f"| {name} | {len(own)} | {sum(g.rows for g in own)} | {by_group:.0%} | {by_row:.0%} | {width:.0%} |\n"
            )


def _whats(group: Held) -> set[str]:
    return {one.what for look in group.looks for one in look.found}


def main() -> int:
    """Learn, print, write."""
    looks = looked()
    bars, held = promised(looks)
    report(bars, held)
    if "--score" not in sys.argv[1:]:
        rounded = {name: round(getattr(bars, name), 4) for name in ("base", "low", "high")}
        bars = msgspec.structs.replace(bars, widths={what: round(width, 4) for what, width in bars.widths.items()}, **rounded)
        STEP_TABLE.write_bytes(msgspec.json.format(msgspec.json.encode(bars), indent=1) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
