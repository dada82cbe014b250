"""What the caching allocator gives back, and when: garbage collection, oversize segments, and the retry after running out.

The order of an allocation that finds no free block (``CUDACachingAllocator.cpp``, malloc): collect garbage if a threshold is
set, cudaMalloc, release large enough cached oversize segments, cudaMalloc, release every wholly unused segment, cudaMalloc.
"""

from collections.abc import Iterator
from typing import Protocol

from vramcast.tracing.allocator.blocks import Block, Pool
from vramcast.tracing.allocator.settings import AllocatorSettings


class Reclaimable(Protocol):
    """What of an allocator its rules of giving back look at and change."""

    settings: AllocatorSettings
    pools: dict[tuple[bool, int, int], Pool]
    reserved_bytes: int
    retries: int
    capturing: bool

    @property
    def memory_limit_bytes(self) -> int | None:
        """What this process may reserve."""

    def drop_segment(self, block: Block) -> None:
        """Give back the segment that this free block is."""

    def empty_cache(self) -> None:
        """Give back every segment that holds no used block."""


def fit_within_split_limit(allocator: Reclaimable, pool: Pool, size: int) -> Block | None:
    """The best fit under max_split_size: oversize blocks serve only oversize requests that they nearly equal."""
    settings = allocator.settings
    limit = settings.max_split_size_bytes or 0
    _, block = pool.at_least(size)
    if block is None or (size < limit <= block.size):
        return None
    if size >= limit and block.size >= size + settings.max_non_split_rounding_bytes:
        return None
    pool.remove(block)
    return block


def collect_garbage(allocator: Reclaimable) -> None:
    """Release the oldest unused large segments until reserved memory is back under the threshold."""
    threshold = allocator.settings.garbage_collection_threshold * (allocator.memory_limit_bytes or 0)
    target = allocator.reserved_bytes - int(threshold)
    idle = [b for p in allocator.pools.values() if not p.small and not p.owner for b in p.ascending() if b.whole_segment]
    while target > 0 and idle:
        oldest = sum(map(_age, idle)) / len(idle)
        due = [b for b in idle if _age(b) >= oldest]
        for block in due:
            if target <= 0:
                return
            allocator.drop_segment(block)
            target -= block.size
        idle = [b for b in idle if b not in due]


def release_oversize(allocator: Reclaimable, pool: Pool, size: int) -> bool:
    """Release one cached oversize segment that is large enough, or several of them; False when that cannot make room."""
    limit = allocator.settings.max_split_size_bytes
    if limit is None:
        return False
    wanted = max(size, limit)
    _, block = pool.at_least(wanted)
    if block is not None:
        if block.whole_segment:
            allocator.drop_segment(block)
        return block.whole_segment
    released = 0
    for candidate in reversed(pool.ascending()):
        if released >= wanted or candidate.size < limit:
            break
        if candidate.whole_segment:
            released += candidate.size
            allocator.drop_segment(candidate)
    return released >= wanted


def release_for_retry(allocator: Reclaimable, pool: Pool, size: int) -> bool:
    """Release every wholly unused segment before the last attempt; not while a graph is being captured."""
    del pool, size
    if allocator.capturing:
        return False
    allocator.retries += 1
    allocator.empty_cache()
    return True


def release_unused(allocator: Reclaimable) -> None:
    """Release every wholly unused segment of the ordinary pools; a private pool keeps its own while its graphs are there."""
    for block in list(_unused_segments(allocator)):
        allocator.drop_segment(block)


def _unused_segments(allocator: Reclaimable) -> Iterator[Block]:
    for pool in allocator.pools.values():
        if not pool.owner:
            yield from (block for block in pool.ascending() if block.whole_segment)


def _age(block: Block) -> int:
    return block.pool.searches - block.born
