"""From values to places on a picture: linear and logarithmic scales, round ticks, and numbers as a chart writes them."""

import math

import msgspec

from vramcast.charts.pictures import Axis

_STEPS = (1, 2, 5, 10)
_UNITS = {"memory": 2.0**30, "days": 86_400.0}  # in which a form is written


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """Values from ``low`` to ``high`` on places from ``start`` to ``end``."""

    axis: Axis
    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        """Where a value stands; beyond the ends it stands at the end."""
        low, high, value = self.low, self.high, min(max(value, self.low), self.high)
        if self.axis.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self, most: int) -> list[float]:
        """Round values within, at most about so many."""
        unit = _UNITS.get(self.axis.form, 1.0)
        low, high = self.low / unit, self.high / unit
        found = _decades(low, high, most) if self.axis.log else []
        return [unit * tick for tick in (found if len(found) > 1 else _steps(low, high, most))]


def scale_of(axis: Axis, values: list[float], *, start: float, end: float) -> Scale:
    """The scale that holds these values: from zero where it is linear, with a little room where it is logarithmic."""
    found = [v for v in values if math.isfinite(v) and (v > 0 or not axis.log)] or [1.0]
    if axis.log:
        low, high = min(found) / 1.25, max(found) * 1.25
        return Scale(axis=axis, low=low, high=high, start=start, end=end)
    return Scale(axis=axis, low=0.0, high=max(*found, 1e-12) * 1.06, start=start, end=end)


def _steps(low: float, high: float, most: int) -> list[float]:
    raw = (high - low) / max(1, most)
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * one for one in _STEPS if size * one >= raw * 0.999)
    first = math.ceil(low / step)
    return [step * i for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _decades(low: float, high: float, most: int) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps in ((1, 2, 5), (1, 3), (1,)):
        found = [10.0**power * one for power in range(first, last + 1) for one in steps]
        found = [value for value in found if low <= value <= high]
        if len(found) <= most:
            return found
    return found[:: math.ceil(len(found) / most)]


def written(value: float, form: str) -> str:
    """A number as an axis writes it: ``1.5k``, ``20 ms``, ``$0.35``, ``24``."""
    if form == "time":
        return f"{_plain(value * 1e3)} ms" if value < 1 else f"{_plain(value)} s"
    if form == "days":
        return _plain(value / _UNITS[form])
    if form == "memory":
        return _plain(value / _UNITS[form])
    text = f"{_plain(value / 1e6)}M" if value >= 1e6 else f"{_plain(value / 1e3)}k" if value >= 1e4 else _plain(value)
    return f"${text}" if form == "money" else text


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == round(value) else f"{value:.3g}"
