"""Quantities: expressions of named factors that evaluate for numbers or arrays and write their own formula.

``bytes_(2, "per element") * named(4096, "tokens")`` is 8,192 B, and its ``why`` is "2 B per element x 4,096 tokens". The value is
worked out when the expression is built; the text only when somebody reads it, so it cannot drift from the value and costs nothing
in a search. Factors may be NumPy arrays (one element per layout): the same formula then answers for all of them, and ``at(i)``
is the quantity of one. Nothing here imports NumPy.

Units are bytes, FLOPs and seconds and what products and ratios make of them; adding bytes to seconds is a TypeError.
"""

import re
import sys
from collections.abc import Callable
from functools import reduce
from math import ceil as _ceil
from typing import Any

Number = Any
"""An int, a float, or a NumPy array of them (one element per layout)."""

Unit = tuple[int, int, int]
"""Exponents of bytes, FLOPs and seconds."""

NONE: Unit = (0, 0, 0)
BYTES: Unit = (1, 0, 0)
FLOPS: Unit = (0, 1, 0)
SECONDS: Unit = (0, 0, 1)

_NAMES: dict[Unit, str] = {
    NONE: "", BYTES: "B", FLOPS: "FLOP", SECONDS: "s", (1, 0, -1): "B/s", (0, 1, -1): "FLOP/s",
}  # fmt: skip
_LOOSE = {"+": 0, "-": 0, "x": 1, "/": 1}


class Quantity:
    """A number (or an array) with its unit and the expression it came from.

    ``value``: int, float or array. ``unit``: exponents of bytes, FLOPs and seconds. Build leaves with ``named``, ``bytes_``,
    ``flops`` and ``seconds`` (their names are text, or functions that write it when it is read);
    join them with ``+ - * /`` and with ``largest``, ``smallest``, ``ceil_div`` and ``rounded``.
    """

    __slots__ = ("_args", "_kind", "unit", "value")

    def __init__(self, value: Number, unit: Unit, kind: str, args: tuple[Any, ...]) -> None:
        self.value, self.unit, self._kind, self._args = value, unit, kind, args

    def __mul__(self, other: "Quantity | Number") -> "Quantity":
        if type(other) is not Quantity:
            other = _quantity(other)
        (data, work, time), (more_data, more_work, more_time) = self.unit, other.unit
        return Quantity(self.value * other.value, (data + more_data, work + more_work, time + more_time), "x", (self, other))

    def __truediv__(self, other: "Quantity | Number") -> "Quantity":
        other = _quantity(other)
        unit = (self.unit[0] - other.unit[0], self.unit[1] - other.unit[1], self.unit[2] - other.unit[2])
        return Quantity(self.value / other.value, unit, "/", (self, other))

    def __add__(self, other: "Quantity | Number") -> "Quantity":
        other = _quantity(other)
        return Quantity(self.value + other.value, _same_unit("add", self, other), "+", (self, other))

    def __sub__(self, other: "Quantity | Number") -> "Quantity":
        other = _quantity(other)
        return Quantity(self.value - other.value, _same_unit("subtract", self, other), "-", (self, other))

    def __rmul__(self, other: Number) -> "Quantity":
        return _quantity(other) * self

    def __radd__(self, other: Number) -> "Quantity":
        return self if isinstance(other, int) and other == 0 else _quantity(other) + self

    def __rsub__(self, other: Number) -> "Quantity":
        return _quantity(other) - self

    def __rtruediv__(self, other: Number) -> "Quantity":
        return _quantity(other) / self

    def __repr__(self) -> str:
        return (
            f"Quantity({self.why})" if is_array(self.value) else f"Quantity({self.why} = {_written(self.value)} {self.unit_name})"
        )

    @property
    def unit_name(self) -> str:
        """``B``, ``s``, ``FLOP``, ``B/s`` ... or nothing for a plain number."""
        return _NAMES.get(self.unit) or ".".join(f"{n}^{e}" for n, e in zip(("B", "FLOP", "s"), self.unit, strict=True) if e)

    @property
    def why(self) -> str:
        """The formula with its numbers in it; ``evaluated`` reads it back. Arrays are written by their range."""
        return self._written(-1)

    def at(self, index: Any) -> "Quantity":
        """The quantity of one element of the arrays; ``index`` as NumPy takes it."""
        args = tuple(a.at(index) if isinstance(a, Quantity) else a for a in self._args)
        return Quantity(element(self.value, index), self.unit, self._kind, args)

    def labelled(self, name: str) -> "Quantity":
        """The same value as one named factor: its own formula is no longer written."""
        return Quantity(self.value, self.unit, "leaf", (name,))

    def _written(self, around: int) -> str:
        if self._kind == "leaf":
            name = self._args[0]
            words = f"{self.unit_name} {name() if callable(name) else name}".strip()
            return f"{_written(self.value)} {words}".rstrip()
        own = _LOOSE.get(self._kind)
        if own is None:
            return f"{self._kind}({', '.join(a._written(-1) for a in self._args)})"
        left, right = self._args
        tight = own + (self._kind in "-/")
        text = f"{left._written(own)} {self._kind} {right._written(tight)}"
        return f"({text})" if own < around or (around == _LOOSE["/"] + 1 and own == _LOOSE["x"]) else text


Name = str | Callable[[], str]


def named(value: Number, name: Name) -> Quantity:
    """A plain factor with the word that it is read by: ``named(32, "layers")``."""
    return Quantity(value, NONE, "leaf", (name,))


def bytes_(value: Number, name: Name = "") -> Quantity:
    """A factor in bytes."""
    return Quantity(value, BYTES, "leaf", (name,))


def flops(value: Number, name: str = "") -> Quantity:
    """A factor in floating point operations."""
    return Quantity(value, FLOPS, "leaf", (name,))


def seconds(value: Number, name: str = "") -> Quantity:
    """A factor in seconds."""
    return Quantity(value, SECONDS, "leaf", (name,))


def rate(value: Number, name: str = "", *, of: Unit = BYTES) -> Quantity:
    """A factor per second: bandwidth (bytes) or a peak (``of=FLOPS``)."""
    return Quantity(value, (of[0], of[1], of[2] - 1), "leaf", (name,))


def total(parts: "list[Quantity] | tuple[Quantity, ...]", unit: Unit = BYTES) -> Quantity:
    """The sum of the parts; zero of ``unit`` where there are none."""
    return reduce(Quantity.__add__, parts) if parts else Quantity(0, unit, "leaf", ("",))


def summed(*parts: Quantity) -> Quantity:
    """The sum of the parts that are there: a number that is zero is not worth a word, an array may be zero for some only."""
    there = [p for p in parts if is_there(p)]
    return there[0] if len(there) == 1 else total(there)


def is_there(part: Quantity) -> bool:
    """Whether a quantity is an array, or a number other than zero."""
    value = part.value
    kind = type(value)
    return value != 0 if kind is int or kind is float else is_array(value) or bool(value)


def largest(*parts: "Quantity | Number") -> Quantity:
    """The maximum, element by element. Raises TypeError for parts of different units."""
    given = tuple(_quantity(p) for p in parts)
    unit = reduce(lambda u, q: _same_unit("compare", Quantity(0, u, "leaf", ("",)), q), given, given[0].unit)
    return Quantity(maximum(*(q.value for q in given)), unit, "max", given)


def smallest(*parts: "Quantity | Number") -> Quantity:
    """The minimum, element by element. Raises TypeError for parts of different units."""
    given = tuple(_quantity(p) for p in parts)
    unit = reduce(lambda u, q: _same_unit("compare", Quantity(0, u, "leaf", ("",)), q), given, given[0].unit)
    return Quantity(minimum(*(q.value for q in given)), unit, "min", given)


def binding(*parts: Quantity) -> Quantity:
    """The part that is largest, with its own formula; for arrays the maximum, element by element."""
    if any(is_array(part.value) for part in parts):
        return largest(*parts)
    return max(parts, key=lambda part: part.value)


def ceil_div(part: "Quantity | Number", by: "Quantity | Number") -> Quantity:
    """``ceil(part / by)``, exact for whole numbers."""
    part, by = _quantity(part), _quantity(by)
    ratio = part / by
    return Quantity(-(-part.value // by.value), ratio.unit, "ceil", (ratio,))


def rounded(part: Quantity) -> Quantity:
    """The nearest whole number, half to even as Python and NumPy both round."""
    return Quantity(whole(part.value), part.unit, "round", (part,))


def is_array(value: Number) -> bool:
    """Whether a value is a NumPy array."""
    kind = type(value)
    return kind is not int and kind is not float and hasattr(value, "__array__") and getattr(value, "ndim", 0) > 0


def maximum(*values: Number) -> Number:
    """``max`` for numbers and arrays, element by element."""
    for value in values:
        kind = type(value)
        if kind is not int and kind is not float and is_array(value):
            return reduce(_numpy().maximum, values)
    return max(values)


def minimum(*values: Number) -> Number:
    """``min`` for numbers and arrays, element by element."""
    for value in values:
        kind = type(value)
        if kind is not int and kind is not float and is_array(value):
            return reduce(_numpy().minimum, values)
    return min(values)


def where(condition: Number, yes: Number, no: Number) -> Number:
    """``yes if condition else no``, element by element for arrays."""
    if is_array(condition):
        return _numpy().where(condition, yes, no)
    return yes if condition else no


def whole(value: Number) -> Number:
    """The nearest whole number (half to even); arrays keep their shape and become int64."""
    if type(value) is float:
        return round(value)
    if not is_array(value):
        return round(value)
    return value if value.dtype == "int64" else _numpy().rint(value).astype("int64")


def ceiling(value: Number) -> Number:
    """The next whole number; arrays keep their shape and become int64."""
    return _numpy().ceil(value).astype("int64") if is_array(value) else _ceil(value)


def floored(value: Number) -> Number:
    """The whole number below (towards zero); arrays keep their shape and become int64."""
    return value.astype("int64") if is_array(value) else int(value)


def extent(value: Number) -> tuple[Number, Number]:
    """The least and the largest of an array; a number twice."""
    return (value.min().item(), value.max().item()) if is_array(value) else (value, value)


def is_nothing(value: Number) -> bool:
    """Whether a number, or every element of an array, is zero."""
    return not value.any() if is_array(value) else not value


def element(value: Number, index: Any) -> Number:
    """One element of an array, as a plain number; a number is the same for all."""
    return value[index].item() if is_array(value) else value


def next_power_of_two(value: Number) -> Number:
    """The least power of two that is not below a whole number of at least one."""
    if is_array(value):
        return 2 ** _numpy().ceil(_numpy().log2(value)).astype("int64")
    return 1 << max(0, (int(value) - 1).bit_length())


def several(value: Number) -> bool:
    """Whether a count is more than one. Raises ValueError for an array in which that differs: ask each part by itself."""
    if not is_array(value):
        return bool(value > 1)
    found = bool((value > 1).all())
    if not found and bool((value > 1).any()):
        raise ValueError("some of these counts are one and some are more: ask each kind by itself")
    return found


_TOKEN = re.compile(
    r"\s*(max|min|ceil|round)?(\()|\s*(-?[0-9][0-9,]*(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)((?:[^()]|\([^()]*\))*?)(?= [-+x/] |, |\)|$)"
)
_ACTIONS: dict[str, Callable[..., float]] = {"max": max, "min": min, "ceil": _ceil, "round": round, "": lambda v: v}


def evaluated(why: str) -> float:
    """The number that a formula written by ``why`` stands for.

    Products bind tighter than sums; words are skipped, and what they say in brackets with them.

    Raises ValueError for text that is no such formula.
    """
    value, end = _sum(why, 0)
    if end != len(why):
        raise ValueError(f"{why!r} is no formula from {why[end:][:40]!r} on")
    return value


def _sum(text: str, at: int) -> tuple[float, int]:
    value, at = _product(text, at)
    while text.startswith((" + ", " - "), at):
        sign = 1 if text[at + 1] == "+" else -1
        part, at = _product(text, at + 3)
        value += sign * part
    return value, at


def _product(text: str, at: int) -> tuple[float, int]:
    value, at = _operand(text, at)
    while text.startswith((" x ", " / "), at):
        times = text[at + 1] == "x"
        part, at = _operand(text, at + 3)
        value = value * part if times else value / part
    return value, at


def _operand(text: str, at: int) -> tuple[float, int]:
    match = _TOKEN.match(text, at)
    if match is None:
        raise ValueError(f"{text!r} is no formula from {text[at:][:40]!r} on")
    if not match[2]:
        if match[4].endswith((" x", " /", " +", " -")):
            raise ValueError(f"{text!r} is no formula: nothing stands after {text[: match.end()][-40:]!r}")
        return float(match[3].rstrip(",").replace(",", "")), match.end()
    values, end = [], match.end()
    while True:
        value, end = _sum(text, end)
        values.append(value)
        if text.startswith(", ", end):
            end += 2
        elif text.startswith(")", end):
            return _ACTIONS[match[1] or ""](*values), end + 1
        else:
            raise ValueError(f"{text!r} has no closing bracket after {text[:end][-40:]!r}")


def _quantity(value: "Quantity | Number") -> Quantity:
    return value if isinstance(value, Quantity) else Quantity(value, NONE, "leaf", ("",))


def _same_unit(action: str, left: Quantity, right: Quantity) -> Unit:
    if left.unit == right.unit or _is_zero(right.value):
        return left.unit
    if _is_zero(left.value):
        return right.unit
    raise TypeError(f"cannot {action} {left.unit_name or 'a plain number'} and {right.unit_name or 'a plain number'}")


def _is_zero(value: Number) -> bool:
    return not is_array(value) and value == 0


def _written(value: Number) -> str:
    if is_array(value):
        return f"{_written(value.min().item())} to {_written(value.max().item())}"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer() and abs(value) < 1e15):
        return f"{int(value):,}"
    return f"{value:.12g}" if abs(value) < 1e6 else f"{value:,.6f}".rstrip("0").rstrip(".")


def _numpy() -> Any:
    return sys.modules["numpy"]
