"""The event log of a deep model from those of two shallow ones: what one more period of layers inserts is inserted again.

Seen as a sequence of operators, a step of k + 1 equal layers is the step of k layers with a few stretches inserted (one in the
forward pass, one in the backward pass, one in every operator of the optimizer over a list of parameters), each a copy of the
stretch before it. A model of k + m layers inserts each stretch m times. Sizes, and which of several like allocations a free
ends, are affine in the number of layers and in the number of the copy. The result is a whole log: its peaks, its fragmentation
and its timeline are replayed, not fitted.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from operator import eq

import msgspec

from vramcast.tracing.eventlog import EventLog

_LONGEST_LOOK = 512
BASE_PERIODS = 2  # the first and the last layer may differ; what the next depth inserts between them is what repeats


def shallow_depths(layers: Sequence[object], *, base: int = BASE_PERIODS) -> tuple[int, int, int] | None:
    """Three depths, one period apart, whose logs tell that of the whole stack; None where tracing all layers costs no more.

    ``layers``: the kind of each layer. The layers left out are whole periods after a beginning that may differ; ``base``: the
    periods after it in the shallowest.
    """
    total = len(layers)
    for period in range(1, total // 4 + 1):
        odd = next((i for i in range(total - period) if all(map(eq, layers[i:], layers[i + period :]))), total)
        least = odd + base * period
        first = least + (total - least) % period
        if 3 * (first + period) < total:
            return first, first + period, first + 2 * period
    return None


class EventRange(msgspec.Struct, frozen=True):
    """``length`` events of the deeper log from ``place`` on, absent from the shallow one where it stands at ``before``."""

    before: int
    place: int
    length: int


def deepen(shallow: EventLog, deeper: EventLog, more: int) -> EventLog | None:
    """The log with ``more`` periods of layers than ``shallow``, where ``deeper`` has one more; None when they differ otherwise.

    The repeated layers carry the names of the layer that they repeat.
    """
    short, long = _Sequence(shallow), _Sequence(deeper)
    stretches = _stretches(short, long)
    return None if stretches is None else _Writer(short, long, more).write(stretches)


def same_sequence(one: EventLog, other: EventLog) -> bool:
    """True when two logs allocate and free alike sizes in the same order, frees without an allocation between them in any."""
    return _Sequence(one).exact == _Sequence(other).exact


class _Sequence:
    """A log as tokens that two logs can be compared by, and the rank of each free among the like allocations then alive."""

    def __init__(self, log: EventLog) -> None:
        self.log = log
        streams: dict[int, int] = {}
        kinds = [(a.op, a.phase, a.category, streams.setdefault(a.stream, len(streams))) for a in log.allocations]
        self.likeness = [(a.size, *kind) for a, kind in zip(log.allocations, kinds, strict=True)]
        self.order = list(self._settled())
        self.exact = [hash((event > 0, self.likeness[abs(event) - 1])) for event in self.order]
        self.loose = [hash((event > 0, kinds[abs(event) - 1])) for event in self.order]
        self.ranks = list(self._ranks())

    def size(self, place: int) -> int:
        """Size of the allocation that the event at a place begins or ends."""
        return self.log.allocations[abs(self.order[place]) - 1].size

    def _settled(self) -> Iterator[int]:
        """The events; frees with no allocation between them in one order, as autocast's cache empties by address.

        The allocator's state after them is the same in any order.
        """
        for run in self.log.runs():
            yield from sorted(run, key=self._place_among_frees) if run[0] < 0 else run

    def _place_among_frees(self, event: int) -> tuple[object, ...]:
        size, *kind = self.likeness[-event - 1]
        return (*kind, size, -event)

    def _ranks(self) -> Iterator[int]:
        alive: dict[object, list[int]] = defaultdict(list)
        for event in self.order:
            like = alive[self.likeness[abs(event) - 1]]
            if event > 0:
                like.append(event)
                yield 0
            else:
                rank = like.index(-event)
                del like[rank]
                yield rank


def _stretches(short: _Sequence, long: _Sequence) -> list[EventRange] | None:
    """The insertions that turn the short sequence into the long one; an event of another size only stays where it is."""
    a, b, found = 0, 0, list[EventRange]()
    while True:
        run = _common(short.exact, a, long.exact, b)
        a, b = a + run, b + run
        if a == len(short.exact) and b == len(long.exact):
            return found
        length = _inserted(short, a, long, b)
        if length:
            found.append(EventRange(a, b, length))
            b += length
        elif short.loose[a : a + 1] == long.loose[b : b + 1] != []:
            a, b = a + 1, b + 1
        else:
            return None


def _inserted(short: _Sequence, a: int, long: _Sequence, b: int) -> int:
    """Length of the stretch inserted at ``b`` that repeats what stands before it; the one after which most agrees. 0: none.

    What follows it may differ in size only, where nothing follows in the same size.
    """
    tokens = long.exact
    surplus = (len(tokens) - b) - (len(short.exact) - a)
    copies = [n for n in range(1, min(b, surplus) + 1) if tokens[b] == tokens[b - n] and tokens[b : b + n] == tokens[b - n : b]]
    for follow, following in ((short.exact, tokens), (short.loose, long.loose)):
        fitting = [n for n in copies if follow[a : a + 1] == following[b + n : b + n + 1]]
        if fitting:
            return max(fitting, key=lambda n: _common(short.exact, a + 1, tokens, b + n + 1, most=_LONGEST_LOOK))
    return 0


def _common(short: list[int], a: int, long: list[int], b: int, most: int | None = None) -> int:
    """Number of equal tokens from two places on."""
    limit = min(len(short) - a, len(long) - b, most if most is not None else len(long))
    return next((n for n in range(limit) if short[a + n] != long[b + n]), limit)


class _Writer:
    """Writes the deep log event by event."""

    def __init__(self, short: _Sequence, long: _Sequence, more: int) -> None:
        self.short, self.long, self.more = short, long, more
        self.log = EventLog(allocations=[], order=[], marks=[], emptied=[])
        self.emptied = frozenset(long.log.emptied)
        self.marks: dict[int, list[str]] = defaultdict(list)
        for mark in long.log.marks:
            self.marks[mark.place].append(mark.name)
        self.alive: dict[object, list[int]] = defaultdict(list)
        self.twin: dict[int, int] = {}

    def write(self, stretches: list[EventRange]) -> EventLog | None:
        """The log, or None where a free does not follow from the two logs."""
        ends = [*((s.place, s.before) for s in stretches), (len(self.long.exact), len(self.short.exact))]
        start = 0
        for (place, before), stretch in zip(ends, [*stretches, None], strict=True):
            self.twin.update({p: p - place + before for p in range(start, place)})
            if not all(self._event(p, p) for p in range(start, place)):
                return None
            if stretch is not None:
                if not self._repeat(stretch):
                    return None
                start = stretch.place + stretch.length
        for name in self.marks.get(len(self.long.exact), ()):
            self.log.mark(name)
        return self.log

    def _repeat(self, stretch: EventRange) -> bool:
        places = range(stretch.place, stretch.place + stretch.length)
        return all(
            p - stretch.length in self.twin and self._event(p, p - stretch.length, copy)
            for copy in range(1, self.more + 1)
            for p in places
        )

    def _event(self, place: int, model: int, copy: int = 0) -> bool:
        """Write the event at a place; ``model``: the place whose twin in the short log says how it changes with depth."""
        if copy <= 1:
            for name in self.marks.get(place, ()):
                self.log.mark(name)
        if place in self.emptied:
            self.log.empty()
        long, short, twin = self.long, self.short, self.twin[model]
        event = long.order[place]
        like = self.alive[long.likeness[abs(event) - 1]]
        if event > 0:
            size = self._affine(short.size(twin), long.size(model), long.size(place), copy)
            like.append(self.log.allocate(msgspec.structs.replace(long.log.allocations[event - 1], size=size, end=-1)))
            return True
        rank = self._affine(short.ranks[twin], long.ranks[model], long.ranks[place], copy)
        if not 0 <= rank < len(like):
            return False
        self.log.free(like.pop(rank))
        return True

    def _affine(self, short: int, long: int, copied: int, copy: int) -> int:
        return short + (long - short) * self.more + (copied - long) * copy
