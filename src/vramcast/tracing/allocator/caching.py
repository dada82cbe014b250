"""PyTorch's CUDA caching allocator, modelled exactly: which block serves a request, and when cudaMalloc is called.

Rules after ``c10/cuda/CUDACachingAllocator.cpp`` (torch 2.13; unchanged in substance since 1.11). A request is rounded to
512 bytes; at most 1 MiB goes to the small pool of its stream, the rest to the large one; the best fit among free blocks is
taken; without one a segment is made (2 MiB, 20 MiB or the request rounded to 2 MiB). A block is split when 512 bytes (small)
or more than 1 MiB (large) would remain: otherwise the slack stays in the block and counts as allocated. A freed block merges
with its free neighbours; its segment stays reserved until memory runs out.
"""

from vramcast.errors import VramcastError
from vramcast.tracing.allocator import reclaim
from vramcast.tracing.allocator.blocks import Block, Pool
from vramcast.tracing.allocator.device import Device
from vramcast.tracing.allocator.settings import MIN_BLOCK, SMALL_LIMIT, AllocatorSettings
from vramcast.units import gib


class OutOfMemoryError(VramcastError):
    """The card could not serve a request, even after every cached segment was given back."""

    exit_code = 1

    def __init__(self, requested_bytes: int, allocator: "CachingAllocator") -> None:
        self.requested_bytes = requested_bytes
        self.allocated_bytes = allocator.allocated_bytes
        self.reserved_bytes = allocator.reserved_bytes
        idle = self.reserved_bytes - self.allocated_bytes
        super().__init__(
            f"out of memory: {gib(requested_bytes)} requested with {gib(self.allocated_bytes)} allocated and"
            f" {gib(idle)} reserved but unallocated"
        )


class CachingAllocator:
    """The native allocator of one device. ``malloc`` returns the block, which ``free`` takes back.

    Counters follow torch.cuda.memory_stats: ``allocated_bytes`` (block sizes, slack included), ``requested_bytes`` (what was
    asked), ``reserved_bytes`` (segments), each with its peak; ``segments`` alive; ``retries`` after running out of memory.
    """

    def __init__(self, settings: AllocatorSettings | None = None, device: Device | None = None) -> None:
        self.settings = settings or AllocatorSettings()
        self.device = device or Device()
        self.pools: dict[tuple[bool, int, int], Pool] = {}
        self.allocated_bytes = self.requested_bytes = self.reserved_bytes = 0
        self.peak_allocated_bytes = self.peak_requested_bytes = self.peak_reserved_bytes = 0
        self.segments = self.retries = 0
        self.capturing = False
        self._round = self.settings.rounding()
        self._collects = self.settings.garbage_collection_threshold > 0 and self.settings.memory_fraction is not None
        ordinary = self.settings.max_split_size_bytes is None and not self._collects
        self._plain = ordinary and type(self) is CachingAllocator  # the rules of _find and _splits without their calls

    @property
    def memory_limit_bytes(self) -> int | None:
        """What set_per_process_memory_fraction leaves to this process, or None when it was not called."""
        fraction, capacity = self.settings.memory_fraction, self.device.capacity_bytes
        return None if fraction is None or capacity is None else int(fraction * capacity)

    def malloc(self, requested: int, stream: int = 0, owner: int = 0) -> Block:
        """The block that serves ``requested`` bytes (above 0) on a stream, for a private pool when ``owner`` is not 0.

        Raises OutOfMemoryError when the device has no room left after everything cached was given back.
        """
        size = self._round(requested)
        small = size <= SMALL_LIMIT
        pool = self.pools.get((small, stream, owner)) or self._pool(small, stream, owner)
        block = (pool.best_fit(size) if self._plain else self._find(pool, size)) or self._grow(pool, size, requested)
        rest = block.size - size
        if rest and ((rest > SMALL_LIMIT or small) if self._plain else self._splits(pool, size, rest)):
            self._split(block, size, rest)
        block.used = True
        block.requested = requested
        self.requested_bytes += requested
        self.allocated_bytes += block.size
        if self.allocated_bytes > self.peak_allocated_bytes:  # noqa: PLR1730 (max() costs a tenth of a replay)
            self.peak_allocated_bytes = self.allocated_bytes
        if self.requested_bytes > self.peak_requested_bytes:  # noqa: PLR1730
            self.peak_requested_bytes = self.requested_bytes
        return block

    def free(self, block: Block) -> None:
        """Take a block back and merge it with its free neighbours."""
        self.allocated_bytes -= block.size
        self.requested_bytes -= block.requested
        block.used = False
        self._release_to_pool(block)

    def empty_cache(self) -> None:
        """Give back every segment that holds no used block: torch.cuda.empty_cache()."""
        reclaim.release_unused(self)

    def drop_segment(self, block: Block) -> None:
        """Give back (cudaFree) the segment that this free block is."""
        block.pool.remove(block)
        self.device.release(block.address, block.size)
        self.reserved_bytes -= block.size
        self.segments -= 1

    def adopt_segment(self, address: int, size: int, pool: Pool) -> Block:
        """Count a segment that the device handed out, and return the block that spans it."""
        self.segments += 1
        self._reserve(size)
        return Block(address, size, pool)

    def _pool(self, small: bool, stream: int, owner: int) -> Pool:
        pool = self.pools.get((small, stream, owner))
        if pool is None:
            pool = self.pools[small, stream, owner] = Pool(small=small, stream=stream, owner=owner)
        return pool

    def _find(self, pool: Pool, size: int) -> Block | None:
        pool.searches += self._collects
        return (
            pool.best_fit(size)
            if self.settings.max_split_size_bytes is None
            else reclaim.fit_within_split_limit(self, pool, size)
        )

    def _splits(self, pool: Pool, size: int, rest: int) -> bool:
        if pool.small:
            return rest >= MIN_BLOCK
        limit = self.settings.max_split_size_bytes
        return rest > SMALL_LIMIT and (limit is None or size < limit)

    def _split(self, block: Block, size: int, rest: int) -> None:
        remainder = Block(block.address + size, rest, block.pool)
        remainder.insert_after(block)
        block.size = size
        block.pool.insert(remainder)

    def _grow(self, pool: Pool, size: int, requested: int) -> Block:
        if self._collects:
            reclaim.collect_garbage(self)
        for release in (None, reclaim.release_oversize, reclaim.release_for_retry):
            if release is not None and not release(self, pool, size):
                continue
            block = self._new_segment(pool, size)
            if block is not None:
                return block
        raise OutOfMemoryError(requested, self)

    def _new_segment(self, pool: Pool, size: int) -> Block | None:
        segment_bytes = self.settings.segment_bytes(size)
        if not self._within_limit(segment_bytes):
            return None
        address = self.device.allocate(segment_bytes)
        return None if address is None else self.adopt_segment(address, segment_bytes, pool)

    def _within_limit(self, more_bytes: int) -> bool:
        limit = self.memory_limit_bytes
        return limit is None or self.reserved_bytes + more_bytes <= limit

    def _reserve(self, size: int) -> None:
        self.reserved_bytes += size
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)

    def _release_to_pool(self, block: Block) -> None:
        pool = block.pool
        right = block.next
        if right is not None and not right.used and right.mapped:
            pool.remove(right)
            block.absorb_next()
        left = block.previous
        if left is not None and not left.used and left.mapped:
            pool.remove(left)
            left.absorb_next()
            block = left
        pool.insert(block)
