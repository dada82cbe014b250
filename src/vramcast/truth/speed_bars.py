"""The error bar of a speed: the range of measured/forecast that held 90 % of runs of its kind, groups left out."""

import functools
from pathlib import Path
from typing import Any

import msgspec

from vramcast.ledger import Interval
from vramcast.serving.engines.base import Answer
from vramcast.speed.answer import Speed

TABLE = Path(__file__).with_name("speed_intervals.json")
COVERAGE = 0.9


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """Ratios measured/forecast that bound 90 % of the cases of one kind."""

    low: float
    high: float
    cases: int


def speed_intervals(answer: Answer, speed: Speed) -> dict[str, Any]:
    """Bars of ttft_s, tpot_s and tokens_per_s; nothing where no case of that measure was met."""
    engine = answer.resolved.question.engine
    values = {"ttft_s": speed.ttft.seconds, "tpot_s": speed.tpot.seconds, "tokens_per_s": speed.tokens_per_s}
    found: dict[str, Any] = {}
    for name, value in values.items():
        bar = speed_interval(name.removesuffix("_s") if name != "tokens_per_s" else name, value, engine)
        if bar:
            found[name] = bar.as_dict("s" if name.startswith("t") and name != "tokens_per_s" else "")
    return found


def speed_interval(measure: str, value: float, engine: str) -> Interval | None:
    """The bar of one figure: the engine's own range, or that of all engines."""
    table = _table()
    row = table.get(f"{measure}|{engine}") or table.get(f"{measure}|*")
    return Interval(low=value * row.low, high=value * row.high, coverage=COVERAGE, cases=row.cases) if row else None


@functools.cache
def _table() -> dict[str, Range]:
    return msgspec.json.decode(TABLE.read_bytes(), type=dict[str, Range]) if TABLE.exists() else {}
