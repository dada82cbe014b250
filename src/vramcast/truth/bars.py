"""The error bar of an answer: what of it is arithmetic stays exact, the rest carries the spread of measured cases of its kind.

A cache that was asked for and a file's tensors follow exactly; what a pool engine uses besides weights and cache, torch's peak, a
compute buffer or a device counter are the parts that cases speak about. ``intervals.json`` holds what they say: cells of two
kinds, each a range of measured/forecast with the quantiles of that ratio. *First-look* cells (``first_look.py``) come from rows
that nobody had tuned on, and tell a combination of engine and model family that has been measured from one that has not. *Tuned*
cells (``calibration.py``) come from the rows that rules were built on; they say how uncertain one engine is beside the others. A
question takes the finest cell of each kind that fits it, and the range that holds both.

Most figures err by a factor. What a pool engine needs beside its weights, its graphs, the pool that is left of the card, and the
counters of a training step err by bytes (``scales.py``): a cell of these holds (measured - forecast)/scale.
"""

import bisect
import functools
from collections.abc import Iterator, Mapping
from math import ceil, hypot
from pathlib import Path

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import Interval, RankMemory
from vramcast.models.inventory import Model
from vramcast.models.layers import Attention, Experts, LatentAttention
from vramcast.serving.engines.base import GGUF_ENGINES, NEVER_MEASURED, POOL_ENGINES, RUNS, UNMEASURED, Answer, plugin_of
from vramcast.truth.scales import BESIDE_WEIGHTS, IN_BYTES, bar_name, error_scale

TABLE = Path(__file__).with_name("intervals.json")
COVERAGE = 0.9
# Probabilities at which a cell keeps the quantiles of measured/forecast.
PROBABILITIES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
# Launchers and trainers whose step is the HF Trainer's own: what was measured under one of them speaks for all.
TRAINERS = frozenset({"accelerate", "axolotl", "deepspeed", "llama_factory", "trl"})
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

    Of measures whose errors are bytes: (measured - forecast)/scale instead of the ratio.

    ``groups``: of first looks, the groups (one source and one model family) that weigh alike; 0 for tuned cells.
    """

    low: float
    high: float
    quantiles: tuple[float, ...]
    cases: int
    sources: int
    groups: int = 0

    @property
    def tails(self) -> tuple[float, ...]:
        """The quantiles, where the bar reaches further than they do moved out to it: verdict and bar say the same.

        Bars are widened until they hold groups that were left out; raw quantiles of few groups are too sure of themselves.
        """
        pairs = zip(PROBABILITIES, self.quantiles, strict=True)
        outside = (1 - COVERAGE) / 2
        return tuple(
            min(value, self.low)
            if p <= outside
            else max(value, self.high)
            if p >= 1 - outside
            else min(max(value, self.low), self.high)
            for p, value in pairs
        )

    def joined(self, other: "Cell | None") -> "Cell":
        """The range and the quantiles that hold both cells; counts are this cell's."""
        if other is None:
            return self
        pairs = zip(PROBABILITIES, self.quantiles, other.quantiles, strict=True)
        quantiles = tuple(min(a, b) if p < 0.5 else max(a, b) if p > 0.5 else a for p, a, b in pairs)
        return msgspec.structs.replace(self, low=min(self.low, other.low), high=max(self.high, other.high), quantiles=quantiles)


class Combination(msgspec.Struct, frozen=True, kw_only=True):
    """What decides a first-look cell: the measure, the engine or framework, and whether it is known with this family.

    Known is what was measured together, and a family that was traced under a framework which was measured with others.

    ``plain``: a dense model of text alone, of whose peak least is unknown.
    """

    measure: str
    engine: str
    seen: bool
    plain: bool = False

    @classmethod
    def of(cls, measure: str, keys: Mapping[str, str]) -> "Combination":
        """The combination of a question's keys. What is known to be unknown (``novel``) was not seen, whatever else matches."""
        engine = engine_name(keys.get("engine", ""))
        families = _combinations().get(engine, frozenset())
        seen = keys.get("family", "") in families and not keys.get("novel") and not keys.get("platform")
        return cls(measure=measure, engine=engine, seen=seen, plain=keys.get("kind") == "dense")


def first_look_names(combination: Combination) -> tuple[str, ...]:
    """Names of the first-look cells that a combination belongs to, finest first: its engine's, then any engine's.

    Errors in bytes are alike under all pool engines, which profile alike; there the kind of model tells more than the engine.
    Those of a training step are PyTorch's under every framework.
    """
    measure, engine, novelty = combination.measure, combination.engine, "seen" if combination.seen else "new"
    if measure in IN_BYTES:
        engine = "plain" if combination.plain and measure in BESIDE_WEIGHTS else "*"
    return f"first|{measure}|{engine}|{novelty}", f"first|{measure}|*|{novelty}", f"first|{measure}|*|*"


def interval_for(
    measure: str, predicted: float, keys: Mapping[str, str], scale: float = 0, certain: float = 0
) -> Interval | None:
    """Where the measured figure falls with 90 % probability; None when no case of this measure exists.

    ``keys``: engine (or framework), family, platform, version, kind, method, quant: what is known of the question. ``scale``:
    the unit of its errors where they are bytes; without it a measure that errs by bytes alone has no bar. ``certain``: what it
    surely holds, below which no bar reaches.
    """
    measure = bar_name(measure, scale)
    cell = cell_for(measure, keys)
    if cell is None or (measure in IN_BYTES and not scale):
        return None
    low, high = (predicted + end * scale if scale else predicted * end for end in (cell.low, cell.high))
    low = max(low, min(certain, predicted))
    return Interval(low=low, high=max(low, high), coverage=COVERAGE, cases=cell.cases)


def probability_fits(measure: str, predicted: float, capacity: float, keys: Mapping[str, str], scale: float = 0) -> float | None:
    """Chance that the measured figure is at most the capacity; None when no case of this measure exists."""
    measure = bar_name(measure, scale)
    cell = cell_for(measure, keys)
    if cell is None or predicted <= 0 or (measure in IN_BYTES and not scale):
        return None
    return _cumulative((capacity - predicted) / scale if scale else capacity / predicted, cell.tails)


def cell_for(measure: str, keys: Mapping[str, str]) -> Cell | None:
    """The finest first-look cell that has enough groups, held together with the engine's own tuned cell where there is one."""
    return _cell_of(measure, tuple(keys.items()))


@functools.lru_cache(maxsize=1024)
def _cell_of(measure: str, keys: tuple[tuple[str, str], ...]) -> Cell | None:
    return cell_in(_table(), measure, dict(keys))


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
        "engine": "hf_trainer" if engine in TRAINERS else engine,
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


def engine_name(text: str) -> str:
    """One spelling per engine: llama.cpp, llama-cpp and llama_cpp are the same."""
    return text.lower().replace(".", "_").replace("-", "_")


def forget() -> None:
    """Read the table again at the next question: it was written anew."""
    for remembered in (_table, _combinations, _cell_of):
        remembered.cache_clear()


@functools.cache
def _combinations() -> dict[str, frozenset[str]]:
    """Model families that stand with each engine or framework in the rows that rules were built on, or were traced with it."""
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


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank needs, split: ``exact_bytes`` follow by arithmetic, ``uncertain_bytes`` carry the spread of their measure.

    ``slack_bytes``: how far the need may be off on either side for a reason of its own, which measured cases did not have;
    ``below_bytes``: how much lower it may be beside that, where a larger of two possibilities was taken. ``scale_bytes``: the
    unit of the errors, where they are bytes and no ratio. ``certain_bytes``: what of the uncertain part is surely held: no bar
    reaches below it, and no smaller room holds it.
    """

    measure: str
    exact_bytes: int
    uncertain_bytes: int
    keys: dict[str, str]
    slack_bytes: int = 0
    below_bytes: int = 0
    scale_bytes: float = 0
    certain_bytes: int = 0

    @property
    def need_bytes(self) -> int:
        """What the rank needs, by the forecast."""
        return self.exact_bytes + self.uncertain_bytes

    def interval(self) -> Interval | None:
        """The bar of the need; None while no case of its kind was measured."""
        bar, need = self._bar(), self.need_bytes
        if bar is None:
            return None
        low, high = self.exact_bytes + bar.low, self.exact_bytes + bar.high
        lowest = need - ceil(self._widened(need - low)) - self.below_bytes
        return Interval(
            low=max(lowest, min(need, self.exact_bytes + self.certain_bytes)) if self.certain_bytes else lowest,
            high=need + ceil(self._widened(high - need)),
            coverage=bar.coverage,
            cases=bar.cases,
        )

    def chance_within(self, room_bytes: int) -> float | None:
        """The chance that the need stays within the room, from the quantiles of cases; None while there are none.

        Slack brings the room nearer to the need, by as much as it widens the bar on that side.
        """
        bar, need = self._bar(), self.need_bytes
        if bar is not None and self.certain_bytes and room_bytes < self.exact_bytes + self.certain_bytes:
            return PROBABILITIES[0] / 2
        if bar is not None and self.slack_bytes:
            side = self.exact_bytes + bar.high - need if room_bytes > need else need - self.exact_bytes - bar.low
            room_bytes = need + round((room_bytes - need) * max(0.0, side) / self._widened(side))
        return probability_fits(self.measure, self.uncertain_bytes, room_bytes - self.exact_bytes, self.keys, self.scale_bytes)

    def _bar(self) -> Interval | None:
        return interval_for(self.measure, self.uncertain_bytes, self.keys, self.scale_bytes)

    def _widened(self, side: float) -> float:
        """One side of the bar with the slack: independent errors add as squares."""
        return side + hypot(side, self.slack_bytes) - abs(side)


def serving_spread(answer: Answer, rank: RankMemory) -> Spread:
    """What of this rank's need is certain, and what measured cases of its kind say of the rest."""
    question = answer.resolved.question
    keys = {"engine": question.engine, "version": answer.resolved.version, **model_keys(answer.resolved.model, question.quant)}
    if question.engine in POOL_ENGINES:
        keys |= platform_key(answer.resolved.card)
        spread = _spread("overhead", rank.needed_bytes, overhead_bytes(answer, rank), keys)
        never = question.engine in NEVER_MEASURED or plugin_of(question.engine, answer.resolved.card)
        unmeasured = round(UNMEASURED * overhead_bytes(answer, rank)) if never else 0
        slack = max(unmeasured, _of_few_cases(rank))
        return msgspec.structs.replace(spread, slack_bytes=slack, scale_bytes=error_scale_of(answer, rank))
    if question.engine in GGUF_ENGINES:  # Ollama runs llama.cpp: the runs of one speak for the other
        keys["engine"] = RUNS.get(question.engine, question.engine)
        return _spread("compute_buffer", rank.needed_bytes, _term(rank, "activations"), keys)
    spread = _spread("allocated", rank.needed_bytes, rank.allocated_bytes, keys)
    guessed = question.dtype is None and any(taken.name == "dtype" for taken in answer.resolved.model.assumed)
    return msgspec.structs.replace(spread, below_bytes=_term(rank, "weights") // 2) if guessed else spread


def overhead_bytes(answer: Answer, rank: RankMemory) -> int:
    """What a rank of a pool engine needs besides its weights and the cache asked for: peaks, graphs, libraries, context.

    Its cases take the weights as forecast, so that their spread holds what the weights missed.
    """
    return rank.needed_bytes - _term(rank, "weights") - answer.wanted_bytes


def error_scale_of(answer: Answer, rank: RankMemory) -> float:
    """The unit in which the overhead of this rank, and the pool beside it, err."""
    return error_scale(max(0, overhead_bytes(answer, rank)), _term(rank, "weights"))


def platform_key(card: Accelerator | None) -> dict[str, str]:
    """The platform of a pool engine, "other" where its cases say nothing of NVIDIA cards with memory of their own.

    On memory shared with the host the system takes its part; ROCm's libraries take more than CUDA's.
    """
    usual = card is None or (card.vendor == "NVIDIA" and not card.unified)
    return {} if usual else {"platform": "other"}


def model_keys(model: Model, quant: str | None = None) -> dict[str, str]:
    """Kinds of layers and whether weights are quantised, as cases are grouped by."""
    mixers = [mixer for block in model.blocks for mixer in block.mixers]
    kinds = {
        "moe": any(isinstance(block.feedforward, Experts) for block in model.blocks),
        "mla": any(isinstance(mixer, LatentAttention) for mixer in mixers),
        "swa": any(isinstance(mixer, Attention) and mixer.window for mixer in mixers),
        "hybrid": any(not isinstance(mixer, (Attention, LatentAttention)) for mixer in mixers),
        "vlm": any(tower.kind == "vision" for tower in model.towers),
    }
    named = "+".join(kind for kind, present in kinds.items() if present) or "dense"
    return {"kind": named, "quant": quant or ("checkpoint" if model.quantization else "none"), **family_keys(model)}


def family_keys(model: Model) -> dict[str, str]:
    """The model's family, and whether a part of it is known to be unmodelled: what tells the measured from the unmeasured."""
    return {"family": model.family, **({"novel": "yes"} if model.unmodelled else {})}


def _spread(measure: str, needed: int, uncertain: int, keys: dict[str, str]) -> Spread:
    part = max(0, uncertain)
    return Spread(measure=measure, exact_bytes=needed - part, uncertain_bytes=part, keys=keys)


def _of_few_cases(rank: RankMemory) -> int:
    """How far the factors of a rank's peak that rest on few cases may be off together: cases of other releases do not hold it."""
    return ceil(hypot(*(part.slack for term in rank.peak.terms for _, part in term.walk())))


def _term(rank: RankMemory, name: str) -> int:
    return max((term.bytes for instant in rank.instants for term in instant.terms if term.name == name), default=0)
