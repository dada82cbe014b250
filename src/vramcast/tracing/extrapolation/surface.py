"""The event log at any batch and length, from those at a few: the program is the same, its sizes are polynomials in both.

A step of another batch or length runs the same operators in the same order as long as no code branches on either (a batch of
one is such a branch: copies that put other batches in order are not made). Every size is then a polynomial: of degree one in
the batch and in the length, of degree two in the length where an attention matrix is written. Through the logs at a grid of
batches and lengths goes exactly one such polynomial per allocation. It does not hold for library workspaces that grow in steps;
whoever asks for a point far from the grid compares with a trace there.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from operator import mul

import msgspec

from vramcast.tracing.eventlog import EventLog

Point = tuple[int, int]


class Surface:
    """Logs of one program at all pairs of ``batches`` and ``lengths``, and from them the log at any other pair."""

    def __init__(self, logs: dict[Point, EventLog]) -> None:
        """Raises ValueError where the logs are not of the same program, or their points are no grid."""
        self.batches = sorted({batch for batch, _ in logs})
        self.lengths = sorted({length for _, length in logs})
        if len(logs) != len(self.batches) * len(self.lengths):
            raise ValueError(f"{len(logs)} logs are no grid of {len(self.batches)} batches and {len(self.lengths)} lengths")
        self._first = logs[self.batches[0], self.lengths[0]]
        self._order = _canonical(self._first)
        kinds = _kinds(self._first)
        if any(_kinds(log) != kinds or _canonical(log) != self._order for log in logs.values()):
            raise ValueError("the logs are not of the same program")
        grid = [[a.size for a in logs[batch, length].allocations] for batch in self.batches for length in self.lengths]
        self._sizes = list(zip(*grid, strict=True))

    def at(self, batch: int, length: int) -> EventLog:
        """The log at a point: exact in every size that is a polynomial."""
        weights = [b * s for b in _weights(self.batches, batch) for s in _weights(self.lengths, length)]
        scale = lcm(*(w.denominator for w in weights))
        whole = [int(w * scale) for w in weights]
        sizes = [max(0, round(sum(map(mul, whole, known)) / scale)) if len(set(known)) > 1 else known[0] for known in self._sizes]
        allocations = [msgspec.structs.replace(a, size=size) for a, size in zip(self._first.allocations, sizes, strict=True)]
        return EventLog(allocations=allocations, order=self._order, marks=self._first.marks, emptied=self._first.emptied)


def _canonical(log: EventLog) -> list[int]:
    """The events; frees with no allocation between them by number, as autocast's cache empties by address."""
    return [event for run in log.runs() for event in (run if run[0] > 0 else sorted(run, reverse=True))]


def _kinds(log: EventLog) -> list[tuple[str, str, str, int]]:
    streams: dict[int, int] = {}
    return [(a.op, a.phase, a.category, streams.setdefault(a.stream, len(streams))) for a in log.allocations]


def _weights(nodes: Sequence[int], at: int) -> list[Fraction]:
    """Lagrange's: what each node's value counts at another place."""
    found = []
    for node in nodes:
        weight = Fraction(1)
        for other in nodes:
            if other != node:
                weight *= Fraction(at - other, node - other)
        found.append(weight)
    return found
