"""GGUF headers, read without trusting a byte: metadata, and every tensor's type, shape and place.

Layout (ggml, docs/gguf.md): magic, version, tensor count, key-value count, the key-values, then one record per tensor
(name, dimensions from the fastest, type, offset), then the data at the next multiple of ``general.alignment``.
"""

import math
import struct
from typing import Any

import msgspec

from vramcast.errors import UnmodelledError, UnsafeFileError
from vramcast.models.inventory import Stored
from vramcast.models.quantization.formats import GGML_BY_ID
from vramcast.models.sources.ranges import Cursor, Ranges
from vramcast.units import MiB
from vramcast.untrusted import shown

_MOST_PAIRS = 65_536
_MOST_TENSORS = 1_000_000
_LONGEST_NAME = 65_535
_LONGEST_TEXT = 4 * MiB
_MOST_TEXTS = 4_000_000
_KEPT_TEXTS_BYTES = 64 * 1024
_LARGEST_HEADER_BYTES = 512 * MiB
_KEPT_ARRAY = 4_096
_MOST_AXES = 8

_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What a GGUF file says of itself. A long array of the metadata (a tokenizer's lists) is kept as its length."""

    version: int
    metadata: dict[str, Any]
    tensors: tuple[Stored, ...]
    data_offset: int


def read_header(ranges: Ranges) -> Header:
    """The header of a GGUF file, version 2 or 3.

    Raises UnsafeFileError for anything truncated or impossible and UnmodelledError for a version or type that is not known here.
    """
    cursor = Cursor(ranges, limit=_LARGEST_HEADER_BYTES)
    version = _version(cursor, ranges)
    count, pairs = struct.unpack("<QQ", cursor.take(16))
    _bound(count, min(_MOST_TENSORS, cursor.left // 24), "tensors", ranges)
    _bound(pairs, min(_MOST_PAIRS, cursor.left // 13), "metadata pairs", ranges)
    metadata = _metadata(cursor, pairs, ranges)
    records = [_record(cursor, ranges) for _ in range(count)]
    alignment = _alignment(metadata, ranges)
    start = -(-cursor.position // alignment) * alignment
    _check_places(records, ranges, start=start, alignment=alignment)
    return Header(version=version, metadata=metadata, tensors=tuple(s for _, s in records), data_offset=start)


def _version(cursor: Cursor, ranges: Ranges) -> int:
    magic, version = struct.unpack("<4sI", cursor.take(8))
    if magic != b"GGUF":
        raise UnsafeFileError(f"{ranges.name} is not a GGUF file: it starts with {magic!r}")
    if version not in (2, 3):
        order = " (big-endian)" if version & 0xFFFF == 0 else ""
        raise UnmodelledError(f"{ranges.name} has GGUF version {version}{order}: versions 2 and 3 are read; convert it again")
    return int(version)


def _metadata(cursor: Cursor, pairs: int, ranges: Ranges) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(pairs):
        name = _text(cursor, ranges, longest=_LONGEST_NAME)
        if name in found:
            raise UnsafeFileError(f"{ranges.name} gives the key {name[:80]!r} twice")
        found[name] = _value(cursor, ranges, name)
    return found


def _value(cursor: Cursor, ranges: Ranges, name: str) -> Any:
    kind = _number(cursor, "I")
    if kind == _STRING:
        return _text(cursor, ranges, longest=_LONGEST_TEXT)
    if kind == _ARRAY:
        return _array(cursor, ranges, name)
    return _number(cursor, _scalar(kind, ranges, name))


def _array(cursor: Cursor, ranges: Ranges, name: str) -> Any:
    """A short list of scalars as a list, anything longer as its length; arrays of arrays exist in no model."""
    kind, length = struct.unpack("<IQ", cursor.take(12))
    if kind == _STRING:
        _bound(length, min(_MOST_TEXTS, cursor.left // 8), f"texts in {name[:80]!r}", ranges)
        return _texts(cursor, ranges, length)
    code = _scalar(kind, ranges, name)
    width = struct.calcsize(code)
    _bound(length, cursor.left // width, f"numbers in {name[:80]!r}", ranges)
    if length > _KEPT_ARRAY:
        cursor.skip(length * width)
        return length
    return list(struct.unpack(f"<{length}{code}", cursor.take(length * width)))


def _texts(cursor: Cursor, ranges: Ranges, length: int) -> list[str] | int:
    if length <= 64:
        return [_text(cursor, ranges, longest=_KEPT_TEXTS_BYTES) for _ in range(length)]
    for _ in range(length):
        cursor.skip(_number(cursor, "Q"))
    return length


def _record(cursor: Cursor, ranges: Ranges) -> tuple[int, Stored]:
    name = _text(cursor, ranges, longest=_LONGEST_NAME)
    axes = _number(cursor, "I")
    _bound(axes, _MOST_AXES, f"dimensions in tensor {name[:80]!r}", ranges)
    lengths = struct.unpack(f"<{axes}Q", cursor.take(8 * axes))
    kind, offset = struct.unpack("<IQ", cursor.take(12))
    found = GGML_BY_ID.get(kind)
    if found is None:
        raise UnmodelledError(f"{ranges.name}: tensor {name[:80]!r} has type {kind}, which is newer than this program knows")
    shape = tuple(reversed(lengths))
    if math.prod(lengths) >= 2**53 or (shape and shape[-1] % found.elements):
        raise UnsafeFileError(f"{ranges.name}: tensor {name[:80]!r} of type {found.name} has the impossible shape {list(shape)}")
    return offset, Stored(name, found.name, shape, found.size_of(shape))


def _check_places(records: list[tuple[int, Stored]], ranges: Ranges, *, start: int, alignment: int) -> None:
    last = 0
    for offset, stored in sorted(records, key=lambda r: r[0]):
        if offset % alignment or offset < last:
            raise UnsafeFileError(
                f"{ranges.name} places tensor {stored.name[:80]!r} at byte {offset:,}, over another or unaligned"
            )
        last = offset + stored.bytes
    if start + last > ranges.size:
        raise UnsafeFileError(
            f"{ranges.name} is truncated: its tensors end at byte {start + last:,} and it has {ranges.size:,}; fetch it again"
        )


def _alignment(metadata: dict[str, Any], ranges: Ranges) -> int:
    value = metadata.get("general.alignment", 32)
    if not isinstance(value, int) or isinstance(value, bool) or not 8 <= value <= MiB or value & (value - 1):
        raise UnsafeFileError(f"{ranges.name}: general.alignment is {shown(value)}, expected a power of two")
    return value


def _text(cursor: Cursor, ranges: Ranges, *, longest: int) -> str:
    length = _number(cursor, "Q")
    _bound(length, min(longest, cursor.left), "bytes in a text", ranges)
    return cursor.take(length).decode("utf-8", errors="replace")


def _scalar(kind: int, ranges: Ranges, name: str) -> str:
    if kind not in _SCALARS:
        raise UnsafeFileError(f"{ranges.name}: the value of {name[:80]!r} has type {kind}, which the format does not have")
    return _SCALARS[kind]


def _number(cursor: Cursor, code: str) -> Any:
    return struct.unpack("<" + code, cursor.take(struct.calcsize("<" + code)))[0]


def _bound(value: int, most: int, what: str, ranges: Ranges) -> None:
    if value > most:
        raise UnsafeFileError(
            f"{ranges.name} claims {value:,} {what}, more than can be there ({most:,}): it is truncated or damaged"
        )
