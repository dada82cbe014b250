"""Safetensors and GGUF headers: what is read, and every lie that is refused."""

import json
import struct

import pytest
import small_checkpoint as small

from vramcast.errors import ConfigError, UnmodelledError, UnsafeFileError
from vramcast.models.inventory import Stored
from vramcast.models.sources import gguf, safetensors


def read_safetensors(data: bytes, size: int | None = None):
    return safetensors.read_header(small.Bytes(data, "x.safetensors", size))


def read_gguf(data: bytes, size: int | None = None):
    return gguf.read_header(small.Bytes(data, "x.gguf", size))


def with_header(header: object, data: int = 64) -> bytes:
    body = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(body)) + body + bytes(data)


def entry(dtype="F32", shape=(4, 4), offsets=(0, 64)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def test_a_safetensors_header_is_read_without_its_data():
    header, size = small.safetensors_header(small.tensors())
    stored = read_safetensors(header, len(header) + size)
    assert sum(s.bytes for s in stored) == size
    assert {s.name: s.shape for s in stored} == {name: shape for name, (_, shape) in small.tensors().items()}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "byte 8 is needed and it has 0"),
        (b"\x00" * 7, "byte 8 is needed and it has 7"),
        (struct.pack("<Q", 2**63), "claims a header of .* more than the format's 100,000,000 bytes"),
        (struct.pack("<Q", 500) + b"{}", "claims a header of 500 bytes and is 10 bytes long"),
        (with_header([1]), "holds list where an object was expected"),
        (with_header(b"\xff" * 8), "is not text|is not JSON"),
        (with_header({"a": 1}), "describes tensor 'a' with int"),
        (with_header({"a": entry(shape=(-1, 4))}), r"impossible shape or offsets \[-1, 4\]"),
        (with_header({"a": entry(shape=(2**60, 4))}), "impossible shape or offsets"),
        (with_header({"a": entry(shape=(True, 4))}), "impossible shape or offsets"),
        (with_header({"a": entry(offsets=(0, 63))}), "gives tensor 'a' 63 bytes where F32 .* takes 64"),
        (with_header({"a": entry(offsets=(0,))}), "expected a begin and an end"),
        (with_header({"a": entry(offsets=(64, 0))}), "gives tensor 'a' -64 bytes"),
        (with_header({"a": entry(offsets=(64, 128))}), "places tensors up to byte 128 of its data, which has 64"),
        (with_header({"a": entry(), "b": entry(offsets=(32, 96))}, 96), "places tensor 'b' over the one before it"),
        (with_header(b'{"a": {}, "a": {}}'), "gives 'a' twice"),
    ],
)  # fmt: skip
def test_a_safetensors_header_that_lies_is_refused(data, text):
    with pytest.raises((UnsafeFileError, ConfigError), match=text):
        read_safetensors(data)


def test_an_unknown_element_type_is_not_guessed():
    with pytest.raises(UnmodelledError, match="tensor 'a' has type 'F2_E1M0': known are F64"):
        read_safetensors(with_header({"a": entry(dtype="F2_E1M0")}))


def test_a_gguf_header_is_read_without_its_data():
    data = small.gguf_bytes()
    full = read_gguf(data)
    head = read_gguf(data[: full.data_offset], len(data))
    assert head == full
    assert full.metadata["llama.block_count"] == small.LAYERS
    assert full.metadata["tokenizer.ggml.tokens"] == small.VOCAB
    assert full.tensors[0] == Stored("token_embd.weight", "q8_0", (small.VOCAB, small.HIDDEN), small.VOCAB * 2 * 34)


def record(name="a", dims=(256,), kind=12, offset=0) -> bytes:
    return (
        small.text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", kind, offset)
    )


def header(count=0, pairs=0, body=b"", version=3) -> bytes:
    return struct.pack("<4sIQQ", b"GGUF", version, count, pairs) + body


def keyed(payload: bytes, *, kind: int = 9, key: str = "k", times: int = 1) -> bytes:
    return header(pairs=times, body=small.pair(key, kind, payload) * times) + bytes(64)


def array(kind: int, length: int) -> bytes:
    return struct.pack("<IQ", kind, length)


def recorded(*records: bytes, data: int = 256) -> bytes:
    return header(count=len(records), body=b"".join(records)) + bytes(data)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"GGUF", "truncated or lies"),
        (b"GGML" + bytes(40), "is not a GGUF file: it starts with b'GGML'"),
        (header(count=2**60) + bytes(64), "claims 1,152,921,504,606,846,976 tensors, more than can be there"),
        (header(pairs=2**40) + bytes(64), "metadata pairs, more than can be there"),
        (header(pairs=1, body=struct.pack("<Q", 2**62)) + bytes(64), "bytes in a text, more than can be there"),
        (keyed(b"", kind=99), "the value of 'k' has type 99"),
        (keyed(array(4, 2**61)), "numbers in 'k', more than can be there"),
        (keyed(array(9, 1)), "the value of 'k' has type 9"),
        (keyed(array(8, 2**50)), "texts in 'k', more than can be there"),
        (keyed(array(8, 65) + struct.pack("<Q", 2**63) * 65), "truncated or lies"),
        (keyed(b"\1", kind=7, times=2), "gives the key 'k' twice"),
        (keyed(struct.pack("<I", 33), kind=4, key="general.alignment"), "alignment is 33, expected a power of two"),
        (keyed(small.text("x"), kind=8, key="general.alignment"), "alignment is 'x', expected a power of two"),
        (recorded(record(dims=(2**40, 2**40))), "has the impossible shape"),
        (recorded(record(dims=(255,))), "of type q4_k has the impossible shape"),
        (recorded(small.text("a") + struct.pack("<I", 2**31)), "dimensions in tensor 'a', more than can be there"),
        (recorded(record(offset=2**62)), "is truncated: its tensors end at byte"),
        (recorded(record(offset=7)), "over another or unaligned"),
        (recorded(record(), record(name="b", offset=128), data=512), "places tensor 'b' at byte 128, over another"),
        (recorded(record(), data=16), "is truncated: its tensors end at byte"),
    ],
)
def test_a_gguf_header_that_lies_is_refused(data, text):
    with pytest.raises(UnsafeFileError, match=text):
        read_gguf(data)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (header(version=1) + bytes(64), "has GGUF version 1: versions 2 and 3 are read"),
        (header(version=0x03000000) + bytes(64), r"version 50331648 \(big-endian\)"),
        (header(count=1, body=record(kind=77)) + bytes(64), "tensor 'a' has type 77, which is newer than this program knows"),
    ],
)
def test_a_gguf_from_elsewhere_is_named(data, text):
    with pytest.raises(UnmodelledError, match=text):
        read_gguf(data)
