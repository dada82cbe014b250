"""The caching allocator with ``expandable_segments:True``: one range of addresses per pool, pages mapped behind it on demand.

Rules after ``ExpandableSegment``, ``map_block`` and ``unmap_block`` in ``c10/cuda/CUDACachingAllocator.cpp``. Pages are 2 MiB in
the small pool and as large as a large segment (20 MiB) in the large one. Blocks are split whenever 512 bytes remain, so there is
no slack, and a free block may grow into the unmapped range behind it. The model validates the native allocator against
recordings; no public recording of this mode was found, so it follows the source alone.
"""

from vramcast.tracing.allocator.blocks import Block, Pool
from vramcast.tracing.allocator.caching import CachingAllocator
from vramcast.tracing.allocator.settings import MIN_BLOCK, SMALL_SEGMENT
from vramcast.units import TiB

_ADDRESS_SPACE = TiB  # 9/8 of the card's memory on the real device; only its being larger than any card matters


class ExpandableAllocator(CachingAllocator):
    """The allocator of one device with expandable segments; private (graph) pools use them too."""

    def empty_cache(self) -> None:
        """Unmap every page that lies wholly inside a free block."""
        for pool in self.pools.values():
            if not pool.owner:
                for block in pool.ascending():
                    self._unmap(block)

    def _find(self, pool: Pool, size: int) -> Block | None:
        place, block = pool.at_least(size)
        if block is None:
            return None
        while not block.whole_segment and place + 1 < len(pool) and _reach(pool.nth(place + 1)) < _reach(block):
            place += 1
            block = pool.nth(place)
        pool.remove(block)
        return block

    def _splits(self, pool: Pool, size: int, rest: int) -> bool:
        del pool, size
        return rest >= MIN_BLOCK

    def _new_segment(self, pool: Pool, size: int) -> Block | None:
        block = self._candidate(pool, size)
        if not block.mapped:
            mapped = self._map(block, min(block.size, size))
            if mapped is None:
                return None
            block = mapped
        while block.size < size:
            unmapped = block.next
            grown = None if unmapped is None else self._map(unmapped, min(size - block.size, unmapped.size))
            if grown is None:
                return None
            block = grown
        pool.remove(block)
        return block

    def _candidate(self, pool: Pool, size: int) -> Block:
        for unmapped in pool.unmapped:
            left = unmapped.previous
            start = left if left is not None and not left.used else unmapped
            if _room_from(start, size):
                return start
        base = self.device.address_space(_ADDRESS_SPACE, aligned_to=self._page(pool))
        head = Block(base, _ADDRESS_SPACE, pool, mapped=False)
        self.segments += 1
        self._note_unmapped(head)
        return head

    def _map(self, block: Block, size: int) -> Block | None:
        page = self._page(block.pool)
        mapped = min(-(-size // page) * page, block.size)
        if not self._within_limit(mapped) or not self.device.commit(mapped):
            return None
        block.pool.unmapped.remove(block)
        block.mapped = True
        if mapped < block.size:
            rest = Block(block.address + mapped, block.size - mapped, block.pool, mapped=False)
            rest.insert_after(block)
            block.size = mapped
            self._note_unmapped(rest)
        self._reserve(mapped)
        return self._merged(block)

    def _merged(self, block: Block) -> Block:
        left = block.previous
        self._release_to_pool(block)
        return left if left is not None and left.next is not block else block

    def _unmap(self, block: Block) -> None:
        page, pool = self._page(block.pool), block.pool
        start = -(-block.address // page) * page
        end = (block.address + block.size) // page * page
        if end <= start:
            return
        pool.remove(block)
        if start > block.address:
            pool_part, block = block, _cut(block, start)
            pool.insert(pool_part)
        if block.address + block.size > end:
            pool.insert(_cut(block, end))
        block.mapped = False
        self.device.release(block.address, block.size)
        self.reserved_bytes -= block.size
        self._merge_unmapped(block)

    def _merge_unmapped(self, block: Block) -> None:
        right, left = block.next, block.previous
        if right is not None and not right.mapped:
            block.pool.unmapped.remove(right)
            block.absorb_next()
        if left is not None and not left.mapped:
            left.absorb_next()
        else:
            self._note_unmapped(block)

    def _note_unmapped(self, block: Block) -> None:
        block.pool.unmapped.append(block)
        block.pool.unmapped.sort(key=lambda b: b.address)

    def _page(self, pool: Pool) -> int:
        return SMALL_SEGMENT if pool.small else self.settings.large_segment_bytes


def _cut(block: Block, address: int) -> Block:
    """Split a block at an address inside it; returns the part from there on."""
    right = Block(address, block.address + block.size - address, block.pool)
    right.insert_after(block)
    block.size = address - block.address
    return right


def _reach(block: Block) -> int:
    """What a block can grow to: its size and the unmapped range behind it."""
    behind = block.next
    return block.size + (behind.size if behind is not None and not behind.mapped else 0)


def _room_from(block: Block | None, size: int) -> bool:
    room = 0
    while room < size and block is not None and not block.used:
        room += block.size
        block = block.next
    return room >= size
