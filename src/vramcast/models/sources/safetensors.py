"""Safetensors headers: names, types, shapes and places of tensors, nothing else read and nothing believed.

Layout (huggingface/safetensors, README "Format"): 8 bytes little-endian header length, a JSON object of that length
(name -> dtype, shape, data_offsets; ``__metadata__`` holds text), then the data, whose offsets count from its own start.
"""

import math
from typing import Any

from vramcast.errors import UnmodelledError, UnsafeFileError
from vramcast.models.inventory import Stored
from vramcast.models.sources.ranges import Ranges
from vramcast.models.sources.strict import parse_json
from vramcast.units import HEADER_BITS, MB, gib
from vramcast.untrusted import shown

LARGEST_HEADER_BYTES = 100 * MB
_MOST_TENSORS = 2_000_000


def read_header(ranges: Ranges) -> tuple[Stored, ...]:
    """Every tensor of one safetensors file, in file order.

    Raises UnsafeFileError when the header is truncated, too large or lies: offsets outside the file, lengths that are not
    dtype x shape, tensors that overlap.
    """
    length = int.from_bytes(ranges.read(0, 8), "little")
    if length > LARGEST_HEADER_BYTES:
        raise _lie(ranges, f"claims a header of {gib(length)}, more than the format's {LARGEST_HEADER_BYTES:,} bytes")
    if 8 + length > ranges.size:
        raise _lie(
            ranges, f"claims a header of {length:,} bytes and is {ranges.size:,} bytes long: it is truncated or something else"
        )
    raw = parse_json(ranges.read(8, length), f"{ranges.name} header", largest=LARGEST_HEADER_BYTES)
    if len(raw) > _MOST_TENSORS:
        raise _lie(ranges, f"lists {len(raw):,} tensors")
    entries = (_span(name, entry, ranges) for name, entry in raw.items() if name != "__metadata__")
    spans = sorted(entries, key=lambda span: span[:2])
    _check_places(spans, ranges, ranges.size - 8 - length)
    return tuple(stored for _, _, stored in spans)


def _span(name: str, entry: Any, ranges: Ranges) -> tuple[int, int, Stored]:
    if not isinstance(entry, dict):
        raise _lie(ranges, f"describes tensor {name[:80]!r} with {type(entry).__name__} where an object was expected")
    dtype, shape = entry.get("dtype"), _numbers(name, entry.get("shape"), ranges)
    begin, end = _pair(name, entry.get("data_offsets"), ranges)
    if not isinstance(dtype, str) or dtype not in HEADER_BITS:
        known = ", ".join(HEADER_BITS)
        raise UnmodelledError(f"{ranges.name}: tensor {name[:80]!r} has type {str(dtype)[:20]!r}: known are {known}")
    size = -(-math.prod(shape) * HEADER_BITS[dtype] // 8)
    if end - begin != size:
        raise _lie(ranges, f"gives tensor {name[:80]!r} {end - begin:,} bytes where {dtype} {list(shape)} takes {size:,}")
    return begin, end, Stored(name, dtype, shape, size)


def _numbers(name: str, value: Any, ranges: Ranges) -> tuple[int, ...]:
    ok = isinstance(value, list) and len(value) <= 16 and all(type(n) is int and 0 <= n < 2**48 for n in value)
    if not ok:
        raise _lie(ranges, f"gives tensor {name[:80]!r} the impossible shape or offsets {shown(value)}")
    return tuple(value)


def _pair(name: str, value: Any, ranges: Ranges) -> tuple[int, int]:
    numbers = _numbers(name, value, ranges)
    if len(numbers) != 2:
        raise _lie(ranges, f"gives tensor {name[:80]!r} the offsets {list(numbers)}: expected a begin and an end")
    return numbers[0], numbers[1]


def _check_places(spans: list[tuple[int, int, Stored]], ranges: Ranges, available: int) -> None:
    last = 0
    for begin, end, stored in spans:
        if begin < last:
            raise _lie(ranges, f"places tensor {stored.name[:80]!r} over the one before it, at byte {begin:,}")
        last = end
    if last > available:
        raise _lie(ranges, f"places tensors up to byte {last:,} of its data, which has {available:,}: the file is truncated")


def _lie(ranges: Ranges, what: str) -> UnsafeFileError:
    return UnsafeFileError(f"{ranges.name} {what}; fetch it again or check where it came from")
