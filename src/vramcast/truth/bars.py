"""The error bar of an answer: what of it is arithmetic stays exact, the rest carries the spread of measured cases of its kind.

A cache that was asked for and a file's tensors follow exactly; what a pool engine uses besides weights and cache, torch's peak, a
compute buffer or a device counter are the parts that cases speak about.
"""

from math import ceil, hypot
from typing import TYPE_CHECKING

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import Interval, RankMemory
from vramcast.models.inventory import Model
from vramcast.models.layers import Attention, Experts, LatentAttention
from vramcast.serving.engines.base import GGUF_ENGINES, POOL_ENGINES, Answer
from vramcast.truth.intervals import interval_for, probability_fits

if TYPE_CHECKING:
    from vramcast.training.forecast import TrainingForecast


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank needs, split: ``exact_bytes`` follow by arithmetic, ``uncertain_bytes`` carry the spread of their measure.

    ``slack_bytes``: how far the need may be off on either side for a reason of its own, which measured cases did not have;
    ``below_bytes``: how much lower it may be beside that, where a larger of two possibilities was taken.
    """

    measure: str
    exact_bytes: int
    uncertain_bytes: int
    keys: dict[str, str]
    slack_bytes: int = 0
    below_bytes: int = 0

    @property
    def need_bytes(self) -> int:
        """What the rank needs, by the forecast."""
        return self.exact_bytes + self.uncertain_bytes

    def interval(self) -> Interval | None:
        """The bar of the need; None while no case of its kind was measured."""
        bar, need = interval_for(self.measure, self.uncertain_bytes, self.keys), self.need_bytes
        if bar is None:
            return None
        low, high = self.exact_bytes + bar.low, self.exact_bytes + bar.high
        return Interval(
            low=need - ceil(self._widened(need - low)) - self.below_bytes,
            high=need + ceil(self._widened(high - need)),
            coverage=bar.coverage,
            cases=bar.cases,
        )

    def chance_within(self, room_bytes: int) -> float | None:
        """The chance that the need stays within the room, from the quantiles of cases; None while there are none.

        Slack brings the room nearer to the need, by as much as it widens the bar on that side.
        """
        bar, need = interval_for(self.measure, self.uncertain_bytes, self.keys), self.need_bytes
        if bar is not None and self.slack_bytes:
            side = self.exact_bytes + bar.high - need if room_bytes > need else need - self.exact_bytes - bar.low
            room_bytes = need + round((room_bytes - need) * max(0.0, side) / self._widened(side))
        return probability_fits(self.measure, self.uncertain_bytes, room_bytes - self.exact_bytes, self.keys)

    def _widened(self, side: float) -> float:
        """One side of the bar with the slack: independent errors add as squares."""
        return side + hypot(side, self.slack_bytes) - abs(side)


def serving_spread(answer: Answer, rank: RankMemory) -> Spread:
    """What of this rank's need is certain, and what measured cases of its kind say of the rest."""
    question = answer.resolved.question
    keys = {"engine": question.engine, "version": answer.resolved.version, **model_keys(answer.resolved.model, question.quant)}
    if question.engine in POOL_ENGINES:
        keys |= platform_key(answer.resolved.card)
        return _spread("overhead", rank.needed_bytes, overhead_bytes(answer, rank), keys)
    if question.engine in GGUF_ENGINES:  # Ollama runs llama.cpp: the runs of one speak for the other
        keys["engine"] = "llama_cpp"
        return _spread("compute_buffer", rank.needed_bytes, _term(rank, "activations"), keys)
    spread = _spread("allocated", rank.needed_bytes, rank.allocated_bytes, keys)
    guessed = question.dtype is None and any(taken.name == "dtype" for taken in answer.resolved.model.assumed)
    return msgspec.structs.replace(spread, below_bytes=_term(rank, "weights") // 2) if guessed else spread


def overhead_bytes(answer: Answer, rank: RankMemory) -> int:
    """What a rank of a pool engine needs besides its weights and the cache asked for: peaks, graphs, libraries, context.

    Its cases take the weights as forecast, so that their spread holds what the weights missed.
    """
    return rank.needed_bytes - _term(rank, "weights") - answer.cache.request_bytes * answer.resolved.concurrency


def training_spread(answer: "TrainingForecast", rank: RankMemory) -> Spread:
    """A training rank's device memory, all of it as uncertain as its framework's cases, and as its layers' traces were off."""
    from vramcast.training.activations.known import slack_bytes

    slack = slack_bytes(answer.recipe, rank)
    keys = training_keys(answer)
    return Spread(measure="device", exact_bytes=0, uncertain_bytes=rank.needed_bytes, keys=keys, slack_bytes=slack)


def training_keys(answer: "TrainingForecast") -> dict[str, str]:
    """Framework, method and family; ``novel`` where a part of the model has no rule: its bar is that of the unmeasured."""
    novel = {"novel": "yes"} if answer.novel else {}
    return {"engine": answer.question.framework, "method": answer.question.method, "family": answer.family, **novel}


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


def _term(rank: RankMemory, name: str) -> int:
    return max((term.bytes for instant in rank.instants for term in instant.terms if term.name == name), default=0)
