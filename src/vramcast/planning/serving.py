"""A serving question answered whole: the engine's ledgers, then verdict, limits, advice, or the cards that would hold it.

Every limit is asked again before it is said, under every other setting: it is exact by the forecast. What it names is served, one
token (or sequence) more is not. It says nothing of the forecast's own error, which the verdict tells.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from vramcast.errors import UnmodelledError, VramcastError
from vramcast.hardware.accelerator import Accelerator
from vramcast.largest import edge_near, largest_that_fits
from vramcast.ledger import Advice, Assumption, CardRow, Fit, Forecast, Limits, RankMemory, Unmodelled
from vramcast.models.inventory import Model, facts_of
from vramcast.planning.verdict import MOST_AT_ONCE, WANTING, margin_of, serving_fit, sure_margin, worst_of
from vramcast.serving.engines.base import GGUF_ENGINES, Answer, answer_of
from vramcast.serving.layers import encodes_only
from vramcast.truth.bars import serving_spread
from vramcast.workload import Serving, Traffic

if TYPE_CHECKING:
    from vramcast.speed.answer import Speed


def forecast_serving(
    question: Serving,
    *,
    model: Model | None = None,
    card: Accelerator | None = None,
    assumed: tuple[Assumption, ...] = (),
    advises: bool = True,
) -> Forecast:
    """The whole answer to a serving question; ``assumed``: what reading the question already took for granted.

    Without ``advises`` the advice and the table of cards, which ask some hundred questions more, stay empty.

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
        advice=_advice(answer, card) if advises and card and fit.verdict in WANTING and not fit.refused else (),
        cards=_cards(question, model) if advises and not card else (),
    )


def speed_of(answer: Answer) -> tuple[dict[str, Any], tuple[Assumption, ...], tuple[Unmodelled, ...]]:
    """The speed block, what was assumed for it, and why there is none where the engine or the card has no law."""
    if not answer.resolved.question.asks_for_speed:
        return {}, (), ()
    if (answer.resolved.options.get("num_beams") or 1) > 1:
        return {}, (), (Unmodelled("speed: no law has the steps of a beam search"),)
    from vramcast.speed.answer import as_block, serving_speed
    from vramcast.truth.speed_bars import speed_intervals

    try:
        speed = _in_pools(answer) if answer.resolved.question.traffic.pools else serving_speed(answer)
    except UnmodelledError as error:
        return {}, (), (Unmodelled(f"speed: {error}"),)
    block = as_block(speed, speed_intervals(answer, speed))
    if answer.resolved.question.traffic != Traffic():
        from vramcast.planning.under_load import under_load

        block |= under_load(answer, speed)
    lost = () if speed.generates or not answer.resolved.question.traffic.tpot_s else (Unmodelled(_NO_TPOT),)
    return block, speed.assumed, lost


_NO_TPOT = "slo tpot: not read, a model that makes vectors has no time per token"


def _in_pools(answer: Answer) -> "Speed":
    from vramcast.speed.pools import pools_speed

    return pools_speed(answer)


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
    from vramcast.planning.advice import MOST_ASKED, Asked, advise
    from vramcast.planning.changes import Change
    from vramcast.planning.serving_changes import serving_changes

    resolved, worst = answer.resolved, worst_of(answer.ranks)

    def ask(change: Change) -> Asked:
        tried = answer_of(change.apply(resolved.question), model=resolved.model, card=card, limits=False)
        needed = int(tried.whole_bytes)
        margin = margin_of(tried, needed, card)
        return Asked(needed_bytes=needed, margin_bytes=margin, short=margin < 0, judged=lambda: serving_fit(tried, card))

    sure = sure_margin(worst.needed_bytes, serving_spread(answer, worst).chance_within, most_bytes=card.visible_bytes)
    most = _MOST_ASKED_OF_GGML if resolved.question.engine in GGUF_ENGINES else MOST_ASKED
    changes = serving_changes(resolved, card)
    if answer.left:  # more of the model on the host is what the engine does by itself
        changes = (change for change in changes if change.kind not in ("offload", "experts on the host", "micro-batch"))
    needed = int(answer.whole_bytes)
    return advise(
        changes, ask, needed_bytes=needed, sure_bytes=sure, most_asked=most, margin_bytes=margin_of(answer, needed, card),
        card_bytes=card.visible_bytes,
    )  # fmt: skip


def _workload(answer: Answer) -> dict[str, Any]:
    resolved = answer.resolved
    return {
        **msgspec.to_builtins(resolved.question),
        "gpu": resolved.card.name if resolved.card else None,
        "gpus": resolved.question.gpus,
        "engine": resolved.question.engine,
        "engine_version": resolved.version,
        "context": resolved.context,
        "concurrency": resolved.requests,
        **({"request_tokens": resolved.live_tokens} if resolved.live_tokens != resolved.context else {}),
        "parallel": {k: getattr(resolved.question.parallel, k) for k in ("tp", "pp", "dp", "ep")},
        "options": resolved.options,
    }


_GGUF_STEP = 256  # llama.cpp pads a context to this many tokens
_LARGEST_BATCH = 4096


class ServingOnCard(msgspec.Struct, frozen=True, kw_only=True):
    """A question held against a card, to be asked again with other values."""

    question: Serving
    answer: Answer
    card: Accelerator

    def fit(self, **fields: object) -> Fit:
        """The verdict with those fields in their place. Raises as the engine does."""
        return serving_fit(self.ask(**fields), self.card)

    def serves(self, **fields: object) -> bool:
        """Whether the engine starts and serves all of it by the forecast; False where it refuses."""
        try:
            tried = self.ask(**fields)
        except VramcastError:
            return False
        return not tried.start_error and margin_of(tried, worst_of(tried.ranks).needed_bytes, self.card) >= 0

    def ask(self, **fields: object) -> Answer:
        """The engine's answer with those fields in their place. Raises as the engine does."""
        asked = msgspec.structs.replace(self.question, **fields)
        return answer_of(asked, model=self.answer.resolved.model, card=self.card, limits=False)


def serving_limits(answer: Answer, card: Accelerator | None) -> Limits:
    """The limits on the card; none without one."""
    if card is None:
        return Limits()
    held = ServingOnCard(question=answer.resolved.question, answer=answer, card=card)
    return Limits(
        max_context=longest_context(held),
        max_concurrency=_at_once(held),
        max_requests=_requests_at_once(held),
        cache_tokens=None if encodes_only(answer.resolved.model) else answer.cache.tokens,
        cache_bytes=answer.cache.pool_bytes,
    )


def longest_context(held: ServingOnCard, *, sure: bool = False, concurrency: int = 1) -> int:
    """Tokens of the longest sequence that so many at once can have; ``sure``: with the verdict ``fits``, not by margin alone."""
    answer, engine = held.answer, held.question.engine
    step = _GGUF_STEP if engine in GGUF_ENGINES else 1
    if engine == "transformers" and not sure:
        return answer.max_context

    def fits(steps: int) -> bool:
        fields = {"context": steps * step, "concurrency": concurrency, "prompt": None, "output": None}
        if engine in GGUF_ENGINES:
            fields = {"context": steps * step}
        return held.serves(**fields) and (not sure or held.fit(**fields).verdict == "fits")

    most = (answer.resolved.model.positions or 2**24) // step
    return edge_near(answer.max_context // step, fits, most=most) * step


def _at_once(held: ServingOnCard) -> float | None:
    """Sequences of the asked context at once: the pool's, at most as many as the engine runs; None where a context is shared out.

    transformers has no pool: its largest batch is looked for.
    """
    answer, engine = held.answer, held.question.engine
    if engine in GGUF_ENGINES:
        return None
    if engine == "transformers":
        return float(largest_batch(held))
    return _held_to(answer, answer.max_concurrency)


def _requests_at_once(held: ServingOnCard) -> float | None:
    """Typical requests at once, from a pool; None where their lengths were not asked."""
    answer = held.answer
    if held.question.engine not in MOST_AT_ONCE or answer.resolved.typical_tokens == answer.resolved.context:
        return None
    return _held_to(answer, answer.at_once)


def _held_to(answer: Answer, at_once: float) -> float:
    """Over all groups of ranks, in each at most as many as the engine is told to run."""
    most = answer.resolved.options.get(MOST_AT_ONCE[answer.resolved.question.engine])
    return round(answer.resolved.groups * (min(at_once, most) if most else at_once), 2)


def largest_batch(held: ServingOnCard) -> int:
    """The largest batch of the asked length that a whole-batch engine holds."""

    def need(batch: int) -> float:
        try:
            return max(r.needed_bytes for r in held.ask(concurrency=batch).ranks)
        except VramcastError:
            return float("inf")

    return largest_that_fits(need, room=held.card.visible_bytes, most=_LARGEST_BATCH)
