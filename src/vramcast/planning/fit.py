"""The verdict on an engine's answer: its worst rank held against the card, by the engine's own rule of what is left."""

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import Fit, RankMemory
from vramcast.planning.verdict import binding_term, judge
from vramcast.serving.engines.base import POOL_ENGINES, Answer
from vramcast.serving.engines.support import why_not
from vramcast.truth.bars import serving_spread


def fit_of(answer: Answer, card: Accelerator | None) -> Fit:
    """The verdict of the worst rank; ``unknown`` when no card was named."""
    if card is None:
        return Fit(verdict="unknown")
    worst = max(with_intervals(answer), key=lambda r: r.needed_bytes)
    margin, refusal = _margin(answer, worst, card), _refusal(answer, card)
    fit = judge(
        worst,
        capacity_bytes=card.visible_bytes,
        margin_bytes=margin,
        chance=serving_spread(answer, worst).chance_within(worst.needed_bytes + margin),
        binding=binding_term(worst),
        error=answer.start_error,
    )
    return msgspec.structs.replace(fit, verdict="no", probability=0.0, error=refusal, refused=True) if refusal else fit


def _refusal(answer: Answer, card: Accelerator) -> str:
    """Why the engine does not start on that card or with those formats, whatever the memory says."""
    formats = (a.because for a in answer.resolved.assumed if a.value == "refused")
    return why_not(answer.resolved.question.engine, card) or next(formats, "")


def _margin(answer: Answer, worst: RankMemory, card: Accelerator) -> int:
    """What is left in the pool of an engine that has one; of the card, when not even the weights left room for a pool."""
    on_card = card.visible_bytes - worst.needed_bytes
    if answer.resolved.question.engine not in POOL_ENGINES:
        return on_card
    in_pool = answer.cache.pool_bytes - answer.cache.request_bytes * answer.resolved.concurrency
    return in_pool if answer.cache.pool_bytes > 0 else min(in_pool, on_card)


def with_intervals(answer: Answer) -> tuple[RankMemory, ...]:
    """The ranks of an answer, each with the interval its engine has earned."""
    return tuple(msgspec.structs.replace(rank, interval=serving_spread(answer, rank).interval()) for rank in answer.ranks)
