"""Bytes inside, GiB outside: the one place where sizes and counts are parsed and printed.

1 GB is 10^9 bytes and 1 GiB is 2^30 bytes, always. A bare number is never a size: it would be read as either.
Token counts follow vLLM's ``human_readable_int``: a lower-case suffix is decimal, an upper-case one binary
(``128k`` = 128,000 and ``128K`` = 131,072).
"""

import re

from vramcast.errors import QuestionError

KiB = 2**10
MiB = 2**20
GiB = 2**30
TiB = 2**40
KB = 10**3
MB = 10**6
GB = 10**9
TB = 10**12

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
_NUMBER = re.compile(r"\s*([0-9][0-9_,]*(?:\.[0-9]+)?|\.[0-9]+)\s*([A-Za-z]*)\s*")
_LARGEST = 10**18


def parse_bytes(text: str, *, what: str = "size") -> int:
    """Bytes from text such as ``24GiB``, ``24 GB`` or ``512MiB``.

    Raises QuestionError when the unit is missing or unknown: "24" could be 24 GB or 24 GiB, which differ by 7 %.
    """
    number, unit = _split(text, what)
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
    number, unit = _split(text, what)
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


def count(number: float) -> str:
    """``8.03 B``, ``494 M`` or ``1,024``: how parameters and tokens are printed."""
    for scale, suffix in ((10**12, "T"), (10**9, "B"), (10**6, "M")):
        if abs(number) >= scale:
            return f"{number / scale:.3g} {suffix}" if number / scale < 1000 else f"{number / scale:,.0f} {suffix}"
    return f"{number:,.0f}"


def _split(text: str, what: str) -> tuple[float, str]:
    match = _NUMBER.fullmatch(text[:64]) if isinstance(text, str) else None
    if match is None:
        raise QuestionError(f"{what} {str(text)[:40]!r} is not a number with a unit: write for example 24GiB or 128k")
    return float(match[1].replace(",", "").replace("_", "")), match[2]


def _whole(value: float, text: str, what: str) -> int:
    if not 0 <= value <= _LARGEST:
        raise QuestionError(f"{what} {text!r} is out of range: expected 0 to 10^18")
    return round(value)
