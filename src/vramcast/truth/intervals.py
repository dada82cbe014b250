"""Error bars at run time: where the measured figure falls for a forecast of this kind, read from a small table of cases.

``intervals.json`` is written by ``calibration.py`` from measured cases: per cell (measure, engine, version, kind ... as far as
there are cases) the shortest range of measured/forecast that holds 90 % of them, and the quantiles of that ratio. A question
takes the finest cell that fits it; with too few cases the table has only the coarser one.
"""

import bisect
import functools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from vramcast.ledger import Interval
from vramcast.truth.judgement import engine_name

TABLE = Path(__file__).with_name("intervals.json")
COVERAGE = 0.9
# Probabilities at which a cell keeps the quantiles of measured/forecast.
PROBABILITIES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
# Launchers and trainers whose step is the HF Trainer's own: what was measured under one of them speaks for all.
_TRAINER = frozenset({"accelerate", "axolotl", "deepspeed", "llama_factory", "trl"})
# Grouping keys from the finest cell to the coarsest; a measure's own parent is the measure alone.
LADDER: tuple[tuple[str, ...], ...] = (
    ("engine", "release", "class"),
    ("engine", "class"),
    ("engine", "release"),
    ("engine", "stored"),
    ("engine",),
    (),
)


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """What cases of one kind say: ratios measured/forecast that bound 90 %, quantiles of the ratio, and how many cases."""

    low: float
    high: float
    quantiles: tuple[float, ...]
    cases: int
    sources: int


def interval_for(measure: str, predicted: float, keys: Mapping[str, str]) -> Interval | None:
    """Where the measured figure falls with 90 % probability; None when no case of this measure exists.

    ``keys``: engine (or framework), platform, version, kind, method, quant: what is known of the question.
    """
    cell = cell_for(measure, keys)
    if cell is None:
        return None
    low, high = math.floor(predicted * cell.low), math.ceil(predicted * cell.high)
    return Interval(low=low, high=high, coverage=COVERAGE, cases=cell.cases)


def probability_fits(measure: str, predicted: float, capacity: float, keys: Mapping[str, str]) -> float | None:
    """Chance that the measured figure is at most the capacity; None when no case of this measure exists."""
    cell = cell_for(measure, keys)
    if cell is None or predicted <= 0:
        return None
    return _cumulative(capacity / predicted, cell.quantiles)


def cell_for(measure: str, keys: Mapping[str, str]) -> Cell | None:
    """The finest cell that has enough cases."""
    table = _table()
    return next((table[name] for name in cell_names(measure, keys) if name in table), None)


def cell_names(measure: str, keys: Mapping[str, str]) -> Iterator[str]:
    """Names of the cells that a question belongs to, finest first: ``measure|engine|release|class``, "*" for any.

    Between a class and any class stand all classes stored alike, "16-bit" or "quantised". A platform apart has cells of its own
    ("vllm@other"), down to the coarsest.
    """
    kind, platform = kind_class(keys), "@" + keys["platform"] if "platform" in keys else ""
    engine = engine_name(keys.get("engine", ""))
    known = {
        "engine": "hf_trainer" if engine in _TRAINER else engine,
        "release": release(keys.get("version", "")),
        "class": kind,
        "stored": kind.rpartition(", ")[2],
    }
    for rung in LADDER:
        if all(known[key] for key in rung):
            whose, number, named = (known[key] if key in rung else "*" for key in ("engine", "release", "class"))
            named = known["stored"] if "stored" in rung else named
            yield "|".join([measure, whose + platform, number, named])


def release(version: str) -> str:
    """``0.19`` of ``0.19.0``: rules change with releases, not with patches."""
    parts = version.removeprefix("v").split(".")
    return ".".join(parts[:2]) if len(parts) >= 2 and parts[0].isdigit() else ""


def kind_class(keys: Mapping[str, str]) -> str:
    """The class of a serving question inside an engine: quantised or not, and the hardest layer kind.

    Training and llama.cpp have none: finer cells were wider on rows they were not made from than the framework's own.
    """
    if engine_name(keys.get("engine", "")).endswith("llama_cpp"):
        return ""
    kinds = set(keys.get("kind", "").split("+"))
    hardest = next((k for k in ("hybrid", "mla", "vlm", "swa", "moe", "dense") if k in kinds), "")
    stored = "16-bit" if keys.get("quant", "none").startswith(("none", "bf16", "fp16", "fp32")) else "quantised"
    return f"{hardest}, {stored}" if hardest else ""


def forget() -> None:
    """Read the table again at the next question: it was written anew."""
    _table.cache_clear()


@functools.cache
def _table() -> dict[str, Cell]:
    return msgspec.json.decode(TABLE.read_bytes(), type=dict[str, Cell]) if TABLE.exists() else {}


def _cumulative(ratio: float, quantiles: tuple[float, ...]) -> float:
    """Probability that measured/forecast is at most ``ratio``: linear between the kept quantiles, flat beyond them."""
    if ratio < quantiles[0]:
        return PROBABILITIES[0] / 2
    if ratio >= quantiles[-1]:
        return 1 - (1 - PROBABILITIES[-1]) / 2
    upper = bisect.bisect_right(quantiles, ratio)
    low, high = quantiles[upper - 1], quantiles[upper]
    share = (ratio - low) / (high - low) if high > low else 1.0
    return PROBABILITIES[upper - 1] + share * (PROBABILITIES[upper] - PROBABILITIES[upper - 1])
