"""What the CUDA caching allocator counts as allocated for one tensor: its size rounded as its segments are.

Source: pytorch c10/cuda/CUDACachingAllocator.cpp: blocks are multiples of 512 B; a request of 10 MiB or more gets a segment of
its own, rounded up to 2 MiB, and is not split when at most 1 MiB would remain, so the remainder counts as allocated. Segments
that grow (``expandable_segments:True``) are split down to 512 B (should_split).
"""

from vramcast.units import MiB

_BLOCK = 512
_OWN_SEGMENT = 10 * MiB
_SEGMENT_STEP = 2 * MiB
_LEAST_REMAINDER = 1 * MiB


def allocated_bytes(size_bytes: float, *, expandable: bool = False) -> int:
    """Bytes that ``torch.cuda.memory_allocated`` grows by for one new tensor of that size."""
    size = -(-int(size_bytes) // _BLOCK) * _BLOCK
    if size < _OWN_SEGMENT or expandable:
        return size
    segment = -(-size // _SEGMENT_STEP) * _SEGMENT_STEP
    return segment if segment - size <= _LEAST_REMAINDER else size
