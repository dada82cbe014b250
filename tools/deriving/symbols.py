"""Numbers that remember how they were computed: what a model's class does with the fields of its config, written down as it runs.

``Whole`` is an int, ``Real`` a float, each with the expression that made it: a number, the path of a config field
("text_config.hidden_size"), or a tuple of an operator and its operands. A comparison answers as the numbers do and is noted as a
condition: what is derived holds only where every noted condition comes out the same.
"""

import math
from typing import Any

Expression = Any
_CONDITIONS: dict[str, tuple[str, Expression, Expression, bool]] = {}


def noted() -> list[tuple[str, Expression, Expression, bool]]:
    """The conditions since the last call."""
    found = [*_CONDITIONS.values()]
    _CONDITIONS.clear()
    return found


def of(value: Any) -> Expression:
    """The expression of a number; a plain one is its own."""
    return value.how if isinstance(value, Whole | Real) else int(value) if type(value) is Index else value


def _made(value: Any, how: Expression) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return Whole(value, how) if isinstance(value, int) else Real(value, how)


def _binary(sign: str, plain: Any, *, swapped: bool = False) -> Any:
    def method(self: Any, other: Any) -> Any:
        if isinstance(other, bool) or not isinstance(other, int | float):
            return NotImplemented
        ours, theirs = self.real_value, other.real_value if isinstance(other, Whole | Real) else other
        left, right = (theirs, ours) if swapped else (ours, theirs)
        how = (sign, of(other), of(self)) if swapped else (sign, of(self), of(other))
        return _made(plain(left, right), how)

    return method


def _compared(sign: str, plain: Any) -> Any:
    def method(self: Any, other: Any) -> Any:
        if isinstance(other, bool) or not isinstance(other, int | float):
            return NotImplemented
        theirs = other.real_value if isinstance(other, Whole | Real) else other
        answer = plain(self.real_value, theirs)
        if not isinstance(other, Index):
            _CONDITIONS[repr((sign, of(self), of(other)))] = (sign, of(self), of(other), answer)
        return answer

    return method


def _unary(sign: str, plain: Any) -> Any:
    return lambda self, *_: _made(plain(self.real_value), (sign, self.how))


_SIGNS: dict[str, tuple[str, Any]] = {
    "add": ("+", lambda a, b: a + b), "sub": ("-", lambda a, b: a - b), "mul": ("*", lambda a, b: a * b),
    "truediv": ("/", lambda a, b: a / b), "floordiv": ("//", lambda a, b: a // b), "mod": ("%", lambda a, b: a % b),
    "pow": ("**", lambda a, b: a**b),
}  # fmt: skip
_ORDER: dict[str, tuple[str, Any]] = {
    "eq": ("==", lambda a, b: a == b), "ne": ("!=", lambda a, b: a != b), "lt": ("<", lambda a, b: a < b),
    "le": ("<=", lambda a, b: a <= b), "gt": (">", lambda a, b: a > b), "ge": (">=", lambda a, b: a >= b),
}  # fmt: skip


class _Symbol:
    """What whole and real numbers share."""

    how: Expression
    real_value: Any

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self


for _name, (_sign, _plain) in _SIGNS.items():
    setattr(_Symbol, f"__{_name}__", _binary(_sign, _plain))
    setattr(_Symbol, f"__r{_name}__", _binary(_sign, _plain, swapped=True))
for _name, (_sign, _plain) in _ORDER.items():
    setattr(_Symbol, f"__{_name}__", _compared(_sign, _plain))
_Symbol.__neg__ = _unary("neg", lambda a: -a)  # type: ignore[attr-defined]
_Symbol.__ceil__ = _unary("ceil", math.ceil)  # type: ignore[attr-defined]
_Symbol.__floor__ = _unary("floor", math.floor)  # type: ignore[attr-defined]
_Symbol.__round__ = _unary("round", round)  # type: ignore[attr-defined]


class Whole(_Symbol, int):
    """An int with its expression."""

    def __new__(cls, value: int, how: Expression) -> "Whole":
        made = int.__new__(cls, value)
        made.how = how
        return made

    @property
    def real_value(self) -> int:
        """The plain number."""
        return int.__int__(self)

    def __hash__(self) -> int:
        return int.__hash__(self)

    def __reduce__(self) -> Any:
        return (int, (self.real_value,))


class Real(_Symbol, float):
    """A float with its expression."""

    def __new__(cls, value: float, how: Expression) -> "Real":
        made = float.__new__(cls, value)
        made.how = how
        return made

    @property
    def real_value(self) -> float:
        """The plain number."""
        return float.__float__(self)

    def __hash__(self) -> int:
        return float.__hash__(self)

    def __reduce__(self) -> Any:
        return (float, (self.real_value,))


class Index(int):
    """The number of a turn of a loop: comparing it with a field tells of one layer, not of the whole config."""


class _WholeType(type):
    def __instancecheck__(cls, given: Any) -> bool:
        return isinstance(given, int)

    def __subclasscheck__(cls, given: type) -> bool:
        return issubclass(given, int)

    def __call__(cls, given: Any = 0, *rest: Any) -> Any:
        if isinstance(given, Real) and not rest:
            return _made(int(given.real_value), ("int", given.how))
        return given if isinstance(given, Whole) else int(given, *rest)


class integer(int, metaclass=_WholeType):  # noqa: N801 - stands in for the builtin
    """The builtin ``int`` as a class's file sees it while it is traced."""


def counted(*bounds: int) -> Any:
    """The builtin ``range`` as a class's file sees it while it is traced."""
    return [Index(i) for i in range(*(int.__int__(b) for b in bounds))]
