"""Advice: the smallest changes that make a workload fit, alone, in pairs and in threes, each asked again before it is given.

Changes come in kinds; a kind is a dial with steps from the least to the most (a context of 92,160, 92,000 ... tokens; 2, 4, 8
cards), of which the least that fits is looked for. A pair is tried only where neither fits alone at that step: sharding over 8
cards with recomputation may do what 64 cards do. What fits comes first, by what it costs a person, then by what it leaves over.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from itertools import combinations

import msgspec

from vramcast.errors import VramcastError
from vramcast.ledger import Advice, Fit
from vramcast.planning.changes import Change

Asked = tuple[int, Fit]
Ask = Callable[[Change], Asked]
MOST = 8
MOST_ASKED = 160  # questions that one answer's advice may take: 20 to 150 ms
_MOST_TOGETHER = 4
_MOST_ALONE = 3  # changes shown that help without being enough


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """A change with what was answered after it; ``steps`` tells which step of each kind's dial it takes."""

    change: Change
    needed_bytes: int
    fit: Fit

    @property
    def fits(self) -> bool:
        """Whether the run surely fits after it."""
        return self.fit.verdict == "fits"


class Search:
    """Asks for changes, each once, and stops answering after ``most`` of them; what the engine refuses is None."""

    def __init__(self, ask: Ask, *, most: int) -> None:
        self._ask, self._most = ask, most
        self._known: dict[str, Tried | None] = {}

    @property
    def spent(self) -> bool:
        """Whether as much was asked as a person waits for."""
        return len(self._known) >= self._most

    def tried(self, change: Change) -> Tried | None:
        """What is answered after a change; None where it is refused or nothing more is asked."""
        if change.text not in self._known:
            self._known[change.text] = None if self.spent else self._answer(change)
        return self._known[change.text]

    def _answer(self, change: Change) -> Tried | None:
        try:
            needed, fit = self._ask(change)
        except VramcastError:
            return None
        return Tried(change=change, needed_bytes=needed, fit=fit)

    def _some_that_fits(self, steps: Sequence[Change]) -> int:
        """Where a dial that can be turned too far fits, looked for at every eighth of it; its end when nowhere."""
        places = range(len(steps) - 1, -1, -max(1, len(steps) // 8))
        return next((place for place in places if self.fits(steps[place])), len(steps) - 1)

    def fits(self, change: Change) -> bool:
        """Whether it is answered and fits."""
        found = self.tried(change)
        return found is not None and found.fits

    def least(self, steps: Sequence[Change]) -> Tried | None:
        """Of a dial the least step that fits, else the furthest that is not refused; a step helps more than those before it."""
        known = len(steps) - 1 if not steps[-1].widens else self._some_that_fits(steps)
        while known >= 0 and self.tried(steps[known]) is None:
            known -= 1
        if known < 0 or not self.fits(steps[known]):
            return self.tried(steps[known]) if known >= 0 else None
        low, high = -1, known
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.fits(steps[middle]) else (middle, high)
        return self.tried(steps[high])


def advise(changes: Iterable[Change], ask: Ask, *, needed_bytes: int, most_asked: int = MOST_ASKED) -> tuple[Advice, ...]:
    """At most eight pieces of advice, those that make it fit first.

    ``ask`` returns the needed bytes of the worst rank and the verdict after a change, and raises where the engine refuses it.
    """
    search, kinds = Search(ask, most=most_asked), _by_kind(changes)
    alone = {kind: found for kind, steps in kinds.items() if (found := search.least(steps)) is not None}
    helping = {kind: found for kind, found in alone.items() if not found.fits or len(kinds[kind]) > 1}
    good = [*(found for found in alone.values() if found.fits), *_pairs(search, kinds, alone, helping)]
    if not any(tried.change.keeps_the_job for tried in good):
        good += _as_many_as_it_takes(search, kinds, helping)
    good = list({t.change.text: t for t in good}.values())
    good.sort(key=lambda t: (t.change.price, -(t.fit.margin_bytes or 0)))
    rest = [t for t in alone.values() if not t.fits and t.needed_bytes < needed_bytes]
    rest.sort(key=lambda t: t.needed_bytes)
    shown = good[:MOST]
    return tuple(_advice(t, needed_bytes) for t in (*shown, *rest[: min(_MOST_ALONE, MOST - len(shown))]))


def _by_kind(changes: Iterable[Change]) -> dict[str, list[Change]]:
    """The steps of each kind, the least first, kinds in the order they were given."""
    kinds: dict[str, list[Change]] = {}
    for change in changes:
        kinds.setdefault(change.kind, []).append(change)
    return kinds


def _pairs(search: Search, kinds: dict[str, list[Change]], alone: dict[str, Tried], helping: dict[str, Tried]) -> list[Tried]:
    """Pairs of kinds that fit where neither does by itself at that step."""
    found: list[Tried] = []
    for first, second in sorted(combinations(helping, 2), key=lambda pair: _first_tried(kinds, pair)):
        if len(found) == _MOST_TOGETHER or search.spent:
            break
        tried = _pair(search, _too_little(kinds[first], alone[first]), _too_little(kinds[second], alone[second]))
        if tried is not None:
            found.append(tried)
    return found


def _first_tried(kinds: dict[str, list[Change]], pair: tuple[str, str]) -> tuple[bool, int]:
    """Pairs that keep the job before those that give something up, then by their price."""
    steps = [kinds[kind][0] for kind in pair]
    return not all(step.keeps_the_job for step in steps), sum(step.price for step in steps)


def _too_little(steps: list[Change], alone: Tried) -> list[Change]:
    """The steps of a kind that are not enough by themselves."""
    if not alone.fits:
        return steps
    return steps[: next(i for i, change in enumerate(steps) if change.text == alone.change.text)]


def _pair(search: Search, first: list[Change], second: list[Change]) -> Tried | None:
    """The least step of the first that fits with the most of the second, then the least of the second with it."""
    if not first or not second or first[0].excludes(second[0]):
        return None
    widest = search.least([change.then(second[-1]) for change in first])
    if widest is None or not widest.fits:
        return None
    chosen = next(change for change in first if change.then(second[-1]).text == widest.change.text)
    return search.least([chosen.then(change) for change in second])


def _as_many_as_it_takes(search: Search, kinds: dict[str, list[Change]], helping: dict[str, Tried]) -> list[Tried]:
    """All changes together that keep the job, on these cards or on the fewest more, less those that are not needed."""
    keeping = sorted((t.change for t in helping.values() if t.change.keeps_the_job), key=lambda change: change.price)
    for more in ([], *([change] for change in kinds.get("cards", []))):
        together = [*keeping, *more]
        if len(together) > 2 and search.fits(_joined(together)):
            found = search.tried(_joined(_without_idle(search, together)))
            return [found] if found else []
    return []


def _without_idle(search: Search, together: list[Change]) -> list[Change]:
    """The changes less those whose absence leaves it fitting, the dearest dropped first."""
    for change in sorted(together, key=lambda c: -c.price):
        fewer = [other for other in together if other is not change]
        if fewer and search.fits(_joined(fewer)):
            together = fewer
    return together


def _joined(changes: Sequence[Change]) -> Change:
    return reduce(lambda first, second: first.then(second), changes)


def _advice(tried: Tried, needed_bytes: int) -> Advice:
    return Advice(
        change=tried.change.text,
        saves_bytes=max(0, needed_bytes - tried.needed_bytes),
        costs=tried.change.costs,
        then_fits=tried.fits,
        then_verdict=tried.fit.verdict,
    )
