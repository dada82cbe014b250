"""The event log: every allocation and free of device memory of a run, in order. The product of a trace and of a snapshot.

One log answers every later question: the peak and what stood at it, what another allocator setting would have reserved,
whether a smaller card would have held it.
"""

from collections.abc import Iterable, Iterator

import msgspec


class Allocation(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """One stretch of device memory: requested ``size`` in bytes, its CUDA stream, who asked for it and when.

    ``start`` and ``end`` are places in the log's order (``end`` is -1 while it lives). ``op``: the operator, ``module``: the
    path of the module, ``phase``: forward, recompute, backward, optimizer ... ``category``: weights, gradients, ... or "".
    ``line``: file:line of the user's code when known.
    """

    size: int
    stream: int = 0
    op: str = ""
    module: str = ""
    phase: str = ""
    category: str = ""
    line: str = ""
    start: int = 0
    end: int = -1

    def alive_at(self, place: int) -> bool:
        """True when the allocation exists after event ``place``."""
        return self.start <= place and (self.end < 0 or self.end > place)


class Mark(msgspec.Struct, frozen=True):
    """A named moment: the place in the order before which it stands."""

    place: int
    name: str


class EventLog(msgspec.Struct, kw_only=True):
    """Allocations and the order of events: ``+n`` allocates ``allocations[n - 1]``, ``-n`` frees it.

    ``emptied``: the places before which the program gave the allocator's unused segments back (torch.cuda.empty_cache).
    ``stages``: where the stages of a script's life begin, the first at 0; none of a named model.
    """

    allocations: list[Allocation] = []
    order: list[int] = []
    marks: list[Mark] = []
    emptied: list[int] = []
    stages: list[Mark] = []

    def allocate(self, allocation: Allocation) -> int:
        """Append an allocation; returns its number, by which it is freed."""
        allocation.start = len(self.order)
        self.allocations.append(allocation)
        self.order.append(len(self.allocations))
        return len(self.allocations)

    def free(self, number: int) -> None:
        """Append the free of an allocation; freeing twice is ignored."""
        allocation = self.allocations[number - 1]
        if allocation.end < 0:
            allocation.end = len(self.order)
            self.order.append(-number)

    def mark(self, name: str) -> None:
        """Name the present moment."""
        self.marks.append(Mark(len(self.order), name))

    def stage(self, name: str) -> None:
        """A stage begins now, unless it is the present one."""
        if not self.stages or self.stages[-1].name != name:
            self.stages.append(Mark(len(self.order), name))

    def empty(self) -> None:
        """The program empties the allocator's cache now."""
        self.emptied.append(len(self.order))

    def runs(self) -> Iterator[list[int]]:
        """The events in runs: allocations alone, or frees alone with no emptying among them, whose order tells nothing."""
        run, emptied = list[int](), set(self.emptied)
        for place, event in enumerate(self.order):
            if run and ((event < 0) != (run[0] < 0) or place in emptied):
                yield run
                run = []
            run.append(event)
        if run:
            yield run

    def alive_at(self, place: int) -> list[Allocation]:
        """The allocations that exist after event ``place``."""
        return [a for a in self.allocations if a.alive_at(place)]

    def moment(self, place: int) -> str:
        """The name of the last mark at or before a place."""
        return next((m.name for m in reversed(self.marks) if m.place <= place), "")

    def without(self, dropped: Iterable[int]) -> "EventLog":
        """The same log without some allocations (by number), to ask what a change would save."""
        gone = set(dropped)
        log = EventLog(allocations=[], order=[], marks=[], emptied=[])
        renumbered, emptied = dict[int, int](), set(self.emptied)
        for place, event in enumerate(self.order):
            if place in emptied:
                log.empty()
            number = abs(event)
            if number in gone:
                continue
            if event > 0:
                copy = msgspec.structs.replace(self.allocations[number - 1], end=-1)
                renumbered[number] = log.allocate(copy)
            else:
                log.free(renumbered[number])
        return log
