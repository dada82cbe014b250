"""Ordered advice: the smallest changes that make a workload fit, each re-forecast, with the bytes it saves and what it costs.

Changes are tried alone first. When none that keeps the job as it was is enough, pairs of those are tried: people quantise weights
and cache together. When nothing fits yet, the change that saves most is joined by more cards, a shorter context and the like.
"""

from collections.abc import Callable, Iterable
from itertools import combinations

from vramcast.errors import VramcastError
from vramcast.ledger import Advice, Fit
from vramcast.planning.changes import Change

Asked = tuple[int, Fit]
Tried = tuple[Change, Advice]
MOST = 8
MOST_PAIRED = 8


def advise(changes: Iterable[Change], ask: Callable[[Change], Asked], *, needed_bytes: int) -> tuple[Advice, ...]:
    """Advice from changes given in the order they should be considered; those that make it fit come first.

    ``ask`` returns the needed bytes of the worst rank and the verdict after a change. A change the engine refuses is dropped.
    """
    steps = _by_kind(changes)
    singles = [found for kind in steps if (found := _least(kind, ask, needed_bytes)) is not None]
    keeping = [advice for change, advice in singles if advice.then_fits and change.keeps_the_job]
    giving_up = [advice for change, advice in singles if advice.then_fits and not change.keeps_the_job]
    helping = [(change, advice) for change, advice in singles if not advice.then_fits and change.keeps_the_job]
    together = [] if keeping else _together([change for change, _ in helping[:MOST_PAIRED]], ask, needed_bytes)
    if helping and not (together or giving_up):
        best = max(helping, key=lambda pair: pair[1].saves_bytes)[0]
        together = _joined(best, [kind for kind in steps if not kind[0].keeps_the_job], ask, needed_bytes)
    rest = sorted((a for _, a in singles if not a.then_fits), key=lambda a: -a.saves_bytes)
    return tuple([*keeping, *together, *giving_up, *rest][:MOST])


def _by_kind(changes: Iterable[Change]) -> list[list[Change]]:
    """The steps of each kind (2, 4, 8 cards), the least first, kinds in the order they should be considered."""
    kinds: dict[str, list[Change]] = {}
    for change in changes:
        kinds.setdefault(change.kind, []).append(change)
    return list(kinds.values())


def _least(steps: list[Change], ask: Callable[[Change], Asked], needed_bytes: int) -> Tried | None:
    """Of one kind's steps the least that fits, or else the furthest that helps; a step helps more than those before it."""
    tries = ((change, advice) for change in reversed(steps) if (advice := _try(change, ask, needed_bytes)) is not None)
    furthest = next(tries, None)
    if furthest is None or not furthest[1].then_fits:
        return furthest
    for change in steps[: steps.index(furthest[0])]:
        advice = _try(change, ask, needed_bytes)
        if advice is not None and advice.then_fits:
            return change, advice
    return furthest


def _together(changes: list[Change], ask: Callable[[Change], Asked], needed_bytes: int) -> list[Advice]:
    """Pairs that make it fit, or, when no pair does, as many changes in their order as it takes."""
    return _pairs(changes, ask, needed_bytes) or _as_many_as_it_takes(changes, ask, needed_bytes)


def _as_many_as_it_takes(changes: list[Change], ask: Callable[[Change], Asked], needed_bytes: int) -> list[Advice]:
    so_far, best = None, needed_bytes
    for change in changes:
        longer = so_far.then(change) if so_far else change
        advice = _try(longer, ask, needed_bytes)
        if advice is None or needed_bytes - advice.saves_bytes >= best:
            continue
        so_far, best = longer, needed_bytes - advice.saves_bytes
        if advice.then_fits:
            return [advice]
    return []


def _pairs(changes: list[Change], ask: Callable[[Change], Asked], needed_bytes: int) -> list[Advice]:
    found = []
    for first, second in combinations(changes, 2):
        both = first.then(second)
        advice = _try(both, ask, needed_bytes)
        if advice is not None and advice.then_fits:
            found.append(advice)
    return sorted(found, key=lambda a: a.saves_bytes)[:3]


def _joined(best: Change, kinds: list[list[Change]], ask: Callable[[Change], Asked], needed_bytes: int) -> list[Advice]:
    """The change that saves most with the least step of each kind that gives something up, where both together fit."""
    tried = (_least([best.then(step) for step in steps], ask, needed_bytes) for steps in kinds)
    return [found[1] for found in tried if found is not None and found[1].then_fits]


def _try(change: Change, ask: Callable[[Change], Asked], needed_bytes: int) -> Advice | None:
    try:
        needed, fit = ask(change)
    except VramcastError:
        return None
    fits = fit.verdict == "fits"
    saves = max(0, needed_bytes - needed)
    if not fits and not saves:
        return None
    return Advice(change=change.text, saves_bytes=saves, costs=change.costs, then_fits=fits, then_verdict=fit.verdict)
