"""The error bars of a server's speed: ranges of measured/forecast of their own, made with groups left out."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vramcast.ledger import Interval
from vramcast.serving.engines.base import RUNS, Answer
from vramcast.truth.bars import COVERAGE

if TYPE_CHECKING:
    from vramcast.speed.answer import Speed

SPEED_TABLE = Path(__file__).with_name("speed_intervals.json")
FEW = 16
"""Clients at once up to which times are those of one request beside others; with more, waves and queues decide them."""
BY_LOAD = ("ttft", "tpot")


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """Ratios measured/forecast that bound 90 % of the cases of one kind."""

    low: float
    high: float
    cases: int


def users(clients: float, *, apart: bool = False) -> str:
    """The kind of load that a time is told of: ``few`` or ``many`` at once, or prefill and decode ``apart``."""
    return "apart" if apart else "few" if clients <= FEW else "many"


def speed_intervals(answer: Answer, speed: "Speed") -> dict[str, Any]:
    """Bars of ttft_s, tpot_s and tokens_per_s; nothing where no case of that measure was met.

    Where the queue grows, or may grow, times have a lower end alone: the upper one is None.
    """
    engine = answer.resolved.question.engine
    engine = RUNS.get(engine, engine)
    pools = answer.resolved.question.traffic.pools is not None
    load = users(speed.load.concurrency or speed.batch, apart=pools)
    values = {"ttft_s": speed.ttft.seconds, "tpot_s": speed.tpot.seconds, "tokens_per_s": speed.tokens_per_s}
    found: dict[str, Any] = {}
    for name, value in values.items():
        bar = speed_interval(name.removesuffix("_s") if name != "tokens_per_s" else name, value, engine, load)
        if bar:
            found[name] = bar.as_dict("s" if name.startswith("t") and name != "tokens_per_s" else "")
            if speed.state != "steady" and name != "tokens_per_s":
                found[name]["high_s"] = None
    return found


# Times whose reciprocal rate was measured: engines that are benchmarked by rates have no row of times.
_RATE_OF = {"tpot": "tokens_per_s", "ttft": "prefill_tokens_per_s"}


def speed_interval(measure: str, value: float, engine: str, load: str = "") -> Interval | None:
    """The bar of one figure: the engine's own range under such a load, its own, that of its reciprocal rate, or all engines'.

    ``load``: as ``users`` has it. Where prefill and decode are apart, all engines' under that load come before the engine's own.
    """
    table, loaded = _speed_table(), f"{measure} {load}"
    apart = table.get(f"{loaded}|*") if load == "apart" else None
    row = table.get(f"{loaded}|{engine}") or apart or table.get(f"{measure}|{engine}")
    row = (
        row
        or _reciprocal(table.get(f"{_RATE_OF.get(measure)}|{engine}"))
        or table.get(f"{loaded}|*")
        or table.get(f"{measure}|*")
    )
    return Interval(low=value * row.low, high=value * row.high, coverage=COVERAGE, cases=row.cases) if row else None


def percentile_bars(measure: str, places: Mapping[str, float], engine: str) -> dict[str, dict[str, Any]]:
    """Bars of percentiles (``p50`` ... of ttft, tpot or e2e) under random arrivals; none where no log told of them.

    Each is the range that holds both: what request logs under random arrivals saw of this percentile, and what the engine's rows
    saw of the mean (of TTFT and TPOT for a whole request).
    """
    means = [speed_interval(name, 1.0, engine) for name in ((measure,) if measure != "e2e" else ("ttft", "tpot"))]
    found = {}
    for place, value in places.items():
        own = _speed_table().get(f"{measure}_{place}|rate")
        if own:
            low = min(own.low, *(bar.low for bar in means if bar))
            high = max(own.high, *(bar.high for bar in means if bar))
            found[place] = Interval(low=value * low, high=value * high, coverage=COVERAGE, cases=own.cases).as_dict("s")
    return found


def _reciprocal(rate: Range | None) -> Range | None:
    return Range(low=1 / rate.high, high=1 / rate.low, cases=rate.cases) if rate else None


@functools.cache
def _speed_table() -> dict[str, Range]:
    return msgspec.json.decode(SPEED_TABLE.read_bytes(), type=dict[str, Range]) if SPEED_TABLE.exists() else {}
