"""Sizes that grow with the context, as ``constant + slope * n``: one allocation on paper then answers for a whole range of n.

The graph allocator only adds, rounds and compares sizes. Run on such forms it takes the branches that hold at one n, and every
comparison narrows the range of n over which the same branch is taken. What comes out is exact, and a straight line, over that
range. What no form can express (a quotient with a remainder that depends on n) narrows the range to the one n.
"""

from typing import Any, cast

NO_END = 1 << 62


class Span:
    """The n at which comparisons are decided, and the range around it over which all of them come out the same."""

    __slots__ = ("at", "high", "low")

    def __init__(self, at: int) -> None:
        self.at, self.low, self.high = at, 0, NO_END

    def variable(self) -> int:
        """The n, to be used wherever an int is."""
        return cast(int, Affine(0, 1, self))

    def keep(self, constant: int, slope: int, *, positive: bool) -> None:
        """Narrow the range to where ``constant + slope * n`` is positive, or to where it is not; one of them holds at ``at``."""
        if not positive:
            constant, slope = 1 - constant, -slope
        if slope > 0:
            self.low = max(self.low, -constant // slope + 1)
        elif slope < 0:
            self.high = min(self.high, (constant - 1) // -slope)

    def only_here(self) -> int:
        """Narrow the range to the one n."""
        self.low = self.high = self.at
        return self.at


class Affine:
    """``constant + slope * n`` for the n of a span."""

    __slots__ = ("constant", "slope", "span")

    def __init__(self, constant: int, slope: int, span: Span) -> None:
        self.constant, self.slope, self.span = constant, slope, span

    def __add__(self, other: Any) -> Any:
        if isinstance(other, int):
            return Affine(self.constant + other, self.slope, self.span)
        return _form(self.constant + other.constant, self.slope + other.slope, self.span)

    __radd__ = __add__

    def __neg__(self) -> "Affine":
        return Affine(-self.constant, -self.slope, self.span)

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, int):
            return Affine(self.constant - other, self.slope, self.span)
        return _form(self.constant - other.constant, self.slope - other.slope, self.span)

    def __rsub__(self, other: int) -> "Affine":
        return Affine(other - self.constant, -self.slope, self.span)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, int):
            return _form(self.constant * other, self.slope * other, self.span)
        return self._here() * other._here()

    __rmul__ = __mul__

    def __floordiv__(self, by: int) -> Any:
        if self.slope % by:
            return self._here() // by
        return Affine(self.constant // by, self.slope // by, self.span)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Affine | int):
            return NotImplemented
        gap = self - other
        if isinstance(gap, int):
            return gap == 0
        value = gap.constant + gap.slope * self.span.at
        if not value:
            self.span.only_here()
            return True
        return not (gap._positive() if value > 0 else (-gap)._positive())

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.constant, self.slope))

    def __gt__(self, other: Any) -> bool:
        return _positive(self - other)

    def __lt__(self, other: Any) -> bool:
        return _positive(other - self)

    def __ge__(self, other: Any) -> bool:
        return not _positive(other - self)

    def __le__(self, other: Any) -> bool:
        return not _positive(self - other)

    def __bool__(self) -> bool:
        return self != 0

    def _positive(self) -> bool:
        answer = self.constant + self.slope * self.span.at > 0
        self.span.keep(self.constant, self.slope, positive=answer)
        return answer

    def _here(self) -> int:
        return self.constant + self.slope * self.span.only_here()


def line(size: Any) -> tuple[int, int]:
    """Constant and slope of a size: an int has no slope."""
    return (size.constant, size.slope) if isinstance(size, Affine) else (size, 0)


def _form(constant: int, slope: int, span: Span) -> Any:
    return Affine(constant, slope, span) if slope else constant


def _positive(gap: Any) -> bool:
    return gap._positive() if isinstance(gap, Affine) else gap > 0
