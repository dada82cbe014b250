"""From judged rows to tables of error: per measure and group, macro over sources, fit decisions, worst rows.

An error is |predicted/measured - 1|. Rows of quality C (rounded, unnamed counter, unknown length) count as expressed and for
nothing else. A macro figure is the mean over sources
of each source's median (p90: of each source's p90), so that a source with many rows does not speak for all.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from vramcast.truth.bars import Combination, engine_name, interval_for
from vramcast.truth.judgement import Judgement, Pair, source_name
from vramcast.truth.scales import OF_A_NEW_KIND, activation_scale

PERCENTS = (1, 2, 3, 5, 10)
_ROUNDING = 1e-9  # 102/100 - 1 is a little more than 0.02 in binary


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One scored pair: its row, measure, signed relative error, and whether its interval held it (None: no interval)."""

    id: str
    measure: str
    predicted: float
    measured: float
    error: float
    keys: dict[str, str]
    scored: bool
    held: bool | None
    width: float | None
    scale: float = 0
    certain: float = 0


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of one measure in one group; widths are relative to the forecast."""

    measure: str
    group: str
    n: int
    median_error: float | None
    p90_error: float | None
    bias: float | None
    within: dict[str, float]
    interval_coverage: float | None
    interval_width: float | None


def points_of(judgements: Iterable[Judgement]) -> list[Point]:
    """Every pair of every judgement, with its error and its interval."""
    return [_point(judged, pair) for judged in judgements for pair in judged.pairs]


def scores(points: Iterable[Point]) -> list[Score]:
    """One score per measure and group: all, then each key's values."""
    groups: dict[tuple[str, str], list[Point]] = defaultdict(list)
    for point in points:
        for group in _groups(point):
            groups[point.measure, group].append(point)
    ordered = sorted(groups.items(), key=lambda item: (item[0][0], item[0][1] != "all", item[0][1]))
    return [_score(measure, group, members) for (measure, group), members in ordered]


def macro(points: Iterable[Point]) -> dict[str, dict[str, float]]:
    """Per measure: mean over sources of each source's median and p90 error, and the number of sources."""
    errors: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for point in points:
        if point.scored:
            errors[point.measure][point.keys.get("source", "")].append(abs(point.error))
    return {measure: _macro(list(sources.values())) for measure, sources in sorted(errors.items())}


def fit(judgements: Iterable[Judgement]) -> dict[str, int]:
    """How runs that did not fit, and runs that did, were called; rows of quality C are left out.

    "tight" counts as called for the first, not against the rest.
    """
    counts = {"oom_called": 0, "oom": 0, "false_no": 0, "ran": 0}
    for judged in (judgement for judgement in judgements if judgement.quality != "C"):
        if judged.fit_called and judged.fit_actual == "oom":
            counts["oom"] += 1
            counts["oom_called"] += judged.fit_called in {"no", "tight"}
        elif judged.fit_called and judged.fit_actual == "ran":
            counts["ran"] += 1
            counts["false_no"] += judged.fit_called == "no"
    return counts


def worst(points: Iterable[Point], most: int) -> list[Point]:
    """The scored points farthest off, by ratio in either direction."""

    def distance(point: Point) -> float:
        return abs(math.log(point.predicted / point.measured)) if point.predicted * point.measured > 0 else math.inf

    return sorted((p for p in points if p.scored), key=lambda p: (-distance(p), p.id))[:most]


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which that share of sorted values lies, linear between neighbours."""
    place = share * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


def _point(judged: Judgement, pair: Pair) -> Point:
    pair, low, high = in_its_unit(pair, judged.keys), pair.low, pair.high
    if low is None or high is None:
        interval = interval_for(pair.measure, pair.predicted, judged.keys, pair.scale, pair.certain)
        low, high = (interval.low, interval.high) if interval else (None, None)
    known = low is not None and high is not None
    return Point(
        id=judged.id,
        measure=pair.measure,
        predicted=pair.predicted,
        measured=pair.measured,
        error=_error(pair),
        keys=_plain(judged.keys),
        scored=judged.quality != "C",
        held=low - pair.slack <= pair.measured <= high + pair.slack if low is not None and high is not None else None,
        width=(high - low) / pair.predicted if known and pair.predicted > 0 else None,  # type: ignore[operator]
        scale=pair.scale,
        certain=pair.certain,
    )


def in_its_unit(pair: Pair, keys: dict[str, str]) -> Pair:
    """A peak of a profile run errs by bytes where its kind of model was not measured."""
    if pair.measure not in OF_A_NEW_KIND or Combination.of(pair.measure, keys).seen:
        return pair
    return msgspec.structs.replace(pair, scale=activation_scale(pair.predicted))


def _plain(keys: dict[str, str]) -> dict[str, str]:
    """Keys with one spelling per engine and per source."""
    named = {"engine": engine_name(keys["engine"])} if "engine" in keys else {}
    return keys | named | {"source": source_name(keys.get("source", ""))}


def _error(pair: Pair) -> float:
    """Signed relative error; a figure measured as zero counts as wholly missed unless it was forecast within its slack."""
    if abs(pair.predicted - pair.measured) <= pair.slack:
        return 0.0
    return pair.predicted / pair.measured - 1 if pair.measured else 1.0


def _groups(point: Point) -> Iterator[str]:
    yield "all"
    for key, value in point.keys.items():
        for part in value.split("+") if key == "kind" else [value]:
            if part:
                yield f"{key}={part}"


def _score(measure: str, group: str, members: list[Point]) -> Score:
    members = [p for p in members if p.scored]
    errors = sorted(abs(p.error) for p in members)
    signed = sorted(p.error for p in members)
    held = [p.held for p in members if p.held is not None]
    widths = sorted(p.width for p in members if p.width is not None)
    return Score(
        measure=measure,
        group=group,
        n=len(errors),
        median_error=quantile(errors, 0.5) if errors else None,
        p90_error=quantile(errors, 0.9) if errors else None,
        bias=quantile(signed, 0.5) if signed else None,
        within={str(p): sum(e <= p / 100 + _ROUNDING for e in errors) / len(errors) for p in PERCENTS} if errors else {},
        interval_coverage=sum(held) / len(held) if held else None,
        interval_width=quantile(widths, 0.5) if widths else None,
    )


def _macro(sources: list[list[float]]) -> dict[str, float]:
    for errors in sources:
        errors.sort()
    return {
        "median_error": sum(quantile(errors, 0.5) for errors in sources) / len(sources),
        "p90_error": sum(quantile(errors, 0.9) for errors in sources) / len(sources),
        "sources": len(sources),
    }
