"""The one verdict: margin, probability, exit code and headline of an answer, all from the same distribution of its need.

A forecast's need has a spread, learned from measured cases of its kind. The chance that the need stays within the room decides:

    fits     margin not negative and at least 95 % likely        exit code 0
    tight    at least 50 % likely                                exit code 0
    partly   the engine starts, but serves fewer or shorter requests, or leaves layers on the host    exit code 1
    no       less than 50 % likely, or refused by the engine     exit code 1
    unknown  no card was named                                   exit code 0

Without measured cases only the sign of the margin speaks.
"""

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import Fit, Forecast, Interval, RankMemory
from vramcast.quantity import Number, minimum, where
from vramcast.units import gib, tenths

if TYPE_CHECKING:
    from vramcast.serving.engines.base import Answer, LeftOnHost
    from vramcast.training.forecast import TrainingForecast

SURE = 0.95
LIKELY = 0.5
WANTING = ("no", "partly", "tight")  # verdicts that ask for advice
_FINE_BYTES = 2**20  # of a margin that is only where a search begins
Chance = Callable[[int], float | None]
# What each engine calls the most sequences that it runs at once.
MOST_AT_ONCE = {"vllm": "max_num_seqs", "sglang": "max_running_requests", "tensorrt_llm": "max_batch_size",
                "tgi": "max_batch_size", "lmdeploy": "max_batch_size"}  # fmt: skip


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What a pool engine that starts can serve of what was asked, and the chance that it starts.

    ``at_once``: requests as asked (``Resolved.live_tokens``) that memory holds, ``most`` that the engine runs;
    ``longest``: tokens of the longest single request; ``typical``: requests of the prompt and output asked beside a context.
    """

    asked: int
    at_once: float
    context: int
    longest: int
    starts: float
    most: int | None
    typical: float | None = None

    @property
    def capped(self) -> bool:
        """Whether the engine is told to run fewer at once than asked, whatever memory there is."""
        return self.most is not None and self.most < self.asked

    @property
    def serves(self) -> bool:
        """Whether it starts, and then serves something."""
        return self.starts >= LIKELY and self.longest > 0

    @property
    def told(self) -> str:
        """``starts; 3.5 of 5 at once`` or ``starts; requests of up to 9,690 of 32,768 tokens``."""
        if self.at_once < 1:
            return f"starts; requests of up to {self.longest:,} of {self.context:,} tokens"
        if self.capped and self.most is not None and self.most <= self.at_once:
            return f"starts; runs {self.most:,} of {self.asked:,} at once, the most it is told to"
        whole = f"starts; {tenths(self.at_once):,.1f} of {self.asked:,} at once"
        return whole if self.typical is None else f"{whole}, or {tenths(self.typical):,.1f} of the prompt and output asked"


def judge(
    rank: RankMemory, *, capacity_bytes: int, margin_bytes: int, chance: Chance, error: str = "", load: Load | None = None
) -> Fit:
    """The verdict of the worst rank.

    ``margin_bytes``: what is left by the engine's own rule once the question is served, negative when it is short. ``chance``:
    probability that the need stays within so many bytes, None while no case of its kind was measured.
    """
    over = capacity_bytes - rank.claimed_bytes
    margin = min(margin_bytes, over) if over < 0 else margin_bytes
    if over < 0 and rank.claimed_bytes > rank.needed_bytes:  # it does not start, so it serves nothing
        load, error = None, error or f"the engine claims {gib(rank.claimed_bytes)} of a card of {gib(capacity_bytes)}"
    probability = chance(rank.needed_bytes + margin)
    verdict = _verdict(margin, probability)
    served = load if load and (load.capped if verdict != "no" else load.serves) else None
    return Fit(
        verdict="partly" if served else verdict,
        probability=None if probability is None else round(probability, 4),
        capacity_bytes=capacity_bytes,
        binding=binding_term(rank),
        margin_bytes=margin,
        error=served.told if served else error if verdict != "fits" else "",
    )


def _verdict(margin_bytes: int, probability: float | None) -> str:
    likely = float(margin_bytes >= 0) if probability is None else probability
    if likely < LIKELY:
        return "no"
    return "fits" if likely >= SURE and margin_bytes >= 0 else "tight"


def sure_margin(needed_bytes: int, chance: Chance, *, most_bytes: int) -> int:
    """The least that has to be left over for the chance to be sure; ``most_bytes`` where not even that is enough."""
    if (now := chance(needed_bytes)) is None or now >= SURE:
        return 0
    low, high = 0, most_bytes
    while high - low > _FINE_BYTES:
        middle = (low + high) // 2
        low, high = (low, middle) if (chance(needed_bytes + middle) or 0.0) >= SURE else (middle, high)
    return high


def exit_code(fit: Fit) -> int:
    """1 when what was asked does not fit, else 0."""
    return int(fit.verdict in ("no", "partly"))


def headline(fit: Fit) -> str:
    """What follows the verdict's word: how likely, and by how much. Never claims certainty, never contradicts the word."""
    if fit.refused or fit.verdict == "partly":
        return fit.error
    parts = [likely_text(fit.probability)] if fit.probability is not None else []
    if fit.margin_bytes is not None:
        parts.append(margin_text(fit.margin_bytes) + _against_the_margin(fit))
    return "  ".join(parts)


def _against_the_margin(fit: Fit) -> str:
    """Where measured runs of the kind say otherwise than the forecast's margin."""
    short = (fit.margin_bytes or 0) < 0
    if fit.verdict == "tight" and short:
        return " by the forecast, which measured runs of its kind stayed below more often than not"
    if fit.verdict == "no" and not short:
        return " by the forecast, which measured runs of its kind went beyond more often than not"
    return ""


def likely_text(probability: float) -> str:
    """``over 99% likely``, ``78% likely``, ``under 1% likely``."""
    if probability > 0.99:
        return "over 99% likely"
    return "under 1% likely" if probability < 0.01 else f"{percent(probability)}% likely"


def percent(probability: float) -> int:
    """Whole per cent, rounded down: a chance below a border (tight, fits) is never written as the border itself."""
    return math.floor(100 * probability + 1e-6)


def margin_text(margin_bytes: int) -> str:
    """``3.10 GiB to spare`` or ``2.00 GiB short``."""
    return f"{gib(margin_bytes)} to spare" if margin_bytes >= 0 else f"{gib(-margin_bytes)} short"


def missing_bytes(forecast: Forecast) -> int:
    """What the question needs beyond what the engine would hold on the worst card; 0 where it serves what was asked."""
    held = sum(term.bytes for term in forecast.worst.terms)
    return max(0, forecast.worst.needed_bytes - held) if forecast.fit.verdict in ("no", "partly") else 0


def binding_term(rank: RankMemory) -> str:
    """The largest top-level term of the rank's binding instant: what to shrink first."""
    largest = max(rank.peak.terms, key=lambda t: t.bytes, default=None)
    return largest.name if largest else ""


def worst_of(ranks: Iterable[RankMemory]) -> RankMemory:
    """The rank that needs most."""
    return max(ranks, key=lambda r: r.needed_bytes)


def serving_fit(answer: "Answer", card: Accelerator | None) -> Fit:
    """The verdict on an engine's answer; a refusal of the engine, for the card or a format, is the verdict."""
    from vramcast.serving.engines.base import POOL_ENGINES
    from vramcast.truth.bars import serving_spread

    if card is None:
        return Fit(verdict="unknown")
    worst = worst_of(answer.ranks)
    margin, chance = margin_of(answer, worst.needed_bytes, card), serving_spread(answer, worst).chance_within
    if answer.left:
        return _partly_on_host(answer.left, worst, card, chance)
    load = _load(answer, worst, margin, chance) if answer.resolved.question.engine in POOL_ENGINES else None
    fit = judge(worst, capacity_bytes=card.visible_bytes, margin_bytes=margin, chance=chance, error=answer.start_error, load=load)
    refusal = _refusal(answer, card)
    return msgspec.structs.replace(fit, verdict="no", probability=0.0, error=refusal, refused=True) if refusal else fit


def _partly_on_host(left: "LeftOnHost", worst: RankMemory, card: Accelerator, chance: Chance) -> Fit:
    """An engine that leaves a part of the model on the host starts; the chance and the margin are of all on the card."""
    probability = chance(left.whole_bytes - left.short_bytes)
    return Fit(
        verdict="partly", probability=None if probability is None else round(min(probability, LIKELY), 4),
        capacity_bytes=card.visible_bytes, binding=binding_term(worst), margin_bytes=-left.short_bytes, error=left.told,
    )  # fmt: skip


def margin_of(answer: "Answer", needed_bytes: Number, card: Accelerator) -> Number:
    """What is left in the pool of an engine that has one; of the card, when not even the weights left room for a pool.

    Negative where the engine left a part of the model on the host: what the card would have to have more.

    ``needed_bytes``: of the worst rank. Numbers or arrays.
    """
    from vramcast.serving.engines.base import POOL_ENGINES

    if answer.left:
        return -answer.left.short_bytes
    on_card = card.visible_bytes - needed_bytes
    if answer.resolved.question.engine not in POOL_ENGINES:
        return on_card
    in_pool = answer.cache.pool_bytes - answer.wanted_bytes
    in_pool = where(answer.cache.pool_bytes > 0, in_pool, minimum(in_pool, on_card))
    return where(answer.wanted_bytes > 0, in_pool, on_card)  # an encoder keeps nothing


def _load(answer: "Answer", worst: RankMemory, margin_bytes: int, chance: Chance) -> Load | None:
    """What the engine would serve if it starts; None where it says itself that it does not."""
    resolved = answer.resolved
    if answer.start_error:
        return None
    # vLLM asks at start for room for one request of the whole context
    beyond = answer.wanted_bytes - (answer.cache.request_bytes if resolved.question.engine == "vllm" else 0)
    starts = chance(worst.needed_bytes + margin_bytes + beyond)
    groups, most = resolved.groups, resolved.options.get(MOST_AT_ONCE[resolved.question.engine])
    held = answer.max_concurrency if resolved.live_tokens == resolved.context else answer.at_once
    return Load(
        asked=resolved.requests,
        at_once=_spread_evenly(resolved.requests, groups, held),
        context=resolved.context,
        longest=answer.max_context,
        starts=float(margin_bytes + beyond >= 0) if starts is None else starts,
        most=most and groups * most,
        typical=groups * answer.at_once if resolved.typical_tokens != resolved.live_tokens else None,
    )


def _spread_evenly(requests: int, groups: int, held: float) -> float:
    """Requests that run at once where each group of ranks holds ``held``: dealt out evenly, some get one more."""
    fewer, more = divmod(requests, groups)
    return more * min(held, fewer + 1) + (groups - more) * min(held, fewer)


def _refusal(answer: "Answer", card: Accelerator) -> str:
    """Why the engine does not start on that card or with those formats, whatever the memory says."""
    from vramcast.serving.engines.base import why_not

    if reason := why_not(answer.resolved.question.engine, card):
        starts = [name for name in ("llama_cpp", "transformers") if not why_not(name, card)]
        return f"{reason}; --engine {starts[0]} starts on it" if starts else reason
    return next((a.because for a in answer.resolved.assumed if a.value == "refused"), "")


def training_fit(answer: "TrainingForecast", card: Accelerator | None) -> Fit:
    """The verdict on a training step; ``unknown`` when no card was named."""
    from vramcast.truth.steps import training_spread

    if card is None:
        return Fit(verdict="unknown")
    worst = worst_of(answer.ranks)
    chance = training_spread(answer, worst).chance_within
    return judge(worst, capacity_bytes=card.visible_bytes, margin_bytes=card.visible_bytes - worst.needed_bytes, chance=chance)


def traced_fit(memory: RankMemory, card: Accelerator | None) -> Fit:
    """The verdict on a trace, whose error is taken as log-normal over the interval that it has earned."""
    if card is None:
        return Fit(verdict="unknown")
    margin = card.visible_bytes - memory.needed_bytes
    return judge(memory, capacity_bytes=card.visible_bytes, margin_bytes=margin, chance=log_normal(memory.interval))


def log_normal(interval: Interval | None) -> Chance:
    """The chance of staying within a room, the error log-normal over the interval; None where no interval has been earned."""
    if interval is None or interval.low <= 0 or interval.high <= interval.low:
        return lambda room_bytes: None
    from statistics import NormalDist

    normal = NormalDist()
    low, high = math.log(interval.low), math.log(interval.high)
    spread = (high - low) / (2 * normal.inv_cdf(0.5 + interval.coverage / 2))
    return lambda room_bytes: normal.cdf((math.log(room_bytes) - (low + high) / 2) / spread) if room_bytes > 0 else 0.0
