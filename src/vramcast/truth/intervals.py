"""Error bars at run time: where the measured figure falls for a forecast of this kind, read from a small table of cells.

``intervals.json`` holds two kinds of cells, each a range of measured/forecast with the quantiles of that ratio.
*First-look* cells (``first_look.py``) come from rows that nobody had tuned on, and tell a combination of engine and model family
that has been measured from one that has not. *Tuned* cells (``calibration.py``) come from the rows that rules were built on; they
say how uncertain one engine is beside the others. A question takes the finest cell of each kind that fits it, and the range that
holds both.
"""

import bisect
import functools
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


SEEN = Path(__file__).with_name("combinations.json")


class Cell(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What cases of one kind say: ratios measured/forecast that bound 90 %, quantiles of the ratio, and how many cases.

    ``groups``: of first looks, the groups (one source and one model family) that weigh alike; 0 for tuned cells.
    """

    low: float
    high: float
    quantiles: tuple[float, ...]
    cases: int
    sources: int
    groups: int = 0

    def joined(self, other: "Cell | None") -> "Cell":
        """The range and the quantiles that hold both cells; counts are this cell's."""
        if other is None:
            return self
        pairs = zip(PROBABILITIES, self.quantiles, other.quantiles, strict=True)
        quantiles = tuple(min(a, b) if p < 0.5 else max(a, b) if p > 0.5 else a for p, a, b in pairs)
        return msgspec.structs.replace(self, low=min(self.low, other.low), high=max(self.high, other.high), quantiles=quantiles)


class Combination(msgspec.Struct, frozen=True, kw_only=True):
    """What decides a first-look cell: the measure, the engine or framework, and whether it was measured with this family."""

    measure: str
    engine: str
    seen: bool

    @classmethod
    def of(cls, measure: str, keys: Mapping[str, str]) -> "Combination":
        """The combination of a question's keys. What is known to be unknown (``novel``) was not seen, whatever else matches."""
        engine = engine_name(keys.get("engine", ""))
        families = _combinations().get(engine, frozenset())
        seen = keys.get("family", "") in families and not keys.get("novel") and not keys.get("platform")
        return cls(measure=measure, engine=engine, seen=seen)


def first_look_names(combination: Combination) -> tuple[str, ...]:
    """Names of the first-look cells that a combination belongs to, finest first: its engine's, then any engine's."""
    measure, engine, novelty = combination.measure, combination.engine, "seen" if combination.seen else "new"
    return f"first|{measure}|{engine}|{novelty}", f"first|{measure}|*|{novelty}", f"first|{measure}|*|*"


def interval_for(measure: str, predicted: float, keys: Mapping[str, str]) -> Interval | None:
    """Where the measured figure falls with 90 % probability; None when no case of this measure exists.

    ``keys``: engine (or framework), family, platform, version, kind, method, quant: what is known of the question.
    """
    cell = cell_for(measure, keys)
    if cell is None:
        return None
    return Interval(low=predicted * cell.low, high=predicted * cell.high, coverage=COVERAGE, cases=cell.cases)


def probability_fits(measure: str, predicted: float, capacity: float, keys: Mapping[str, str]) -> float | None:
    """Chance that the measured figure is at most the capacity; None when no case of this measure exists."""
    cell = cell_for(measure, keys)
    if cell is None or predicted <= 0:
        return None
    return _cumulative(capacity / predicted, cell.quantiles)


def cell_for(measure: str, keys: Mapping[str, str]) -> Cell | None:
    """The finest first-look cell that has enough groups, held together with the engine's own tuned cell where there is one."""
    return cell_in(_table(), measure, keys)


def cell_in(table: Mapping[str, Cell], measure: str, keys: Mapping[str, str]) -> Cell | None:
    """The same from a table at hand."""
    tuned = next(((name, table[name]) for name in cell_names(measure, keys) if name in table), None)
    looked = next((table[n] for n in first_look_names(Combination.of(measure, keys)) if n in table), None)
    if looked is None:
        return tuned[1] if tuned else None
    own = tuned is not None and not tuned[0].split("|")[1].startswith("*")
    return looked.joined(tuned[1] if tuned and own else None)


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
    _combinations.cache_clear()


@functools.cache
def _combinations() -> dict[str, frozenset[str]]:
    """Model families that stand with each engine or framework in the rows that rules were built on."""
    return msgspec.json.decode(SEEN.read_bytes(), type=dict[str, frozenset[str]]) if SEEN.exists() else {}


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
