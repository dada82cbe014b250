"""The card behind the allocator: hands out address ranges as cudaMalloc does, and refuses what does not fit."""

from vramcast.units import MiB

_GUARD = 2 * MiB  # the model leaves a hole between segments, so that no two ever merge


class Device:
    """Memory of one GPU; ``capacity_bytes`` is what one process may reserve (None: no limit).

    ``least_refused_bytes``: the smallest capacity that would have granted a request that was refused (None: none was).
    """

    def __init__(self, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self.least_refused_bytes: int | None = None
        self._next_address = 1 << 40

    def allocate(self, size: int) -> int | None:
        """The address of a new segment, or None when it does not fit."""
        if not self.commit(size):
            return None
        return self.address_space(size)

    def release(self, address: int, size: int) -> None:
        """Give a segment back."""
        del address
        self.used_bytes -= size

    def commit(self, size: int) -> bool:
        """Put pages behind addresses (cuMemCreate); False when the card has none left."""
        if self.capacity_bytes is not None and self.used_bytes + size > self.capacity_bytes:
            refused = self.least_refused_bytes
            self.least_refused_bytes = min(self.used_bytes + size, refused or self.used_bytes + size)
            return False
        self.used_bytes += size
        return True

    def address_space(self, size: int, *, aligned_to: int = MiB) -> int:
        """A range of addresses with nothing behind it yet."""
        address = -(-self._next_address // aligned_to) * aligned_to
        self._next_address = address + size + _GUARD
        return address
