"""What PYTORCH_ALLOC_CONF can change in PyTorch's caching allocator, and the size rules that follow from it.

Names, defaults and arithmetic follow ``c10/core/AllocatorConfig.h`` and ``c10/cuda/CUDACachingAllocator.cpp`` (torch 2.13).
"""

import re
from collections.abc import Callable

import msgspec

from vramcast.errors import QuestionError, unknown_name
from vramcast.units import MiB

MIN_BLOCK = 512
SMALL_LIMIT = MiB
SMALL_SEGMENT = 2 * MiB
LARGE_SEGMENT = 20 * MiB
MIN_LARGE = 10 * MiB
LARGE_STEP = 2 * MiB
_INTERVALS = 16  # roundup_power2_divisions has one entry per power of two from 1 MiB to 32 GiB and above
_ENTRY = re.compile(r"\s*([a-z0-9_]+)\s*:\s*(\[[^\]]*\]|[^,\[\]]+)\s*(?:,|$)")


class AllocatorSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The allocator's knobs; the defaults are PyTorch's.

    ``memory_fraction``: ``set_per_process_memory_fraction``; only when it is set does the garbage collection threshold act.
    ``roundup_power2_divisions``: one number of divisions per power of two from 1 MiB up (the last holds for all above).
    """

    expandable_segments: bool = False
    max_split_size_bytes: int | None = None
    max_non_split_rounding_bytes: int = LARGE_SEGMENT
    large_segment_bytes: int = LARGE_SEGMENT
    garbage_collection_threshold: float = 0.0
    memory_fraction: float | None = None
    roundup_power2_divisions: tuple[int, ...] = ()

    def rounding(self) -> Callable[[int], int]:
        """The function from requested to block bytes."""
        return self._round_up_power2 if any(d > 1 for d in self.roundup_power2_divisions) else round_to_block

    def segment_bytes(self, rounded: int) -> int:
        """Bytes of the cudaMalloc made for a block of ``rounded`` bytes that no free block can serve."""
        if rounded <= SMALL_LIMIT:
            return SMALL_SEGMENT
        if rounded < MIN_LARGE:
            return self.large_segment_bytes
        return -(-rounded // LARGE_STEP) * LARGE_STEP

    def _round_up_power2(self, size: int) -> int:
        interval = min(max(size.bit_length() - 21, 0), len(self.roundup_power2_divisions) - 1)
        divisions = self.roundup_power2_divisions[interval]
        if divisions <= 1 or size <= MIN_BLOCK * divisions:
            return round_to_block(size)
        floor = 1 << (size.bit_length() - 1)
        step = floor >> (divisions.bit_length() - 1)
        if floor == size:
            return size
        return -(-size // step) * step if step else floor << 1


def round_to_block(size: int) -> int:
    """The default rounding: the next multiple of 512 bytes, at least one."""
    return (size + 511) & ~511 if size > MIN_BLOCK else MIN_BLOCK


def parse_alloc_conf(text: str) -> AllocatorSettings:
    """Settings from the text of ``PYTORCH_ALLOC_CONF`` (or ``PYTORCH_CUDA_ALLOC_CONF``).

    Options that change no device memory (``backend:native``, the pinned-memory ones) are accepted and have no effect.
    Raises QuestionError for an unknown option, a malformed value, or ``backend:cudaMallocAsync``, which is another allocator.
    """
    values: dict[str, object] = {}
    position = 0
    for match in _ENTRY.finditer(text):
        if match.start() != position:
            break
        position = match.end()
        values.update(_option(match[1], match[2].strip()))
    if text[position:].strip():
        raise QuestionError(f"PYTORCH_ALLOC_CONF is not name:value,... at {text[position : position + 40]!r}")
    return msgspec.convert(values, AllocatorSettings)


def _option(name: str, value: str) -> dict[str, object]:
    if name.startswith("pinned_") or name in _WITHOUT_EFFECT:
        return {}
    if name == "backend":
        if value == "native":
            return {}
        raise QuestionError(f"PYTORCH_ALLOC_CONF backend:{value} is not PyTorch's own allocator: only backend:native is modelled")
    if name not in _PARSERS:
        raise unknown_name("allocator option", name, [*_PARSERS, "backend"])
    field, parse = _PARSERS[name]
    try:
        return {field: parse(value)}
    except ValueError as error:
        raise QuestionError(f"PYTORCH_ALLOC_CONF {name} is {value!r}: {error}") from None


def _megabytes(value: str) -> int:
    number = int(value)
    if not 1 <= number <= 10**7:
        raise ValueError("expected MiB from 1 to 10,000,000")
    return number * MiB


def _flag(value: str) -> bool:
    if value.lower() not in {"true", "false"}:
        raise ValueError("expected True or False")
    return value.lower() == "true"


def _fraction(value: str) -> float:
    number = float(value)
    if not 0 < number <= 1:
        raise ValueError("expected a fraction above 0 and at most 1")
    return number


def _divisions(value: str) -> tuple[int, ...]:
    if not value.startswith("["):
        return (_power_of_two(value),) * _INTERVALS
    table = [0] * _INTERVALS
    reached = -1
    for pair in value.strip("[]").split(","):
        bound, _, divisions = (part.strip() for part in pair.partition(":"))
        last = _INTERVALS - 1 if bound == ">" else min(_power_of_two(bound).bit_length() - 1, _INTERVALS - 1)
        start = last if reached >= 0 and bound != ">" else reached + 1
        table[start : last + 1] = [_power_of_two(divisions)] * (last + 1 - start)
        reached = last
    return tuple(table)


def _power_of_two(text: str) -> int:
    number = int(text)
    if number < 0 or number & (number - 1):
        raise ValueError(f"{number} is not a power of two")
    return number


_WITHOUT_EFFECT = {"release_lock_on_cudamalloc", "graph_capture_record_stream_reuse", "throw_on_cudamalloc_oom"}
_PARSERS: dict[str, tuple[str, Callable[[str], object]]] = {
    "expandable_segments": ("expandable_segments", _flag),
    "max_split_size_mb": ("max_split_size_bytes", _megabytes),
    "max_non_split_rounding_mb": ("max_non_split_rounding_bytes", _megabytes),
    "large_segment_size_mb": ("large_segment_bytes", _megabytes),
    "garbage_collection_threshold": ("garbage_collection_threshold", _fraction),
    "per_process_memory_fraction": ("memory_fraction", _fraction),
    "roundup_power2_divisions": ("roundup_power2_divisions", _divisions),
}
