"""Replaying a recorded snapshot through the allocator model, decision by decision: the model's proof against real GPUs.

Every recorded allocation must be served from the same address, every cudaMalloc must happen when and as large as it did, and
every release of cached segments must free the same ones.
"""

from collections.abc import Mapping

import msgspec

from vramcast.errors import UnmodelledError
from vramcast.tracing.allocator.blocks import Block
from vramcast.tracing.allocator.caching import CachingAllocator
from vramcast.tracing.allocator.device import Device
from vramcast.tracing.allocator.settings import SMALL_LIMIT, AllocatorSettings, parse_alloc_conf
from vramcast.tracing.snapshots.file import Snapshot, TraceEvent, recorded_conf
from vramcast.tracing.snapshots.rewind import LiveBlock, StartSegment, restore, rewind

_REPLAYED = {"alloc", "free_completed", "segment_alloc", "segment_free"}
_MOST_REVISIONS = 50


class ReplayReport(msgspec.Struct, kw_only=True):
    """How a replay compares with its recording; sizes in bytes."""

    allocations: int = 0
    same_address: int = 0
    segment_decisions: int = 0
    wrong_decisions: int = 0
    recorded_peak_reserved: int = 0
    peak_reserved: int = 0
    recorded_reserved: int = 0
    reserved: int = 0
    recorded_allocated: int = 0
    allocated: int = 0
    widths_inferred: int = 0
    first_difference: str = ""

    @property
    def exact(self) -> bool:
        """True when no decision and no counter differs."""
        return not self.wrong_decisions and (self.peak_reserved, self.reserved) == (
            self.recorded_peak_reserved,
            self.recorded_reserved,
        )


def replay_snapshot(snapshot: Snapshot, device: int | None = None) -> ReplayReport:
    """Replay the actions of one device (default: the busiest) and compare.

    Raises UnmodelledError for a recording with expandable segments, whose pages a snapshot does not place in pools.
    """
    device = snapshot.busiest_device() if device is None else device
    segments, trace = snapshot.on(device)
    if any(s.is_expandable for s in segments):
        raise UnmodelledError("this snapshot was recorded with expandable_segments: only the native allocator is replayed")
    trace = [e for e in trace if e.action in _REPLAYED]
    settings = parse_alloc_conf(recorded_conf(snapshot))
    widths: dict[int, int] = {}
    for _ in range(_MOST_REVISIONS):
        run = _Run(settings, trace)
        run.start(*rewind(segments, trace), widths)
        revealed = run.play()
        if revealed is None:
            break
        widths.update(revealed)
    run.report.widths_inferred = len(widths)
    run.report.recorded_reserved = sum(s.total_size for s in segments)
    run.report.recorded_allocated = sum(b.size for s in segments for b in s.blocks if b.used)
    return run.report


class _RecordedDevice(Device):
    """Hands out the segments that the recording says came next, and notes when the model wanted another."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[TraceEvent] = []
        self.wrong = 0

    def allocate(self, size: int) -> int | None:
        if self.waiting and self.waiting[0].size == size:
            return self.waiting.pop(0).addr
        self.wrong += 1
        return super().allocate(size)


class _Run:
    """One pass over the recording with a given guess of the unknown widths."""

    def __init__(self, settings: AllocatorSettings, trace: list[TraceEvent]) -> None:
        self.device = _RecordedDevice()
        self.allocator = CachingAllocator(settings, self.device)
        self.trace = trace
        self.used: dict[int, Block] = {}
        self.report = ReplayReport()
        self.recorded_reserved = 0

    def start(self, at_start: Mapping[int, StartSegment], live: Mapping[int, LiveBlock], widths: Mapping[int, int]) -> None:
        self.used = restore(self.allocator, at_start, live, widths)
        self.widths = widths
        self._reserve(self.allocator.reserved_bytes)

    def play(self) -> dict[int, int] | None:
        """Replay everything; returns revealed widths when another pass should start with them."""
        releasing = False
        for place, event in enumerate(self.trace):
            if releasing and event.action != "segment_free":
                self._all_released(place)
            releasing = event.action == "segment_free"
            if event.action == "segment_alloc":
                self.device.waiting.append(event)
                self.report.segment_decisions += 1
                self._reserve(event.size)
            elif event.action == "segment_free":
                self._release(place, event)
            elif event.action == "free_completed":
                self.allocator.free(self.used.pop(event.addr))
            elif event.size:
                revealed = self._allocate(place, event)
                if revealed is not None:
                    return revealed
        self._finish()
        return None

    def _allocate(self, place: int, event: TraceEvent) -> dict[int, int] | None:
        unwanted = self.device.wrong
        block = self.allocator.malloc(event.size, event.stream)
        self.used[event.addr] = block
        self.report.allocations += 1
        if block.address == event.addr:
            self.report.same_address += 1
            return None
        revealed = self._revealed(event.addr)
        if revealed is None:
            self.report.wrong_decisions += self.device.wrong - unwanted + len(self.device.waiting)
            self.device.waiting.clear()
            self._note(place, f"{event.size} B placed at {block.address:#x}, recorded at {event.addr:#x}")
        return revealed

    def _revealed(self, address: int) -> dict[int, int] | None:
        """A free block with the recorded address less than 1 MiB inside it: the used block before it was wider."""
        for pool in self.allocator.pools.values():
            for block in pool.ascending():
                left = block.previous
                if left is None or not block.address < address <= min(block.address + block.size, block.address + SMALL_LIMIT):
                    continue
                if left.used and left.address not in self.widths:
                    return {left.address: address - left.address}
        return None

    def _release(self, place: int, event: TraceEvent) -> None:
        """The recording released a segment: it must be wholly unused in the model too."""
        self.report.segment_decisions += 1
        self._reserve(-event.size)
        block = next((b for b in self._unused() if b.address == event.addr and b.size == event.size), None)
        if block is None:
            self.report.wrong_decisions += 1
            self._note(place, f"segment {event.addr:#x} of {event.size} B was released, but is in use here")
        else:
            self.allocator.drop_segment(block)

    def _all_released(self, place: int) -> None:
        """Emptying the cache leaves no unused segment (garbage collection and max_split_size release only some)."""
        settings = self.allocator.settings
        kept = self._unused()
        if kept and settings.max_split_size_bytes is None and not settings.garbage_collection_threshold:
            self.report.wrong_decisions += len(kept)
            self._note(place, f"{len(kept)} segments unused here were kept")

    def _unused(self) -> list[Block]:
        return [b for p in self.allocator.pools.values() if not p.owner for b in p.ascending() if b.whole_segment]

    def _finish(self) -> None:
        self.report.peak_reserved = self.allocator.peak_reserved_bytes
        self.report.reserved = self.allocator.reserved_bytes
        self.report.allocated = self.allocator.allocated_bytes
        self.report.wrong_decisions += len(self.device.waiting)

    def _reserve(self, more: int) -> None:
        self.recorded_reserved += more
        self.report.recorded_peak_reserved = max(self.report.recorded_peak_reserved, self.recorded_reserved)

    def _note(self, place: int, what: str) -> None:
        self.report.first_difference = self.report.first_difference or f"action {place}: {what}"
