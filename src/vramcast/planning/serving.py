"""A serving question answered whole: the engine's ledgers, then verdict, limits, advice, or the cards that would hold it."""

from typing import Any

import msgspec

from vramcast.errors import UnmodelledError
from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import Advice, Assumption, CardRow, Fit, Forecast, RankMemory, Unmodelled
from vramcast.models.inventory import Model, facts_of
from vramcast.planning.limits import serving_limits
from vramcast.planning.verdict import WANTING, serving_fit
from vramcast.serving.engines.base import GGUF_ENGINES, Answer, answer_of
from vramcast.truth.bars import serving_spread
from vramcast.workload import Serving, Traffic


def forecast_serving(
    question: Serving, *, model: Model | None = None, card: Accelerator | None = None, assumed: tuple[Assumption, ...] = ()
) -> Forecast:
    """The whole answer to a serving question; ``assumed``: what reading the question already took for granted.

    Raises QuestionError for what cannot be (names, layouts, options) and MissingError for what is not at hand (network, extra).
    """
    answer = answer_of(question, model=model, card=card)
    model, card = answer.resolved.model, answer.resolved.card
    fit = serving_fit(answer, card)
    speed, more, unmodelled = speed_of(answer)
    return Forecast(
        workload=_workload(answer),
        model=facts_of(model),
        ranks=with_intervals(answer),
        fit=fit,
        limits=serving_limits(answer, card),
        assumed=_most_decisive_first((*assumed, *answer.resolved.assumed, *more)),
        unmodelled=(*answer.resolved.unmodelled, *unmodelled),
        speed=speed,
        advice=_advice(answer, card) if card and fit.verdict in WANTING and not fit.refused else (),
        cards=() if card else _cards(question, model),
    )


def speed_of(answer: Answer) -> tuple[dict[str, Any], tuple[Assumption, ...], tuple[Unmodelled, ...]]:
    """The speed block, what was assumed for it, and why there is none where the engine or the card has no law."""
    if not answer.resolved.question.asks_for_speed:
        return {}, (), ()
    from vramcast.speed.answer import as_block, serving_speed
    from vramcast.truth.bars import speed_intervals

    try:
        speed = serving_speed(answer)
    except UnmodelledError as error:
        return {}, (), (Unmodelled(f"speed: {error}"),)
    block = as_block(speed, speed_intervals(answer, speed))
    if answer.resolved.question.traffic != Traffic():
        from vramcast.planning.under_load import under_load

        block |= under_load(answer, speed)
    return block, speed.assumed, ()


_MOST_ASKED_OF_GGML = 60  # a change of weights or layers lays the whole file out again: 5 ms each


def with_intervals(answer: Answer) -> tuple[RankMemory, ...]:
    """The ranks of an answer, each with the interval its engine has earned."""
    return tuple(msgspec.structs.replace(rank, interval=serving_spread(answer, rank).interval()) for rank in answer.ranks)


# What moves an answer most when it is taken otherwise; the rest keeps its order.
_DECISIVE = (
    "model", "engine", "quant", "quantization",
    "gpu", "unused_cards", "engine_version", "context", "concurrency", "n_parallel", "gpu_memory_utilization",
    "mem_fraction_static", "free_gpu_memory_fraction", "max_num_seqs", "max_num_batched_tokens", "n_gpu_layers",
    "cache_type_k", "cache_type_v",
)  # fmt: skip


def _most_decisive_first(assumed: tuple[Assumption, ...]) -> tuple[Assumption, ...]:
    """Warnings of the card first, then in the order in which another choice would change the answer."""
    ranks = {name: i for i, name in enumerate(_DECISIVE)}
    return tuple(sorted(assumed, key=lambda a: (a.value not in ("emulated", "refused"), ranks.get(a.name, len(ranks)))))


def _cards(question: Serving, model: Model) -> tuple[CardRow, ...]:
    from vramcast.planning.cards import cards_that_hold

    return cards_that_hold(question, model)


def _advice(answer: Answer, card: Accelerator) -> tuple[Advice, ...]:
    from vramcast.planning.advice import MOST_ASKED, advise
    from vramcast.planning.changes import Change
    from vramcast.planning.serving_changes import serving_changes

    resolved = answer.resolved

    def ask(change: Change) -> tuple[int, Fit]:
        tried = answer_of(change.apply(resolved.question), model=resolved.model, card=card, limits=False)
        return max(r.needed_bytes for r in tried.ranks), serving_fit(tried, card)

    needed = max(r.needed_bytes for r in answer.ranks)
    most = _MOST_ASKED_OF_GGML if resolved.question.engine in GGUF_ENGINES else MOST_ASKED
    return advise(serving_changes(resolved, card), ask, needed_bytes=needed, most_asked=most)


def _workload(answer: Answer) -> dict[str, Any]:
    resolved = answer.resolved
    return {
        **msgspec.to_builtins(resolved.question),
        "gpu": resolved.card.name if resolved.card else None,
        "gpus": resolved.question.gpus,
        "engine": resolved.question.engine,
        "engine_version": resolved.version,
        "context": resolved.context,
        "concurrency": resolved.concurrency,
        "parallel": {k: getattr(resolved.question.parallel, k) for k in ("tp", "pp", "dp", "ep")},
        "options": resolved.options,
    }
