"""Replaying an event log through the allocator model: allocated and reserved peaks, other settings, smaller cards."""

from collections.abc import Callable

import msgspec

from vramcast.tracing.allocator.blocks import Block
from vramcast.tracing.allocator.caching import CachingAllocator, OutOfMemoryError
from vramcast.tracing.allocator.device import Device
from vramcast.tracing.allocator.expandable import ExpandableAllocator
from vramcast.tracing.allocator.settings import AllocatorSettings
from vramcast.tracing.eventlog import EventLog


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What a log cost under one setting. Places are indices into the log's order, -1 when there was no event.

    Allocated: blocks as the allocator rounds them; requested: as the program asked; reserved: the segments that hold them.
    ``reserved_at_peak_bytes``: reserved when allocated was highest. ``segments``: how many there are at the end.
    ``retries``: times the cache was emptied to make room. ``failed_at``: the place of the request that found no memory (None: all
    served), ``failed_request_bytes`` its size.
    """

    peak_allocated_bytes: int
    peak_allocated_at: int
    peak_requested_bytes: int
    peak_reserved_bytes: int
    peak_reserved_at: int
    reserved_at_peak_bytes: int
    segments: int
    retries: int
    failed_at: int | None = None
    failed_request_bytes: int = 0

    @property
    def fragmentation_bytes(self) -> int:
        """Reserved less allocated, each at its own peak."""
        return self.peak_reserved_bytes - self.peak_allocated_bytes

    @property
    def fits(self) -> bool:
        """True when every request was served."""
        return self.failed_at is None


def new_allocator(
    settings: AllocatorSettings | None = None, capacity_bytes: int | None = None, *, device: Device | None = None
) -> CachingAllocator:
    """The allocator model that the settings select, on a card of that capacity (None: unlimited) or on a given device."""
    settings = settings or AllocatorSettings()
    kind = ExpandableAllocator if settings.expandable_segments else CachingAllocator
    return kind(settings, device or Device(capacity_bytes))


def replay(
    log: EventLog, settings: AllocatorSettings | None = None, *, capacity_bytes: int | None = None, since: int = 0
) -> Usage:
    """The peaks of a log under allocator settings; stops at the first request that a card of ``capacity_bytes`` cannot serve.

    ``since``: the place from which on allocated and reserved peaks count, where a program resets its counters.
    """
    allocator = new_allocator(settings, capacity_bytes)
    peaks = _Peaks(allocator, since)
    try:
        _drive(log, allocator, peaks.look)
    except _StoppedError as stop:
        return peaks.usage(failed_at=stop.place, failed_request_bytes=stop.cause.requested_bytes)
    return peaks.usage()


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """What torch.cuda would answer at the end of a log; the peaks are those since the last reset."""

    allocated_bytes: int
    reserved_bytes: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    segments: int


def counters(log: EventLog, settings: AllocatorSettings | None = None, *, since: int = 0) -> Counters:
    """The counters at the end of a log. ``since``: the place from which on peaks count; what is held then counts too."""
    allocator = new_allocator(settings)
    peaks = _Peaks(allocator, since)
    _drive(log, allocator, peaks.look)
    allocated, reserved = allocator.allocated_bytes, allocator.reserved_bytes
    return Counters(
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        peak_allocated_bytes=max(peaks.allocated, allocated),
        peak_reserved_bytes=max(peaks.reserved, reserved),
        segments=allocator.segments,
    )


def reserved_over(log: EventLog, settings: AllocatorSettings | None = None) -> list[int]:
    """Bytes reserved after each event of a log."""
    return counters_over(log, settings)[1]


def counters_over(log: EventLog, settings: AllocatorSettings | None = None) -> tuple[list[int], list[int]]:
    """Bytes allocated after each allocation of a log (0 after a free), and bytes reserved after each event."""
    allocator, size = new_allocator(settings), len(log.order)
    allocated, reserved = [0] * size, [0] * size

    def note(place: int) -> None:
        allocated[place], reserved[place] = allocator.allocated_bytes, allocator.reserved_bytes

    _drive(log, allocator, note)
    for place in range(1, size):
        reserved[place] = reserved[place] or reserved[place - 1]  # a free gives nothing back
    return allocated, reserved


def smallest_card_bytes(log: EventLog, settings: AllocatorSettings | None = None, *, step_bytes: int = 2 << 20) -> int:
    """The least memory for PyTorch's allocator in which the whole log is served, cache retries included.

    A card as large as what a served run reserved would have served it in the same way, and one smaller than the least that was
    refused would have failed in the same way: every replay halves the range and then ends it at such a border.
    """
    whole = replay(log, settings)
    borders = settings is None or settings.memory_fraction is None  # a fraction moves with the card
    low, high = whole.peak_requested_bytes // step_bytes, -(-whole.peak_reserved_bytes // step_bytes)
    while low < high:
        middle = (low + high) // 2
        allocator = new_allocator(settings, middle * step_bytes)
        try:
            _drive(log, allocator, lambda _: None)
        except _StoppedError:
            refused = allocator.device.least_refused_bytes if borders else None
            low = max(middle + 1, -(-(refused or 0) // step_bytes))
        else:
            high = -(-allocator.peak_reserved_bytes // step_bytes) if borders else middle
    return high * step_bytes


class _StoppedError(Exception):
    def __init__(self, place: int, cause: OutOfMemoryError) -> None:
        super().__init__(str(cause))
        self.place = place
        self.cause = cause


class _Peaks:
    """Notes where the counters of an allocator reach their maxima."""

    def __init__(self, allocator: CachingAllocator, since: int) -> None:
        self.allocator, self.since = allocator, since
        self.allocated = self.reserved = self.reserved_at_peak = 0
        self.allocated_at = self.reserved_at = -1

    def look(self, place: int) -> None:
        allocator = self.allocator
        if place < self.since:
            return
        if allocator.allocated_bytes > self.allocated:
            self.allocated, self.allocated_at = allocator.allocated_bytes, place
            self.reserved_at_peak = allocator.reserved_bytes
        if allocator.reserved_bytes > self.reserved:
            self.reserved, self.reserved_at = allocator.reserved_bytes, place

    def usage(self, *, failed_at: int | None = None, failed_request_bytes: int = 0) -> Usage:
        return Usage(
            peak_allocated_bytes=self.allocated,
            peak_allocated_at=self.allocated_at,
            peak_requested_bytes=self.allocator.peak_requested_bytes,
            peak_reserved_bytes=self.reserved,
            peak_reserved_at=self.reserved_at,
            reserved_at_peak_bytes=self.reserved_at_peak,
            segments=self.allocator.segments,
            retries=self.allocator.retries,
            failed_at=failed_at,
            failed_request_bytes=failed_request_bytes,
        )


def _drive(log: EventLog, allocator: CachingAllocator, look: Callable[[int], None]) -> None:
    sizes = [a.size for a in log.allocations]
    streams = [a.stream for a in log.allocations]
    blocks: list[Block | None] = [None] * (len(sizes) + 1)
    malloc, free = allocator.malloc, allocator.free
    emptied = frozenset(log.emptied)
    for place, event in enumerate(log.order):
        if emptied and place in emptied:
            allocator.empty_cache()
        if event < 0:
            block = blocks[-event]
            if block is not None:
                free(block)
        elif sizes[event - 1]:
            try:
                blocks[event] = malloc(sizes[event - 1], streams[event - 1])
            except OutOfMemoryError as error:
                raise _StoppedError(place, error) from None
            look(place)
