"""Element types: the one table of their names and widths, asked by everything that reads, stores or counts numbers.

The name is torch's. ``spellings`` are what people, configs and engines write; ``code`` is what a safetensors header writes
(huggingface/safetensors, README; F4 holds two values a byte). GGUF's own types are in ``models/quantization/formats.py``.
"""

import msgspec

from vramcast.errors import unknown_name


class Dtype(msgspec.Struct, frozen=True, kw_only=True):
    """One element type. ``plain``: whether a model's weights can be held in it as they are, with no scales."""

    name: str
    bits: int
    spellings: tuple[str, ...] = ()
    code: str = ""
    plain: bool = False


TABLE = (
    Dtype(name="float64", bits=64, spellings=("fp64", "double", "f64"), code="F64", plain=True),
    Dtype(name="float32", bits=32, spellings=("fp32", "float", "f32"), code="F32", plain=True),
    Dtype(name="float16", bits=16, spellings=("fp16", "half", "f16"), code="F16", plain=True),
    Dtype(name="bfloat16", bits=16, spellings=("bf16",), code="BF16", plain=True),
    Dtype(name="float8", bits=8, spellings=("fp8",)),
    Dtype(name="float8_e4m3fn", bits=8, spellings=("fp8_e4m3", "fp8_e4m3fn", "float8_e4m3"), code="F8_E4M3", plain=True),
    Dtype(name="float8_e5m2", bits=8, spellings=("fp8_e5m2",), code="F8_E5M2", plain=True),
    Dtype(name="float8_e4m3fnuz", bits=8, code="F8_E4M3FNUZ"),
    Dtype(name="float8_e5m2fnuz", bits=8, code="F8_E5M2FNUZ"),
    Dtype(name="float8_e8m0fnu", bits=8, spellings=("e8m0",), code="F8_E8M0", plain=True),
    Dtype(name="float6_e2m3", bits=6, code="F6_E2M3"),
    Dtype(name="float6_e3m2", bits=6, code="F6_E3M2"),
    Dtype(name="float4_e2m1", bits=4, spellings=("fp4_e2m1",), code="F4"),
    Dtype(name="complex64", bits=64, code="C64"),
    Dtype(name="int64", bits=64, code="I64", plain=True),
    Dtype(name="int32", bits=32, code="I32", plain=True),
    Dtype(name="int16", bits=16, code="I16", plain=True),
    Dtype(name="int8", bits=8, code="I8", plain=True),
    Dtype(name="uint64", bits=64, code="U64"),
    Dtype(name="uint32", bits=32, code="U32"),
    Dtype(name="uint16", bits=16, code="U16"),
    Dtype(name="uint8", bits=8, code="U8", plain=True),
    Dtype(name="bool", bits=8, code="BOOL", plain=True),
)
BY_NAME = {dtype.name: dtype for dtype in TABLE}
SPOKEN = {spelling: dtype.name for dtype in TABLE for spelling in dtype.spellings}
_COMPUTED = {name: dtype for name, dtype in BY_NAME.items() if ("float" in name and dtype.bits >= 8) or name == "int8"}
#: Bits of an element by the code of a safetensors header, and the floats among them by their torch name.
HEADER_BITS = {dtype.code: dtype.bits for dtype in TABLE if dtype.code}
HEADER_FLOATS = {dtype.code: dtype.name for dtype in TABLE if dtype.name in ("float64", "float32", "float16", "bfloat16")}


def dtype_name(text: str) -> str:
    """The torch name of an element type from ``bf16``, ``half`` or ``torch.float16``; unknown text comes back in lower case."""
    lowered = text.strip().lower().removeprefix("torch.")
    return SPOKEN.get(lowered, lowered)


def element_bytes(text: str) -> float:
    """Bytes of one element of activations or cache by any name of their type.

    Raises QuestionError for a type that they cannot have, naming the nearest.
    """
    found = _COMPUTED.get(dtype_name(text))
    if found is None:
        raise unknown_name("dtype", text, (*_COMPUTED, *(s for d in _COMPUTED.values() for s in d.spellings)))
    return found.bits / 8
