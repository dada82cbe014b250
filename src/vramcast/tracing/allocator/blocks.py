"""Blocks and the free lists they wait in: the data structure of the caching allocator model."""

from bisect import bisect_left, insort

_SHIFT = 50  # addresses are below 2^50 (48 bits of CUDA address space, and the model's own)


class Block:
    """A stretch of device memory inside one segment, with its neighbours in address order.

    ``mapped`` is False only for address space of an expandable segment that has no pages behind it.
    """

    __slots__ = ("address", "born", "mapped", "next", "pool", "previous", "requested", "size", "used")

    def __init__(self, address: int, size: int, pool: "Pool", *, mapped: bool = True) -> None:
        self.address = address
        self.size = size
        self.pool = pool
        self.mapped = mapped
        self.used = False
        self.requested = 0
        self.born = 0
        self.previous: Block | None = None
        self.next: Block | None = None

    @property
    def whole_segment(self) -> bool:
        """True when the block is all of its segment."""
        return self.previous is None and self.next is None

    def insert_after(self, left: "Block") -> None:
        """Link this block behind ``left``."""
        self.previous, self.next = left, left.next
        if left.next is not None:
            left.next.previous = self
        left.next = self

    def absorb_next(self) -> None:
        """Take over the right neighbour's bytes and place."""
        right = self.next
        if right is None:
            raise ValueError("a block without a right neighbour has nothing to absorb")
        self.size += right.size
        self.next = right.next
        if right.next is not None:
            right.next.previous = self


class Pool:
    """The free blocks of one kind (small or large), stream and owner, ordered by size, then address.

    ``owner`` is 0 for the ordinary pools and the id of a private (CUDA graph) pool otherwise. ``searches`` counts lookups, the
    clock by which garbage collection measures a free block's age.
    """

    __slots__ = ("_free", "_keys", "owner", "searches", "small", "stream", "unmapped")

    def __init__(self, *, small: bool, stream: int, owner: int = 0) -> None:
        self.small = small
        self.stream = stream
        self.owner = owner
        self.searches = 0
        self.unmapped: list[Block] = []
        self._keys: list[int] = []
        self._free: dict[int, Block] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def insert(self, block: Block) -> None:
        """Add a free block."""
        key = block.size << _SHIFT | block.address
        block.born = self.searches
        insort(self._keys, key)
        self._free[key] = block

    def remove(self, block: Block) -> None:
        """Take a given free block out."""
        key = block.size << _SHIFT | block.address
        del self._keys[bisect_left(self._keys, key)]
        del self._free[key]

    def at_least(self, size: int) -> "tuple[int, Block | None]":
        """The place and block of the best fit: the smallest free block of ``size`` bytes or more, lowest address first."""
        place = bisect_left(self._keys, size << _SHIFT)
        return place, self._free[self._keys[place]] if place < len(self._keys) else None

    def nth(self, place: int) -> Block:
        """The free block at a place of the order by size and address."""
        return self._free[self._keys[place]]

    def best_fit(self, size: int) -> Block | None:
        """Take the best fit out, if there is one."""
        keys = self._keys
        place = bisect_left(keys, size << _SHIFT)
        return self._free.pop(keys.pop(place)) if place < len(keys) else None

    def ascending(self) -> list[Block]:
        """All free blocks, smallest first."""
        return [self._free[key] for key in self._keys]
