"""First looks: what the program said of measured rows before anyone looked at them; the honest source of error bars.

Residuals of rows that a rule was built on say nothing of new ones, however the folds are cut. ``truth/first_look.jsonl`` keeps
measured/forecast of rows that nobody had tuned on, with the release that said it; lines are added, never changed.

The unit of exchange is the group (one source, one model family), not the row: rows of one group err together. A bar is the
conformal range of a two-layer hierarchy: every group weighs the same, and the group that is still to come weighs as much as one
of those at hand (Dunn, Wasserman and Ramdas, "Distribution-free prediction sets for two-layer hierarchical models", 2022, the
pooled estimate). Per measure the share that the range holds is the smallest under which groups left out, and their rows, are
held as often as promised.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import NormalDist

import msgspec

from vramcast.errors import QuestionError
from vramcast.truth.bars import COVERAGE, PROBABILITIES, Cell, Combination, first_look_names
from vramcast.truth.calibration import end_of, error_of, width_of
from vramcast.truth.scales import IN_BYTES, OF_A_STEP, bar_name
from vramcast.truth.scoring import Point

FEWEST_GROUPS = 9
"""With fewer groups the one to come weighs more than a tenth, and no finite range holds nine tenths."""

_COUNTERS = frozenset({"allocated", "reserved", "device", "static", "total"})
POOLED = dict.fromkeys(_COUNTERS, _COUNTERS) | dict.fromkeys(OF_A_STEP.values(), frozenset(OF_A_STEP.values()))
"""Measures whose errors have the same causes speak for each other: what a rule missed, every counter of memory shows."""

SHARES = (0.80, 0.84, 0.86, 0.88, 0.90, 0.92, 0.94)
_TOLERANCE = 0.02
_LEAST_HELD = 0.85
_NORMAL = NormalDist()
_DIGITS = 5


class Look(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One figure at first look. ``ratio``: measured/forecast. ``source`` and ``group`` are opaque names.

    ``seen``: the engine (or framework) and the model's family stand together in the rows that rules were built on.
    ``load``: of a server's times, how many users they were taken with (``speed_bars.users``).
    ``predicted`` and ``scale``: the forecast and the unit of its errors in bytes, of a measure whose errors are bytes; a look of
    such a measure that has none (the first, whose figures were not kept) says nothing of its bar. ``certain``: what the forecast
    surely came to. ``imputed``: of training steps of the first look these three are those of the tuned row in the middle, by its
    share of states, of the same framework, measure, method and recomputation. ``id``: of the row; the first looks have none.
    """

    look: int
    commit: str
    measure: str
    engine: str
    ratio: float
    source: str
    group: str
    seen: bool
    version_known: bool = True
    stored: str = ""
    kind: str = ""
    method: str = ""
    recompute: str = ""
    parallel: str = ""
    load: str = ""
    predicted: float = 0
    scale: float = 0
    certain: float = 0
    imputed: bool = False
    id: str = ""

    @property
    def speaks(self) -> bool:
        """Whether a bar can be made of it."""
        return self.measure not in IN_BYTES or self.scale > 0

    @property
    def bar(self) -> str:
        """The measure under which its bar is kept."""
        return bar_name(self.measure, self.scale)

    def error(self, bar: str) -> float:
        """The error that a bar of that name is made of."""
        in_bytes = bar in IN_BYTES
        return error_of(self.ratio * self.predicted, self.predicted, self.scale) if in_bytes else math.log(self.ratio)

    @property
    def combination(self) -> Combination:
        """What decides which cells it belongs to."""
        return Combination(measure=self.bar, engine=self.engine, seen=self.seen, plain=self.kind == "dense")


Shares = dict[tuple[str, bool], float]
"""By measure (``Look.bar``) and novelty: the share of groups that a range holds."""


class HeldGroup(msgspec.Struct, frozen=True):
    """A group left out: the share of its rows that bars made without it hold, how many they are, and their median width.

    ``size``: that width in bytes, where errors are bytes; 0 where they are a ratio, whose looks kept no bytes.
    """

    share: float
    rows: int
    width: float
    size: float = 0


def read_looks(path: Path) -> list[Look]:
    """The lines of a file of first looks. Raises QuestionError for a line that is none, with its number."""
    looks = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            looks.append(msgspec.json.decode(line, type=Look))
        except msgspec.DecodeError as error:
            raise QuestionError(f"{path.name} line {number} is no first look: {error}") from None
    return looks


def add_looks(path: Path, points: Iterable[Point]) -> int:
    """Append the figures to a file of first looks, one look later than its last; the number of lines. Lines are never changed."""
    from vramcast import __version__

    earlier = read_looks(path) if path.exists() else []
    number = max((look.look for look in earlier), default=0) + 1
    lines = [msgspec.json.encode(look) + b"\n" for look in looks_of(points, look=number, commit=__version__)]
    with path.open("ab") as file:
        file.writelines(lines)
    return len(lines)


def looks_of(points: Iterable[Point], *, look: int, commit: str) -> Iterator[Look]:
    """Scored figures as first looks of a release; a group is one source and one family."""
    for p in points:
        if p.scored and p.predicted > 0 and p.measured > 0:
            keys = p.keys
            yield Look(
                look=look,
                commit=commit,
                measure=p.measure,
                engine=keys.get("engine", ""),
                ratio=round(p.measured / p.predicted, 4),
                source=keys.get("source", ""),
                group=f"{keys.get('source', '')} {keys.get('family', '')}",
                seen=Combination.of(p.measure, keys).seen,
                version_known=bool(keys.get("version")),
                kind=keys.get("kind", ""),
                method=keys.get("method", ""),
                recompute=keys.get("recompute", ""),
                parallel=keys.get("parallel", ""),
                predicted=round(p.predicted) if p.scale else 0,
                scale=round(p.scale),
                certain=round(p.certain) if p.scale else 0,
                id=p.id,
            )


def looked_cells(looks: Sequence[Look]) -> dict[str, Cell]:
    """The table of cells that first looks support; a cell needs nine groups."""
    return _cells(looks, _shares(looks))


def held_groups(looks: Sequence[Look]) -> dict[tuple[str, bool], list[HeldGroup]]:
    """Per measure, seen and new apart: every group under bars that were made without it."""
    return _left_out(looks, _shares(looks))


def _shares(looks: Sequence[Look]) -> Shares:
    """The smallest share under which groups left out, and their rows, are held as often as promised; for seen and new apart."""
    found: Shares = {}
    kinds = {(look.bar, look.seen) for look in looks}
    for share in SHARES:
        held = _left_out(looks, dict.fromkeys(kinds, share))
        for kind in kinds - found.keys():
            if share == SHARES[-1] or _covers(held.get(kind, [])):
                found[kind] = share
    return found


def _covers(groups: list[HeldGroup]) -> bool:
    """Whether groups and rows together are held as often as promised, less the tolerance, and neither much less than that.

    Of fifteen groups one is seven points: asking both views for the same share made bars twice as wide for one group.
    """
    if not groups:
        return False
    by_group = sum(g.share for g in groups) / len(groups)
    by_row = sum(g.share * g.rows for g in groups) / sum(g.rows for g in groups)
    return (by_group + by_row) / 2 >= COVERAGE - _TOLERANCE and min(by_group, by_row) >= _LEAST_HELD


def _left_out(looks: Sequence[Look], shares: Shares) -> dict[tuple[str, bool], list[HeldGroup]]:
    held: dict[tuple[str, bool], list[HeldGroup]] = defaultdict(list)
    members, groups = _members(looks, shares), defaultdict[str, list[Look]](list)
    for look in looks:
        if look.speaks:
            groups[look.group].append(look)
    for group, own in sorted(groups.items()):
        cells: dict[str, Cell | None] = {}  # of this group's names alone: the others need not be made again without it
        rows: dict[tuple[str, bool], list[tuple[bool, float, float]]] = defaultdict(list)
        for look in own:
            for name in first_look_names(look.combination):
                if name not in cells:
                    cells[name] = _named_cell(name, [case for case in members.get(name, ()) if case.group != group], shares)
                if cell := cells[name]:
                    held_so = cell.low <= end_of(look.error(look.bar), look.scale > 0) <= cell.high
                    width = width_of(cell, look.predicted or 1, look.scale, look.certain)
                    rows[look.bar, look.seen].append((held_so, width, width * look.predicted if look.scale else 0))
                    break
        for kind, found in rows.items():
            inside, middle = sum(ok for ok, _, _ in found) / len(found), len(found) // 2
            widths, sizes = (sorted(of_row[i] for of_row in found) for i in (1, 2))
            held[kind].append(HeldGroup(inside, len(found), widths[middle], sizes[middle]))
    return dict(sorted(held.items()))


def _cells(looks: Sequence[Look], shares: Shares) -> dict[str, Cell]:
    made = ((name, _named_cell(name, cases, shares)) for name, cases in sorted(_members(looks, shares).items()))
    return {name: cell for name, cell in made if cell}


def _members(looks: Sequence[Look], shares: Shares) -> dict[str, list[Look]]:
    """The looks of each cell, by its name."""
    members: dict[str, list[Look]] = defaultdict(list)
    for measure in sorted({measure for measure, _ in shares}):
        pool = POOLED.get(measure, {measure})
        for look in looks:
            if (look.bar if measure in IN_BYTES else look.measure) in pool and look.speaks:
                for name in dict.fromkeys(first_look_names(msgspec.structs.replace(look.combination, measure=measure))):
                    members[name].append(look)
    return members


def _named_cell(name: str, looks: list[Look], shares: Shares) -> Cell | None:
    return _cell(name.split("|")[1], looks, _share_of(name, shares)) if looks else None


def _share_of(name: str, shares: Shares) -> float:
    """The share of a cell's novelty; a cell of any novelty takes the larger."""
    _, measure, _, novelty = name.split("|")
    wanted = [shares.get((measure, seen), 0.0) for seen in (True, False) if novelty in ("*", "seen" if seen else "new")]
    return max(wanted) or SHARES[-1]


def _cell(bar: str, looks: list[Look], share: float) -> Cell | None:
    """The shortest range of log ratios that holds the share, every group alike and one more to come."""
    groups: dict[str, list[float]] = defaultdict(list)
    for look in looks:
        groups[look.group].append(look.error(bar))
    if len(groups) < FEWEST_GROUPS:
        return None
    cases = sorted((value, 1 / len(values)) for values in groups.values() for value in values)
    needed = min(len(groups), share * (len(groups) + 1)) - 1e-9
    (low, high), scaled = shortest(cases, needed), bar in IN_BYTES
    quantiles = [_quantile(cases, p) for p in PROBABILITIES]
    if scaled:
        quantiles = _with_tails(quantiles, low, high)
    return Cell(
        low=math.floor(end_of(low, scaled) * 10**_DIGITS) / 10**_DIGITS,
        high=math.ceil(end_of(high, scaled) * 10**_DIGITS) / 10**_DIGITS,
        quantiles=tuple(round(end_of(value, scaled), _DIGITS) for value in quantiles),
        cases=len(looks),
        sources=len({look.source for look in looks}),
        groups=len(groups),
    )


def _with_tails(quantiles: list[float], low: float, high: float) -> list[float]:
    """The outermost quantiles no nearer than those of a normal law through the bar's ends: few groups have no hundredth."""
    middle = quantiles[len(quantiles) // 2]
    further = _NORMAL.inv_cdf(PROBABILITIES[-1]) / _NORMAL.inv_cdf((1 + COVERAGE) / 2)
    first, last = (middle + further * (end - middle) for end in (low, high))
    return [min(quantiles[0], first), *quantiles[1:-1], max(quantiles[-1], last)]


def shortest(cases: list[tuple[float, float]], needed: float) -> tuple[float, float]:
    """Ends of the shortest range of sorted (error, weight) that holds this weight; of equally short ones the nearest to zero."""
    best, start, inside = (math.inf, 0.0, 0.0, 0.0), 0, 0.0
    for value, weight in cases:
        inside += weight
        while inside - cases[start][1] >= needed:
            inside -= cases[start][1]
            start += 1
        if inside >= needed:
            low = cases[start][0]
            best = min(best, (value - low, abs(value + low), low, value))
    return best[2], best[3]


def _quantile(cases: list[tuple[float, float]], probability: float) -> float:
    """The ratio below which that share of the weight lies."""
    wanted, passed = probability * sum(weight for _, weight in cases), 0.0
    for value, weight in cases:
        passed += weight
        if passed >= wanted - 1e-12:
            return value
    return cases[-1][0]
