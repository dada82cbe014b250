"""The error bar of a training step's time: as wide as runs were off that nobody had seen, wider for what is not known.

The error is log(measured/forecast) at first look (``truth/speed_first_look.jsonl``). Its unit is the root of a sum of squares: a
base for every step, and a width for each thing that is not known (``speed/training/unknowns.py``). The range of errors in this
unit is conformal over groups, as for memory (``first_look.py``). ``truth/write_step_bars.py`` learns both and writes the table.
"""

import functools
import math
from collections.abc import Iterable
from pathlib import Path

import msgspec

from vramcast.ledger import Interval
from vramcast.speed.training.unknowns import Unknown, What
from vramcast.truth.bars import COVERAGE

STEP_TABLE = Path(__file__).with_name("step_intervals.json")


class StepBars(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of a step in logarithms: ``base`` and ``widths`` make the unit, ``low`` and ``high`` bound 90 % of them in it."""

    base: float
    widths: dict[What, float]
    low: float
    high: float
    cases: int
    groups: int

    def unit(self, found: Iterable[Unknown]) -> float:
        """The unit of errors where this is not known."""
        return math.hypot(self.base, *(self.widths.get(one.what, 0.0) * one.share for one in found))

    def ends(self, found: Iterable[Unknown]) -> tuple[float, float]:
        """Measured/forecast at the bar's ends."""
        unit = self.unit(found)
        return math.exp(self.low * unit), math.exp(self.high * unit)


def step_interval(step_s: float, found: Iterable[Unknown]) -> Interval:
    """Where a measured step falls with 90 % probability, in seconds, where this of it is not known."""
    bars = step_bars()
    low, high = bars.ends(found)
    return Interval(low=step_s * low, high=step_s * high, coverage=COVERAGE, cases=bars.cases)


@functools.cache
def step_bars() -> StepBars:
    """The committed table."""
    return msgspec.json.decode(STEP_TABLE.read_bytes(), type=StepBars)
