"""Units: bytes, seconds and counts as people write them, and element types: the one table of their names and widths.

A type's name is torch's. ``spellings`` are what people, configs and engines write; ``code`` is what a safetensors header writes
(huggingface/safetensors, README; F4 holds two values a byte). GGUF's own types are in ``models/quantization/formats.py``.
"""

import math
import re

import msgspec

from vramcast.errors import QuestionError, unknown_name

KiB = 2**10
MiB = 2**20
GiB = 2**30
TiB = 2**40
KB = 10**3
MB = 10**6
GB = 10**9
TB = 10**12
DAY_S = 86_400

_BYTE_UNITS = {
    "B": 1, "BYTES": 1, "KIB": KiB, "MIB": MiB, "GIB": GiB, "TIB": TiB, "KB": KB, "MB": MB, "GB": GB, "TB": TB,
}  # fmt: skip
_COUNT_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "b": 10**9,
    "K": 2**10,
    "M": 2**20,
    "G": 2**30,
    "B": 10**9,
    "t": 10**12,
    "T": 10**12,
}
_NUMBER = re.compile(r"\s*((?:[0-9][0-9_,]*(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][0-9]{1,2})?)\s*([A-Za-z]*)\s*")
_LARGEST = 10**18


def parse_bytes(text: str, *, what: str = "size") -> int:
    """Bytes from text such as ``24GiB``, ``24 GB`` or ``512MiB``.

    Raises QuestionError when the unit is missing or unknown: "24" could be 24 GB or 24 GiB, which differ by 7 %.
    """
    number, unit = _split(text, what, "24GiB")
    if not unit:
        raise QuestionError(f"{what} {text!r} has no unit: write {text.strip()}GB (10^9) or {text.strip()}GiB (2^30)")
    scale = _BYTE_UNITS.get(unit.upper())
    if scale is None:
        raise QuestionError(f"{what} {text!r} has an unknown unit {unit!r}: use MB, GB, TB or MiB, GiB, TiB")
    return _whole(number * scale, text, what)


def parse_count(text: str | int, *, what: str = "count") -> int:
    """A whole number of tokens, sequences or steps: ``4096``, ``128k`` (128,000), ``128K`` (131,072)."""
    if isinstance(text, int):
        return text
    number, unit = _split(text, what, "4096 or 128k")
    scale = _COUNT_UNITS.get(unit)
    if scale is None:
        raise QuestionError(f"{what} {text!r} has an unknown suffix {unit!r}: use k, m (decimal) or K, M (binary)")
    return _whole(number * scale, text, what)


def gib(size_bytes: float, digits: int = 2) -> str:
    """``12.55 GiB``; below a tenth of a GiB the same size in MiB or KiB, so that small terms do not print as 0.00."""
    if abs(size_bytes) >= GiB / 10:
        return f"{size_bytes / GiB:,.{digits}f} GiB"
    if abs(size_bytes) >= MiB:
        return f"{size_bytes / MiB:,.1f} MiB"
    if abs(size_bytes) >= KiB:
        return f"{size_bytes / KiB:,.1f} KiB"
    return f"{size_bytes:,.0f} B"


def time_text(seconds: float) -> str:
    """``1.25 s``, ``8.40 ms`` or ``12.5 us``; from two minutes on ``12 min``, ``3.4 h``, ``5.2 days``."""
    size = abs(seconds)
    for least, unit_s, digits, name in (
        (172_800, 86_400, 1, "days"), (7_200, 3_600, 1, "h"), (120, 60, 1, "min"), (1, 1, 2, "s"), (1e-3, 1e-3, 2, "ms"),
    ):  # fmt: skip
        if size >= least:
            return f"{seconds / unit_s:,.{digits}f} {name}"
    return f"{seconds * 1e6:,.1f} us"


def tenths(number: float) -> float:
    """Cut to tenths, never rounded up: what is printed of a limit is never more than what fits."""
    return math.floor(number * 10) / 10


def count(number: float) -> str:
    """``8.03 B``, ``494 M`` or ``1,024``: how parameters and tokens are printed."""
    for scale, suffix in ((10**12, "T"), (10**9, "B"), (10**6, "M")):
        if abs(number) >= scale:
            return f"{number / scale:.3g} {suffix}" if number / scale < 1000 else f"{number / scale:,.0f} {suffix}"
    return f"{number:,.0f}"


def _split(text: str, what: str, example: str) -> tuple[float, str]:
    match = _NUMBER.fullmatch(text[:64]) if isinstance(text, str) else None
    if match is None:
        raise QuestionError(f"{what} {str(text)[:40]!r} is not a number: write for example {example}")
    return float(match[1].replace(",", "").replace("_", "")), match[2]


def _whole(value: float, text: str, what: str) -> int:
    if not 0 <= value <= _LARGEST:
        raise QuestionError(f"{what} {text!r} is out of range: expected 0 to 10^18")
    return round(value)


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
