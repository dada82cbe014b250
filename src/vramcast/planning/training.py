"""A training question answered whole: the ledgers of each rank, then verdict, the largest batch and length, and advice."""

from typing import Any

import msgspec

from vramcast.errors import QuestionError, VramcastError
from vramcast.hardware.accelerator import Accelerator
from vramcast.largest import largest_that_fits
from vramcast.ledger import Advice, Assumption, CardRow, Fit, Forecast, Limits, Unmodelled
from vramcast.models.inventory import Model, facts_of
from vramcast.planning.advice import Asked, advise
from vramcast.planning.changes import Change
from vramcast.planning.layouts import REPLAYED_LESS, REPLAYED_MORE, cards_that_train, smallest_layouts
from vramcast.planning.training_changes import training_changes
from vramcast.planning.verdict import WANTING, exit_code, sure_margin, training_fit, worst_of
from vramcast.training.forecast import TrainingForecast
from vramcast.training.forecast import forecast_training as answer_of
from vramcast.training.recipe.draft import flat
from vramcast.truth.steps import training_spread
from vramcast.workload import Training

LARGEST_MICRO_BATCH = 4096
LARGEST_SEQ = 2**24
SEQ_STEP = 256


def forecast_training(
    question: Training,
    *,
    model: Model | None = None,
    card: Accelerator | None = None,
    assumed: tuple[Assumption, ...] = (),
    unmodelled: tuple[Unmodelled, ...] = (),
    advises: bool = True,
) -> Forecast:
    """The whole answer to a training question; ``assumed`` and ``unmodelled``: what reading the question already told.

    Without ``advises`` the advice and the table of cards, which ask some hundred questions more, stay empty.

    Raises QuestionError for what cannot be (names, layouts, refused products) and MissingError for what is not at hand.
    """
    if model is None:
        from vramcast.models.reading import read_model

        model = read_model(question.model)
    if card is None and question.gpu:
        from vramcast.hardware.cards import least_card

        card = least_card(question.gpu)
    answer = with_intervals(answer_of(question, model=model, card=card, replays=True))
    fit = training_fit(answer, card)
    speed, slow = speed_of(answer, model, card)
    return Forecast(
        workload=_workload(answer, card),
        model=facts_of(model),
        ranks=answer.ranks,
        fit=fit,
        limits=_limits(question, model, card) if card else Limits(),
        assumed=_most_decisive_first((*_not_native(answer, card), *assumed, *model.assumed, *answer.assumed)),
        unmodelled=(*unmodelled, *answer.unmodelled, *slow),
        speed=speed,
        advice=_advice(question, answer, model, card) if advises and card and fit.verdict in WANTING else (),
        host=answer.host,
        cards=_cards(question, model, card, fit) if advises else (),
    )


def ledger_of(question: Training, *, model: Model, card: Accelerator | None) -> Forecast:
    """The answer's memory and verdict alone, as ``forecast_training`` gives them.

    Limits, advice, cards and speed stay empty: they ask the same some hundred times over.
    """
    answer = with_intervals(answer_of(question, model=model, card=card, replays=True))
    return Forecast(
        workload=_workload(answer, card),
        model=facts_of(model),
        ranks=answer.ranks,
        fit=training_fit(answer, card),
        limits=Limits(),
        assumed=(*model.assumed, *answer.assumed),
        unmodelled=answer.unmodelled,
        host=answer.host,
    )


# What decides most of a step's memory; the rest keeps its order.
_DECISIVE = (
    "model", "program", "gpu", "rank", "adapter.rank", "targets", "adapter.targets", "expert_tp", "checkpointing", "optimizer",
    "attention", "loss", "micro_batch", "seq", "weights", "compute", "master", "sharding", "framework_version",
)  # fmt: skip


def _not_native(answer: TrainingForecast, card: Accelerator | None) -> tuple[Assumption, ...]:
    """The type of the matmuls, where the card does not compute it by itself."""
    if card is None:
        return ()
    from vramcast.hardware.accelerator import capability

    compute = answer.recipe.precision.compute
    try:
        found = capability(card, compute)
    except QuestionError:
        return ()
    if found.verdict not in ("emulated", "refused"):
        return ()
    halves = compute == "bfloat16" and capability(card, "fp16").verdict == "native" and "fp16" in card.flops
    hint = "; --compute-dtype float16 (fp16=True) runs on its tensor cores" if halves else ""
    return (Assumption(compute, found.verdict, found.because + hint),)


def _most_decisive_first(assumed: tuple[Assumption, ...]) -> tuple[Assumption, ...]:
    ranks = {name: place for place, name in enumerate(_DECISIVE)}
    return tuple(sorted(assumed, key=lambda a: (a.value not in ("emulated", "refused"), ranks.get(a.name, len(ranks)))))


def speed_of(answer: TrainingForecast, model: Model, card: Accelerator | None) -> tuple[dict[str, Any], tuple[Unmodelled, ...]]:
    """The speed block, and why there is none where the card has no law; nothing without a card."""
    from vramcast.speed.training.step import as_block, run_of, training_speed
    from vramcast.speed.training.unknowns import unknowns
    from vramcast.truth.step_bars import step_interval

    if card is None:
        return {}, ()
    try:
        speed = training_speed(answer, model, card)
    except VramcastError as error:
        return {}, (Unmodelled(f"speed: {error}"),)
    tokens, price = answer.question.tokens, answer.question.gpu_hour_usd
    run = run_of(speed, card, tokens=tokens, usd_per_gpu_hour=price) if tokens else None
    found = unknowns(speed, model, card)
    return as_block(speed, step_interval(speed.step_s, found), run, found), ()


def _cards(question: Training, model: Model, card: Accelerator | None, fit: Fit) -> tuple[CardRow, ...]:
    """Which cards would do when none was named; how few of the named one when it does not fit."""
    if card is None:
        return cards_that_train(question, model)
    return smallest_layouts(question, model, card) if exit_code(fit) else ()


def with_intervals(answer: TrainingForecast) -> TrainingForecast:
    """The answer with the interval that its framework and method have earned on every rank."""
    bars = {rank.rank: training_spread(answer, rank).interval() for rank in answer.ranks}
    ranks = tuple(msgspec.structs.replace(rank, interval=bars[rank.rank]) for rank in answer.ranks)
    return msgspec.structs.replace(answer, ranks=ranks)


def _limits(question: Training, model: Model, card: Accelerator) -> Limits:
    def need(batch: int) -> float:
        return _need(question, model, card, micro_batch=batch)

    batch = largest_that_fits(need, room=card.visible_bytes, most=LARGEST_MICRO_BATCH)
    return Limits(max_micro_batch=batch, max_context=longest_sequence(question, model, card))


def longest_sequence(question: Training, model: Model, card: Accelerator) -> int:
    """Tokens of the longest sequence that the step holds on the card by the forecast, in steps of 256; 0 where none does."""
    room = card.visible_bytes
    most = LARGEST_SEQ // SEQ_STEP
    longest = SEQ_STEP * largest_that_fits(lambda n: _need(question, model, card, seq=n * SEQ_STEP), room=room, most=most)
    if longest < question.seq and _need(question, model, card) <= room:  # asked between two steps, such as 448 positions
        longest = question.seq
    return longest


def _need(question: Training, model: Model, card: Accelerator, **fields: Any) -> float:
    """Bytes of the worst rank with those fields in their place, infinite where that is refused."""
    try:
        tried = answer_of(msgspec.structs.replace(question, **fields), model=model, card=card)
    except VramcastError:
        return float("inf")
    return max(r.needed_bytes for r in tried.ranks)


def _advice(question: Training, answer: TrainingForecast, model: Model, card: Accelerator) -> tuple[Advice, ...]:
    def ask(change: Change) -> Asked:
        tried = answer_of(change.apply(question), model=model, card=card)
        needed = worst_of(tried.ranks).needed_bytes
        return Asked(needed_bytes=needed, margin_bytes=card.visible_bytes - needed, judged=lambda: _as_typed(tried, needed))

    def _as_typed(tried: TrainingForecast, needed: int) -> Fit:
        """The verdict that the change gets when it is typed: near the border reserved memory is replayed, as an answer's is."""
        fit = training_fit(tried, card)
        room = card.visible_bytes - ((sure or 0) if fit.verdict == "fits" else 0)
        near = needed * REPLAYED_MORE.get(tried.recipe.sharding.kind, 1.0) > room and (
            fit.verdict == "fits" or needed < room * REPLAYED_LESS
        )
        return training_fit(answer_of(tried.question, model=model, card=card, replays=True), card) if near else fit

    worst = worst_of(answer.ranks)
    sure = sure_margin(worst.needed_bytes, training_spread(answer, worst).chance_within, most_bytes=card.visible_bytes)
    return advise(training_changes(question, answer.recipe, model), ask, needed_bytes=worst.needed_bytes, sure_bytes=sure)


def _workload(answer: TrainingForecast, card: Accelerator | None) -> dict[str, Any]:
    question = answer.question
    layout = {k: getattr(question.parallel, k) for k in ("tp", "pp", "dp", "ep", "cp", "sp", "vpp", "replicate", "hpz")}
    return {
        **msgspec.to_builtins(question),
        "gpu": card.name if card else None,
        "gpus": question.gpus,
        "framework": answer.recipe.framework,
        "framework_version": answer.recipe.version,
        "method": question.method,
        "micro_batch": question.micro_batch,
        "seq": question.seq,
        "accumulate": question.accumulate,
        "parallel": layout,
        "recipe": msgspec.to_builtins(flat(answer.recipe)),
        "trainable_parameters": answer.trainable_parameters,
    }
