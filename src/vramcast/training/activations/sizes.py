"""Sizes that depend on the shape of a batch: a tape of them is replayed once and then answers for every shape.

A ``Size`` is a sum of products: coefficients of powers of the tokens, of the sequence length, of the chunks it is cut into. All
that a layer saves or allocates is such a sum, and what it needs at most is the largest of several (``Peak``). Both are evaluated
``at`` a ``Shape`` whose numbers may be arrays, one element per layout.
"""

from collections.abc import Iterable
from math import prod
from typing import Any

import msgspec

from vramcast.quantity import Number, maximum

Power = tuple[str, int]
Powers = tuple[Power, ...]
"""A product of named numbers, each with its exponent: tokens x seq is (("seq", 1), ("tokens", 1))."""

CONSTANT: Powers = ()
FLOAT = 4  # bytes of one number that a layer writes in float32
_ROUNDING = 1e-9  # of a coefficient: what is left when equal ones, each worked out its own way, are taken from each other


class Size:
    """A sum of products of the shape's numbers, by their powers. Joined by ``+ - * /`` with numbers and with each other."""

    __slots__ = ("parts",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, parts: dict[Powers, float]) -> None:
        self.parts = parts

    def __add__(self, other: "Amount") -> "Size":
        if isinstance(other, Peak):
            return NotImplemented
        parts = dict(self.parts)
        for powers, c in _parts(other).items():
            parts[powers] = parts.get(powers, 0.0) + c
        return Size(parts)

    __radd__ = __add__

    def __neg__(self) -> "Size":
        return Size({powers: -c for powers, c in self.parts.items()})

    def __sub__(self, other: "Size | float") -> "Size":
        parts = dict(self.parts)
        for powers, c in _parts(other).items():
            left = parts.get(powers, 0.0) - c
            parts[powers] = 0.0 if abs(left) < _ROUNDING * abs(c) else left
        return Size({powers: c for powers, c in parts.items() if c})

    def __rsub__(self, other: float) -> "Size":
        return -self + other

    def __mul__(self, other: "Size | float") -> "Size":
        if not isinstance(other, Size):
            return Size({powers: c * other for powers, c in self.parts.items()})
        parts: dict[Powers, float] = {}
        for mine, c in self.parts.items():
            for theirs, d in other.parts.items():
                powers = _product(mine, theirs, 1)
                parts[powers] = parts.get(powers, 0.0) + c * d
        return Size(parts)

    __rmul__ = __mul__

    def __truediv__(self, other: "Size | float") -> "Size | float":
        """By a number or by a single product; a plain number where nothing of the shape is left."""
        ((theirs, d),) = _parts(other).items()
        parts = {_product(mine, theirs, -1): c / d for mine, c in self.parts.items()}
        return parts[CONSTANT] if parts.keys() == {CONSTANT} else Size(parts)

    def __pow__(self, exponent: int) -> "Size":
        return prod([self] * exponent, start=Size({CONSTANT: 1.0}))

    def __abs__(self) -> "Size":
        return Size({powers: abs(c) for powers, c in self.parts.items()})

    def __lt__(self, other: "Size | float") -> bool:
        return _sign(self - other) < 0

    def __le__(self, other: "Size | float") -> bool:
        return _sign(self - other) <= 0

    def __gt__(self, other: "Size | float") -> bool:
        return _sign(self - other) > 0

    def __ge__(self, other: "Size | float") -> bool:
        return _sign(self - other) >= 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size | int | float) and not (self - other).parts

    def __bool__(self) -> bool:
        return any(self.parts.values())

    def __repr__(self) -> str:
        return " + ".join(f"{c:g} {' '.join(f'{n}^{e}' for n, e in powers)}".strip() for powers, c in self.parts.items()) or "0"

    def at(self, shape: "Shape") -> Number:
        """The size for that shape: a number, or an array of them."""
        return sum(c * shape.product(powers) for powers, c in self.parts.items())

    def grows_with(self, name: str) -> bool:
        """Whether a product of the sum has that number of the shape in it."""
        return any(power[0] == name for powers, c in self.parts.items() if c for power in powers)


class Peak:
    """The largest of several sizes, each by the name of the operation that reaches it; which one is largest is the shape's."""

    __slots__ = ("alternatives",)

    def __init__(self, alternatives: tuple[tuple[Size, str], ...]) -> None:
        self.alternatives = alternatives

    def __add__(self, other: Size | float) -> "Peak":
        return Peak(tuple((size + other, name) for size, name in self.alternatives))

    __radd__ = __add__

    def __sub__(self, other: Size | float) -> "Peak":
        return Peak(tuple((size - other, name) for size, name in self.alternatives))

    def at(self, shape: "Shape") -> Number:
        """The largest for that shape, element by element."""
        return maximum(*(size.at(shape) for size, _ in self.alternatives))

    def reached_by(self, shape: "Shape") -> str:
        """The operation that reaches it for a shape of numbers."""
        return max(self.alternatives, key=lambda pair: float(pair[0].at(shape)))[1]


Amount = Any
"""What a tape counts in: a number, of one shape, or a ``Size``, of every shape; the same formulas make either."""


class Shape:
    """The numbers of one batch on a rank, or arrays of them: ``tokens`` rows in sequences of ``seq``."""

    def __init__(self, *, tokens: Number, seq: Number) -> None:
        self.tokens, self.seq = tokens, seq
        self._products: dict[Powers, Number] = {CONSTANT: 1, (("seq", 1),): seq, (("tokens", 1),): tokens}

    def product(self, powers: Powers) -> Number:
        """The product of the shape's numbers, each worked out once."""
        found = self._products.get(powers)
        if found is None:
            found = self._products[powers] = prod(self._power(name, exponent) for name, exponent in powers)
        return found

    def _power(self, name: str, exponent: int) -> Number:
        number = self._number(name) * 1.0
        return number**exponent if exponent > 0 else 1 / number**-exponent

    def _number(self, name: str) -> Number:
        if name == "tokens":
            return self.tokens
        return self.seq if name == "seq" else -(-self.seq // int(name.rpartition("/")[2]))


class Length(Size):
    """The sequence length of every shape, which reaches some windows: where it does, a mask is written out."""

    __slots__ = ("reached",)

    def __init__(self, reached: frozenset[int] = frozenset()) -> None:
        super().__init__({(("seq", 1),): 1.0})
        self.reached = reached


TOKENS = Size({(("tokens", 1),): 1.0})


def chunks_of(seq: Amount, length: int) -> Amount:
    """How many chunks of ``length`` a sequence is cut into, the last one padded."""
    return Size({((f"chunks/{length}", 1),): 1.0}) if isinstance(seq, Size) else -(-seq // length)


def reaches(seq: Amount, window: int) -> bool:
    """Whether a sequence is at least as long as a window; one of no window is not."""
    return window > 0 and (window in seq.reached if isinstance(seq, Length) else bool(window <= seq))


def highest(candidates: Iterable[tuple[Amount | Peak, str]]) -> tuple[Amount | Peak, str]:
    """The largest of the candidates and its name; of sizes, those that some shape could make the largest."""
    found: list[tuple[Size, str]] = []
    numbers: list[tuple[float, str]] = []
    for given, name in candidates:
        if isinstance(given, int | float):
            numbers.append((given, name))
            continue
        for size, _ in given.alternatives if isinstance(given, Peak) else ((given, name),):
            if not any(_covers(other, size) for other, _ in found):
                found = [*((other, own) for other, own in found if not _covers(size, other)), (size, name)]
    if not found:
        return max(numbers, key=lambda pair: pair[0], default=(0.0, ""))
    return (found[0][0] if len(found) == 1 else Peak(tuple(found))), found[0][1]


def at(amount: Amount | Peak, shape: Shape) -> Number:
    """An amount for that shape."""
    return amount.at(shape) if isinstance(amount, Size | Peak) else amount


def _covers(larger: Size, smaller: Size) -> bool:
    """Whether one size is at least the other whatever the shape."""
    mine = larger.parts
    return all(mine.get(powers, 0.0) >= c * (1 - _ROUNDING) for powers, c in smaller.parts.items()) and all(
        c >= 0 or powers in smaller.parts for powers, c in mine.items()
    )


def _sign(difference: Size) -> int:
    """Whether a size is positive or negative for every shape. Raises ValueError where that depends on the shape."""
    signs = {c > 0 for c in difference.parts.values() if c}
    if len(signs) > 1 and difference.parts.get(CONSTANT, 0.0) >= -1 and all(c > 0 for p, c in difference.parts.items() if p):
        return 1  # less one byte or row: no batch is empty
    if len(signs) > 1:
        raise ValueError(f"{difference} has no sign of its own")
    return 0 if not signs else 1 if signs.pop() else -1


def _parts(value: "Size | float") -> dict[Powers, float]:
    return value.parts if isinstance(value, Size) else {CONSTANT: value} if value else {}


def _product(mine: Powers, theirs: Powers, sign: int) -> Powers:
    exponents = dict(mine)
    for name, exponent in theirs:
        exponents[name] = exponents.get(name, 0) + sign * exponent
    return tuple(sorted((name, e) for name, e in exponents.items() if e))


class Heads(msgspec.Struct, frozen=True, kw_only=True):
    """The problem of one layer: ``tokens`` rows in sequences of ``seq``, heads of queries and of keys, their widths.

    ``masked``: a mask is written out (a window shorter than the sequence); ``softcap``, ``sinks``: only eager code has them.
    ``biased``: positions that train are added to the scores; ``across``: keys are another sequence's.
    """

    tokens: Amount
    seq: Amount
    queries: float
    keys: float
    key_dim: float
    value_dim: float
    masked: bool = False
    softcap: bool = False
    sinks: bool = False
    biased: bool = False
    across: bool = False

    @property
    def grouped(self) -> bool:
        """Whether several query heads share a key."""
        return self.keys < self.queries

    @property
    def scores(self) -> Amount:
        """Elements of the score matrix of all rows."""
        return self.tokens * self.queries * self.seq
