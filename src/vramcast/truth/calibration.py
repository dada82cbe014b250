"""Error bars from measured cases; ``truth/write_accuracy.py`` writes them to ``intervals.json``.

Per cell (measure, engine, release, class, as far as there are cases) a bar is a range of log(measured/forecast): the shortest
that holds its share of the weight, or the one centred on the median, each with the finite-sample correction of conformal
prediction (Vovk et al. 2005): of n cases the range must hold the share of n + 1. Choosing a range favours the cases at hand, so
per measure the shape and the share are chosen that hold 90 % of rows they were not made from (five folds) and are the narrowest
that do. A case weighs 1/sqrt(cases of its source), so that one large table does not set the bar of everybody. Rows of quality C
are left out.
"""

import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import msgspec

from vramcast.serving.engines.base import FEWEST_CASES
from vramcast.truth.bars import COVERAGE, PROBABILITIES, Cell, cell_names
from vramcast.truth.scales import IN_BYTES, bar_name
from vramcast.truth.scoring import Point

SHARES = (0.86, 0.90, 0.92, 0.94, 0.95, 0.97)
# A share of held-out rows this far below 90 % is within the noise of a few hundred rows (one standard error: 1.7 points of 300).
_TOLERANCE = 0.015
_RATIO_DIGITS = 5
_RATIO_STEPS = 1e5


class Case(msgspec.Struct, frozen=True):
    """One figure as calibration sees it: its error (``error_of``), its weight, and who reported it."""

    error: float
    weight: float
    source: str


class Choice(msgspec.Struct, frozen=True):
    """How the bars of a measure are made: "shortest" or "centred", and the share of its cases that a cell's bar holds.

    ``unseen``: the same of the whole measure's cell, which speaks for engines and frameworks that nobody measured.
    """

    shape: str = "shortest"
    share: float = COVERAGE
    unseen: float = COVERAGE

    def share_of(self, cell: str) -> float:
        """The share that a cell of this name holds."""
        return self.unseen if cell.split("|")[1].startswith("*") else self.share


class HeldOut(msgspec.Struct, frozen=True):
    """A figure and the bar made without its fold: whether it holds, and how wide it is relative to the forecast."""

    inside: bool
    width: float


Choices = Mapping[str, Choice]


def calibrate(points: Iterable[Point], choices: Choices = MappingProxyType({})) -> dict[str, Cell]:
    """The table of cells; a cell needs 20 cases, a whole measure 5."""
    members: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        if usable(point):
            for name in cell_names(bar_of(point), point.keys):
                members[name].append(point)
    return {
        name: _cell(name, cases, choices.get(bar_of(cases[0]), Choice()))
        for name, cases in sorted(members.items())
        if len(cases) >= _fewest(name)
    }


def bar_of(point: Point) -> str:
    """The measure under which its bar is kept."""
    return bar_name(point.measure, point.scale)


def width_of(cell: Cell, predicted: float, scale: float, certain: float) -> float:
    """A bar's width relative to the forecast, as an answer shows it: nothing below what is certain."""
    low, high = (predicted + end * scale if scale else predicted * end for end in (cell.low, cell.high))
    return (high - max(low, min(certain, predicted))) / predicted


def usable(point: Point) -> bool:
    """Whether a figure can set a bar: both sides positive, and not of quality C."""
    return point.scored and point.predicted > 0 and point.measured > 0 and (point.measure not in IN_BYTES or point.scale > 0)


def error_of(measured: float, predicted: float, scale: float) -> float:
    """The error that bars are made of: log(measured/forecast), or (measured - forecast)/scale where errors are bytes."""
    return (measured - predicted) / scale if scale else math.log(measured / predicted)


def end_of(error: float, scaled: bool) -> float:
    """An error as a cell keeps it: a ratio, or in units of the scale."""
    return error if scaled else math.exp(error)


def held_out(
    points: list[Point], fold_of: Callable[[Point], object], choices: Choices = MappingProxyType({})
) -> dict[str, list[HeldOut]]:
    """Per measure (``bar_of``): each figure under the bar made without its fold."""
    found: dict[str, list[HeldOut]] = defaultdict(list)
    for fold in sorted({fold_of(p) for p in points}, key=str):
        table = calibrate((p for p in points if fold_of(p) != fold), choices)
        for point in (p for p in points if fold_of(p) == fold and usable(p)):
            cell = next((table[name] for name in cell_names(bar_of(point), point.keys) if name in table), None)
            if cell:
                value = end_of(error_of(point.measured, point.predicted, point.scale), point.scale > 0)
                width = width_of(cell, point.predicted, point.scale, point.certain)
                found[bar_of(point)].append(HeldOut(cell.low <= value <= cell.high, width))
    return dict(sorted(found.items()))


def choose(points: list[Point]) -> dict[str, Choice]:
    """Per measure, the shape and share whose bars hold 90 % of rows they were not made from and are the narrowest that do.

    The share for the unseen is then the smallest under which whole sources left out are held as often, or the largest there is.
    """
    seen = _choose_for_rows(points)
    found: dict[str, Choice] = {}
    for share in SHARES:
        tried = {name: msgspec.structs.replace(choice, unseen=share) for name, choice in seen.items()}
        held = held_out(points, fold_of_source, tried)
        for measure in seen.keys() - found.keys():
            inside = [h.inside for h in held.get(measure, [])]
            if share == SHARES[-1] or sum(inside) >= (COVERAGE - _TOLERANCE) * len(inside):
                found[measure] = tried[measure]
    return dict(sorted(found.items()))


def _choose_for_rows(points: list[Point]) -> dict[str, Choice]:
    measures = sorted({bar_of(point) for point in points})
    tried: dict[str, list[tuple[bool, float, float, Choice]]] = defaultdict(list)
    for choice in (Choice(shape, share, share) for shape in _RANGES for share in SHARES):
        for measure, held in held_out(points, fold_of_row, dict.fromkeys(measures, choice)).items():
            misses = COVERAGE - _TOLERANCE - sum(h.inside for h in held) / len(held)
            width = sorted(h.width for h in held)[len(held) // 2]
            tried[measure].append((misses > 0, max(0.0, misses), width, choice))
    return {measure: min(options, key=lambda option: option[:3])[3] for measure, options in sorted(tried.items())}


def fold_of_row(point: Point) -> int:
    """One of five folds, by the row's id: figures of one row stay together."""
    return zlib.crc32(point.id.encode()) % 5


def fold_of_source(point: Point) -> str:
    """The row's source: bars are then made without everything that this source reported."""
    return point.keys["source"]


def _fewest(name: str) -> int:
    return 5 if name.split("|")[1].startswith("*") else FEWEST_CASES


def _cell(name: str, points: list[Point], choice: Choice) -> Cell:
    cases, scaled = _weighed(points), points[0].scale > 0
    low, high = _RANGES[choice.shape](cases, choice.share_of(name))
    return Cell(
        low=_down(end_of(low, scaled)),
        high=_up(end_of(high, scaled)),
        quantiles=tuple(round(end_of(_quantile(cases, p), scaled), _RATIO_DIGITS) for p in PROBABILITIES),
        cases=len(cases),
        sources=len({case.source for case in cases}),
    )


def _weighed(points: list[Point]) -> list[Case]:
    """Cases in order of their error, each weighing 1/sqrt(cases of its source)."""
    per_source: dict[str, int] = defaultdict(int)
    for point in points:
        per_source[point.keys["source"]] += 1
    cases = [
        Case(error_of(p.measured, p.predicted, p.scale), 1 / math.sqrt(per_source[p.keys["source"]]), p.keys["source"])
        for p in points
    ]
    return sorted(cases, key=lambda case: case.error)


def shortest_range(cases: list[Case], coverage: float) -> tuple[float, float]:
    """Ends of the shortest range of sorted log ratios that holds that share of the weight of n + 1 cases.

    Between equally short ranges the one nearest to zero wins.
    """
    needed = _needed(cases, coverage)
    best, start, inside = (math.inf, 0.0, 0.0, 0.0), 0, 0.0
    for case in cases:
        inside += case.weight
        while inside - cases[start].weight >= needed:
            inside -= cases[start].weight
            start += 1
        if inside >= needed:
            low, high = cases[start].error, case.error
            best = min(best, (high - low, abs(high + low), low, high))
    return best[2], best[3]


def centred_range(cases: list[Case], coverage: float) -> tuple[float, float]:
    """The range around the median log ratio that holds that share of the weight of n + 1 cases."""
    middle, needed, inside = _quantile(cases, 0.5), _needed(cases, coverage), 0.0
    distances = sorted((abs(case.error - middle), case.weight) for case in cases)
    for distance, weight in distances:
        inside += weight
        if inside >= needed:
            return middle - distance, middle + distance
    return middle - distances[-1][0], middle + distances[-1][0]


_RANGES = {"shortest": shortest_range, "centred": centred_range}


def _needed(cases: list[Case], coverage: float) -> float:
    """The weight that a range must hold: that share of n + 1 cases, at most all; a billionth is left for rounding."""
    return min(1.0, coverage * (1 + 1 / len(cases))) * sum(case.weight for case in cases) - 1e-9


def _quantile(cases: list[Case], probability: float) -> float:
    """The weighted quantile: the ratio at which the weight passed reaches the probability, midpoints joined by lines."""
    total, passed = sum(case.weight for case in cases), 0.0
    before = (0.0, cases[0].error)
    for case in cases:
        middle = (passed + case.weight / 2) / total
        if middle >= probability:
            share = (probability - before[0]) / (middle - before[0]) if middle > before[0] else 1.0
            return before[1] + share * (case.error - before[1])
        passed += case.weight
        before = (middle, case.error)
    return cases[-1].error


def _down(ratio: float) -> float:
    return math.floor(ratio * _RATIO_STEPS) / _RATIO_STEPS


def _up(ratio: float) -> float:
    return math.ceil(ratio * _RATIO_STEPS) / _RATIO_STEPS


def encode(table: dict[str, Cell]) -> bytes:
    """The table as it is committed: one cell a line."""
    lines = [msgspec.json.encode(name) + b":" + msgspec.json.encode(cell) for name, cell in table.items()]
    return b"{\n" + b",\n".join(lines) + b"\n}\n"
