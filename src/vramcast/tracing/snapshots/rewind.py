"""The allocator's state when a recording began, found by undoing the recorded actions from the final state.

A snapshot holds the segments at its end and the actions that led there, so everything before the first action is known but one
thing: a block that was alive when recording began and was freed during it may have been wider than its rounded request (the
unsplit slack of the large pool, at most 1 MiB). ``widths`` carries what later actions revealed about those.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import pairwise

import msgspec

from vramcast.tracing.allocator.blocks import Block, Pool
from vramcast.tracing.allocator.caching import CachingAllocator
from vramcast.tracing.allocator.settings import SMALL_LIMIT, SMALL_SEGMENT
from vramcast.tracing.snapshots.file import Segment, TraceEvent


class LiveBlock(msgspec.Struct):
    """A block in use at the start: its requested bytes, and its width when the final state shows it."""

    requested: int
    size: int | None = None


class StartSegment(msgspec.Struct):
    """A segment that existed at the start."""

    address: int
    size: int
    small: bool
    stream: int
    owner: int = 0


def rewind(segments: Iterable[Segment], trace: list[TraceEvent]) -> tuple[dict[int, StartSegment], dict[int, LiveBlock]]:
    """Segments and used blocks, by address, before the first recorded action."""
    at_start = {s.address: _as_start(s) for s in segments}
    live = {
        address: LiveBlock(block.requested_size or block.size, block.size)
        for segment in segments
        for address, block in segment.placed()
        if block.used
    }
    for event in reversed(trace):
        if event.action == "alloc":
            live.pop(event.addr, None)
        elif event.action == "free_completed":
            live[event.addr] = LiveBlock(event.size)
        elif event.action == "segment_alloc":
            at_start.pop(event.addr, None)
        elif event.action == "segment_free":
            at_start[event.addr] = StartSegment(event.addr, event.size, event.size == SMALL_SEGMENT, event.stream)
    return at_start, live


def restore(
    allocator: CachingAllocator, at_start: Mapping[int, StartSegment], live: Mapping[int, LiveBlock], widths: Mapping[int, int]
) -> dict[int, Block]:
    """Lay segments and blocks out in a fresh allocator; returns the used blocks by address."""
    starts = sorted(at_start)
    inside: dict[int, list[int]] = {start: [] for start in starts}
    for address in sorted(live):
        place = bisect_right(starts, address) - 1
        if place >= 0:
            inside[starts[place]].append(address)
    used: dict[int, Block] = {}
    for start in starts:
        segment = at_start[start]
        pool = allocator.pools.setdefault(
            (segment.small, segment.stream, segment.owner),
            Pool(small=segment.small, stream=segment.stream, owner=segment.owner),
        )
        whole = allocator.adopt_segment(segment.address, segment.size, pool)
        used.update(_lay_out(allocator, whole, inside[start], live, widths))
    return used


def _lay_out(
    allocator: CachingAllocator,
    whole: Block,
    addresses: list[int],
    live: Mapping[int, LiveBlock],
    widths: Mapping[int, int],
) -> dict[int, Block]:
    used: dict[int, Block] = {}
    rest, end = whole, whole.address + whole.size
    for address, following in pairwise([*addresses, end]):
        if address > rest.address:
            rest = _cut(rest, address)
            if rest.previous is not None:
                rest.pool.insert(rest.previous)
        block, size = rest, _width(allocator, whole.pool, live[address], following - address, widths.get(address))
        if size < block.size:
            rest = _cut(block, address + size)
        block.used, block.requested = True, live[address].requested
        allocator.allocated_bytes += block.size
        allocator.requested_bytes += block.requested
        used[address] = block
        if rest is block:
            return used
    rest.pool.insert(rest)
    return used


def _width(allocator: CachingAllocator, pool: Pool, block: LiveBlock, room: int, revealed: int | None) -> int:
    """A block's bytes: as the final state shows, as later actions revealed, or its rounded request.

    The room before the next block is slack when it is too small for a remainder that would have been split off.
    """
    if block.size is not None:
        return block.size
    rounded = revealed or allocator.settings.rounding()(block.requested)
    slack = room - rounded
    return room if not pool.small and 0 < slack <= SMALL_LIMIT else rounded


def _cut(block: Block, address: int) -> Block:
    right = Block(address, block.address + block.size - address, block.pool)
    right.insert_after(block)
    block.size = address - block.address
    return right


def _as_start(segment: Segment) -> StartSegment:
    owner = hash(segment.segment_pool_id) if any(segment.segment_pool_id) else 0
    return StartSegment(segment.address, segment.total_size, segment.segment_type == "small", segment.stream, owner)
