"""Advice: the smallest changes that make a workload fit, alone, in pairs and in threes, each asked again before it is given.

Changes come in kinds; a kind is a dial with steps from the least to the most (a context of 92,160, 92,000 ... tokens; 2, 4, 8
cards), of which the least that fits is looked for. A pair is tried only where neither fits alone at that step: sharding over 8
cards with recomputation may do what 64 cards do. What fits comes first, by what it costs a person, then by what it leaves over.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, reduce
from itertools import combinations
from math import ceil

import msgspec

from vramcast.errors import VramcastError
from vramcast.ledger import Advice, Fit
from vramcast.planning.changes import DOUBLED, MORE_CARDS, Change

MOST = 8
MOST_ASKED = 160  # questions that one answer's advice may take: 5 to 40 ms
_MOST_TOGETHER = 4
_ON_THE_LINE = 4  # looks along a dial before every second one halves
_MORE_DOUBLINGS = 2  # of cards alone, beyond what another change beside them needs
_MOST_ALONE = 3  # changes shown that help without being enough
_OUT_OF_REACH = 0.05  # of the card: pairs further short than this by their parts never fitted (2,211 pairs of 210 questions)
_MOST_NEARLY = 2  # changes shown that leave room by the forecast, though not surely


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What is answered after a change: bytes needed by the worst rank and left over, and the verdict when somebody wants it.

    ``short``: it would be short on a larger share of the card too.
    """

    needed_bytes: int
    margin_bytes: int
    judged: Callable[[], Fit]
    short: bool = False


Ask = Callable[[Change], Asked]


class Tried:
    """A change with what was answered after it; the verdict is worked out once, when it is asked for."""

    def __init__(self, change: Change, asked: Asked) -> None:
        self.change, self.asked = change, asked

    @cached_property
    def fit(self) -> Fit:
        """The verdict after the change."""
        return self.asked.judged()

    @property
    def fits(self) -> bool:
        """Whether the run surely fits after it; never with less than nothing left over (``verdict.judge``)."""
        return self.asked.margin_bytes >= 0 and self.fit.verdict == "fits"


class Search:
    """Asks for changes, each once, and stops answering after ``most`` of them; what the engine refuses is None.

    ``sure_bytes``: what has to be left over for a verdict of ``fits``, nearly: where a dial's edge is looked for first.
    ``margin_bytes``: what is left over with nothing changed, of a card of ``card_bytes``; None where that says nothing, as of
    a training step: two changes that each lower one of its instants lower the peak only together.
    """

    def __init__(self, ask: Ask, *, most: int, sure_bytes: int = 0, margin_bytes: int | None = None, card_bytes: int = 0) -> None:
        self._ask, self._most, self._sure, self._margin, self._card = ask, most, sure_bytes, margin_bytes, card_bytes
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
            return Tried(change, self._ask(change))
        except VramcastError:
            return None

    def out_of_reach(self, one: Change, other: Change) -> bool:
        """Whether what two changes save one by one is far from enough: together they save what they save apart, or less."""
        first, second = self.tried(one), self.tried(other)
        if self._margin is None or first is None or second is None:
            return False
        together = first.asked.margin_bytes + second.asked.margin_bytes - self._margin
        return together < -_OUT_OF_REACH * self._card

    def fits(self, change: Change) -> bool:
        """Whether it is answered and fits."""
        found = self.tried(change)
        return found is not None and found.fits

    def least(self, steps: Sequence[Change]) -> Tried | None:
        """Of a dial the least step that fits, else the furthest that is not refused; a step helps more than those before it."""
        if len(steps) > 1 and steps[0].unordered and steps[1].unordered:
            return self._first_that_fits(steps)
        known = len(steps) - 1 if not steps[-1].widens else self._some_that_fits(steps)
        while known >= 0 and self.tried(steps[known]) is None:
            known -= 1
        if known < 0 or not self.fits(steps[known]):
            return self.tried(steps[known]) if known >= 0 else None
        return self.tried(steps[self._edge(steps, known)])

    def _first_that_fits(self, choices: Sequence[Change]) -> Tried | None:
        """Of choices the most wanted that fits, else the one that needs least."""
        answered = []
        for choice in choices:
            found = self.tried(choice)
            if found is not None and found.fits:
                return found
            answered += [found] if found is not None else []
        return min(answered, key=lambda t: t.asked.needed_bytes, default=None)

    def _some_that_fits(self, steps: Sequence[Change]) -> int:
        """Where a dial that can be turned too far fits, looked for at every eighth of it; its end when nowhere.

        A pool grows with its share of the card: one that is too small at the largest share is so at every smaller one.
        """
        for place in range(len(steps) - 1, -1, -max(1, len(steps) // 8)):
            found = self.tried(steps[place])
            if found is not None and found.fits:
                return place
            if found is not None and found.asked.short:
                break
        return len(steps) - 1

    def _edge(self, steps: Sequence[Change], fitting: int) -> int:
        """The least step that fits, ``fitting`` being one: looked for on the line between margins that are known.

        Every second look after the first few halves what is left, so that a bent line costs little more than halving would.
        """
        low, high, looks = -1, fitting, 0
        while high - low > 1:
            halved = looks >= _ON_THE_LINE and looks % 2
            place = (low + high) // 2 if halved else self._on_the_line(steps, low, high)
            low, high = (low, place) if self.fits(steps[place]) else (place, high)
            looks += 1
        return high

    def _on_the_line(self, steps: Sequence[Change], low: int, high: int) -> int:
        """Where to look between a step that is too little (-1: none was tried) and one that fits."""
        if low < 0:
            return 0
        below, above = self.tried(steps[low]), self.tried(steps[high])
        if below is None or above is None:
            return (low + high) // 2
        rise = above.asked.margin_bytes - below.asked.margin_bytes
        share = (self._sure - below.asked.margin_bytes) / rise if rise > 0 else 0.5
        return max(low + 1, min(low + ceil(share * (high - low)), high - 1))


def advise(
    changes: Iterable[Change],
    ask: Ask,
    *,
    needed_bytes: int,
    sure_bytes: int = 0,
    most_asked: int = MOST_ASKED,
    margin_bytes: int | None = None,
    card_bytes: int = 0,
) -> tuple[Advice, ...]:
    """At most eight pieces of advice, those that make it fit first.

    ``ask`` answers after a change, and raises where the engine refuses it. The others: as ``Search`` has them.
    """
    search = Search(ask, most=most_asked, sure_bytes=sure_bytes, margin_bytes=margin_bytes, card_bytes=card_bytes)
    kinds = _by_kind(changes)
    alone = {kind: found for kind, steps in kinds.items() if (found := search.least(steps)) is not None}
    for kind in [kind for kind in alone if kinds[kind][0].unordered]:
        kinds[kind] = [alone[kind].change]  # of choices the best alone goes on into pairs
    helping = {kind: found for kind, found in alone.items() if not found.fits or len(kinds[kind]) > 1}
    good = [*(found for found in alone.values() if found.fits), *_pairs(search, kinds, alone, helping)]
    if not any(tried.change.keeps_the_job for tried in good):
        good += _as_many_as_it_takes(search, kinds, helping)
    good = list({t.change.text: t for t in good}.values())
    good.sort(key=lambda t: (t.change.price, not t.change.keeps_the_job, -(t.fit.margin_bytes or 0)))
    rest = [t for t in alone.values() if not t.fits and _helps(t, needed_bytes) and t.change.kind != "cards"]
    rest = [t for t in rest if not t.fit.refused]
    nearly = sorted((t for t in rest if _nearly(t)), key=lambda t: -(t.fit.probability or 0.0))[:_MOST_NEARLY]
    rest = sorted((t for t in rest if t not in nearly), key=lambda t: t.asked.needed_bytes)
    here = _nearly_here(search, kinds, helping) if all("cards" in t.change.kind.split(" and ") for t in good) else []
    shown = [*here, *_few_more_cards(_varied(good, alone))[: MOST - len(nearly) - len(here)], *nearly]
    return tuple(_advice(t, needed_bytes) for t in (*shown, *rest[: min(_MOST_ALONE, MOST - len(shown))]))


def _nearly(tried: Tried) -> bool:
    """Whether a change by itself leaves room, though not enough to be sure: most would take it rather than two changes."""
    return tried.asked.margin_bytes >= 0 and tried.fit.verdict == "tight"


def _nearly_here(search: Search, kinds: dict[str, list[Change]], helping: dict[str, Tried]) -> list[Tried]:
    """Where only more cards make it fit: the pair on these cards that most likely does, one that gives up least of those."""
    found: list[Tried] = []
    for first, second in combinations([kind for kind in helping if kind != "cards"], 2):
        one, other = kinds[first][-1], kinds[second][-1]
        tried = None if one.excludes(other) or search.out_of_reach(one, other) else search.tried(one.then(other))
        if tried is not None and _nearly(tried):
            found.append(tried)
    return sorted(found, key=lambda t: (t.change.price, -(t.fit.probability or 0.0)))[:1]


def _helps(tried: Tried, needed_bytes: int) -> bool:
    """Whether a change that is not enough needs less, or gives the engine the room that it needs, if hardly."""
    return tried.asked.needed_bytes < needed_bytes or (tried.change.widens and tried.fit.verdict == "tight")


def _few_more_cards(good: list[Tried]) -> list[Tried]:
    """Of changes that add cards the cheapest that gives up the same, and more cards alone where not four times as many do."""
    adding = [t for t in good if "cards" in t.change.kind.split(" and ")]
    fewest = min((_doublings(t) for t in adding), default=0)
    first = {frozenset(t.change.gives_up): t for t in reversed(adding)}
    alone = [t for t in adding if t.change.kind == "cards" and _doublings(t) <= fewest + _MORE_DOUBLINGS]
    few = [t for t in first.values() if t.change.kind != "cards" and _doublings(t) <= fewest + _MORE_DOUBLINGS]
    return [t for t in good if t not in adding or t in alone or t in few]


def _doublings(tried: Tried) -> int:
    return (tried.change.price - MORE_CARDS) // DOUBLED


def _varied(good: list[Tried], alone: dict[str, Tried]) -> list[Tried]:
    """Without the second pair of a kind that is enough by itself, or nearly: it would be the same advice, a little less of it."""
    enough, paired, kept = {kind for kind, found in alone.items() if found.fits or _nearly(found)}, set[str](), []
    for tried in good:
        kinds = tried.change.kind.split(" and ")
        again = enough & set(kinds) if len(kinds) > 1 else set()
        if not again & paired:
            kept.append(tried)
        paired |= again
    return kept


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
    if not first or not second or first[0].excludes(second[0]) or search.out_of_reach(first[-1], second[-1]):
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
        together = [*(change for change in keeping if not any(change.excludes(other) for other in more)), *more]
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
        saves_bytes=max(0, needed_bytes - tried.asked.needed_bytes),
        costs=tried.change.costs,
        then_fits=tried.fits,
        then_verdict=tried.fit.verdict,
    )
