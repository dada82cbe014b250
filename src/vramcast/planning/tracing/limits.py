"""The largest micro-batch and the longest sequence of a traced step, from a handful of traces.

A batch of one is a program of its own, larger batches are another; of each, the logs at a small grid give the log at any other
point (``tracing.surface``), so that searching costs replays, not traces. What the search finds is traced: where that disagrees,
more lengths are tried, and then every step of the search is traced.
"""

from collections.abc import Callable, Iterator

import msgspec

from vramcast.errors import QuestionError
from vramcast.largest import largest_that_fits
from vramcast.planning.tracing.answer import Traced
from vramcast.planning.training import LARGEST_MICRO_BATCH, LARGEST_SEQ, SEQ_STEP
from vramcast.tracing.allocator.replay import replay
from vramcast.tracing.allocator.settings import AllocatorSettings
from vramcast.tracing.eventlog import EventLog
from vramcast.tracing.extrapolation.surface import Point, Surface
from vramcast.tracing.run import Tracer

_TOLERANCE = 1e-3  # of reserved memory: what a library workspace that grows in steps may add
_BATCHES = (2, 3)
_GRIDS = ((1, 2), (2, 3), (1, 2, 3), (2, 3, 4))  # lengths, in multiples of the one asked about


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A point that was traced after it had been predicted."""

    micro_batch: int
    seq: int
    predicted_bytes: int
    traced_bytes: int

    @property
    def holds(self) -> bool:
        """True when both say the same, but for a workspace."""
        return abs(self.predicted_bytes - self.traced_bytes) <= _TOLERANCE * self.traced_bytes


class LargestBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The largest micro-batch at one length and what it reserves."""

    seq: int
    micro_batch: int
    reserved_bytes: int


class TracedLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How far a step can be pushed in ``room_bytes`` of reserved memory.

    ``reach``: the largest micro-batch over lengths. ``traced``: the points that were traced, ``checks``: those of them that had
    been predicted from others.
    """

    room_bytes: int
    micro_batch: int
    max_micro_batch: int
    seq: int
    max_seq: int
    reach: tuple[LargestBatch, ...]
    traced: tuple[Point, ...]
    checks: tuple[Check, ...]


def limits_of(traced: Traced, tracer: Tracer, *, room_bytes: int) -> TracedLimits:
    """The limits around a traced model in ``room_bytes`` for PyTorch's allocator.

    Raises QuestionError where nothing can be traced at other batches and lengths (a script).
    """
    request = traced.request
    if request is None:
        raise QuestionError("a script decides its own batch and length: limits are found for a named model only")

    def trace_at(micro_batch: int, seq: int) -> EventLog:
        if (micro_batch, seq) == (request.micro_batch, request.seq):
            return traced.result.log
        result = tracer.trace(msgspec.structs.replace(request, micro_batch=micro_batch, seq=seq))
        if result.error:
            raise QuestionError(f"micro-batch {micro_batch}, length {seq:,} failed under the tracer: {result.error}")
        return result.log

    settings = traced.reading.settings
    return find_limits(trace_at, micro_batch=request.micro_batch, seq=request.seq, room_bytes=room_bytes, settings=settings)


def find_limits(
    trace_at: Callable[[int, int], EventLog],
    *,
    micro_batch: int,
    seq: int,
    room_bytes: int,
    settings: AllocatorSettings | None = None,
) -> TracedLimits:
    """The limits around a micro-batch and a length; ``trace_at`` makes the log of any other pair of them."""
    search = _Search(trace_at, seq=seq, room=room_bytes, settings=settings)
    most_batch = search.largest(lambda n: (n, seq), most=LARGEST_MICRO_BATCH)
    longest = SEQ_STEP * search.largest(lambda n: (micro_batch, n * SEQ_STEP), most=LARGEST_SEQ // SEQ_STEP)
    return TracedLimits(
        room_bytes=room_bytes,
        micro_batch=micro_batch,
        max_micro_batch=most_batch,
        seq=seq,
        max_seq=longest,
        reach=tuple(search.reach(_shortest(seq))),
        traced=tuple(search.logs),
        checks=tuple(search.checks),
    )


class _Search:
    """The traces made so far, the surfaces through them, and what is known of each point."""

    def __init__(
        self, trace_at: Callable[[int, int], EventLog], *, seq: int, room: int, settings: AllocatorSettings | None
    ) -> None:
        self.logs: dict[Point, EventLog] = {}
        self.checks: list[Check] = []
        self._trace_at = trace_at
        self._seq = -(-seq // SEQ_STEP) * SEQ_STEP
        self._room = room
        self._settings = settings
        self._grid = {True: 0, False: 0}  # which of _GRIDS holds for a batch of one, for more
        self._surfaces: dict[tuple[bool, int], Surface | None] = {}
        self._reserved: dict[Point, int] = {}

    def largest(self, point: Callable[[int], Point], *, most: int) -> int:
        """The largest n whose point fits; what was predicted is traced, and other lengths are tried until both agree."""
        while True:
            found = largest_that_fits(lambda n: self._predicted(point(n)), room=self._room, most=most)
            end = point(max(found, 1))
            if self._confirmed(end):
                return found
            self._grid[end[0] == 1] += 1

    def reach(self, length: int) -> Iterator[LargestBatch]:
        """The largest micro-batch over lengths that double, by the surfaces that were confirmed."""
        while all(self._surface(one=one) for one in (True, False)):
            batch = largest_that_fits(lambda n, s=length: self._predicted((n, s)), room=self._room, most=LARGEST_MICRO_BATCH)  # type: ignore[misc]
            if batch == 0:
                return
            yield LargestBatch(seq=length, micro_batch=batch, reserved_bytes=self._predicted((batch, length)))
            length *= 2

    def _predicted(self, point: Point) -> int:
        """Reserved bytes at a point by the surface of its kind of batch; traced where there is none."""
        if point in self._reserved:
            return self._reserved[point]
        surface = self._surface(one=point[0] == 1)
        return self._traced(point) if surface is None else self._reserve(surface.at(*point))

    def _confirmed(self, point: Point) -> bool:
        if point in self._reserved:
            return True
        predicted = self._predicted(point)
        check = Check(micro_batch=point[0], seq=point[1], predicted_bytes=predicted, traced_bytes=self._traced(point))
        self.checks.append(check)
        return check.holds

    def _traced(self, point: Point) -> int:
        if point not in self._reserved:
            self._reserved[point] = self._reserve(self._log(point))
        return self._reserved[point]

    def _surface(self, *, one: bool) -> Surface | None:
        """The surface in use for a batch of one or for more; None when no grid of lengths gave one."""
        while self._grid[one] < len(_GRIDS):
            key = one, self._grid[one]
            if key not in self._surfaces:
                self._surfaces[key] = self._through(_GRIDS[self._grid[one]], (1,) if one else _BATCHES)
            surface = self._surfaces[key]
            if surface is not None:
                return surface
            self._grid[one] += 1
        return None

    def _through(self, grid: tuple[int, ...], batches: tuple[int, ...]) -> Surface | None:
        try:
            return Surface({(b, self._seq * n): self._log((b, self._seq * n)) for b in batches for n in grid})
        except ValueError:
            return None

    def _log(self, point: Point) -> EventLog:
        if point not in self.logs:
            self.logs[point] = self._trace_at(*point)
        return self.logs[point]

    def _reserve(self, log: EventLog) -> int:
        return replay(log, self._settings).peak_reserved_bytes


def _shortest(seq: int) -> int:
    """The length from which to double so as to meet the one asked about: a quarter of it where that is a whole step."""
    return next((seq // n for n in (4, 2) if seq % (n * SEQ_STEP) == 0), seq)
