"""A training plan: every layout on the cards offered, ranked by time, money or cards; what binds; the fewest cards."""

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import msgspec

from vramcast.errors import UnmodelledError, VramcastError
from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import Assumption, Fit, Term
from vramcast.models.inventory import Model, by_identity
from vramcast.planning.plans.choices import MORE_ROOM, MOST_JUDGED
from vramcast.planning.plans.offers import Offer, without_a_job
from vramcast.planning.plans.plan import Plan, prices_taken
from vramcast.planning.plans.serving import Watch, check_numpy
from vramcast.planning.plans.training_layouts import MICRO_BATCHES, Structure, Task, counts_of, structures
from vramcast.planning.verdict import training_fit
from vramcast.speed.training.job import job_of, on_card
from vramcast.speed.training.step import run_of, step_time, training_speed
from vramcast.training.forecast import forecast_training
from vramcast.training.frameworks.common import attention_on
from vramcast.training.memory import peak_bytes
from vramcast.training.methods import named_by_task
from vramcast.training.resolve import resolved, validate
from vramcast.training.structure import StepNumbers
from vramcast.truth.steps import training_spread
from vramcast.workload import Parallel, Training

SHOWN, _MOST_OF_THE_FRONT = 8, 8
_ROOM = 0.25  # of a card, beyond the bars of what is needed


class Trained(msgspec.Struct, frozen=True, kw_only=True):
    """One layout with what it costs. ``hours``: of one card, over all cards; ``usd`` None where the card has no price."""

    question: Training
    offer: Offer
    words: str
    fit: Fit
    needed_bytes: int
    step_s: float
    mfu: float
    tokens_per_s: float
    bound: str
    term: Term
    days: float | None
    usd: float | None
    power_w: float

    @property
    def usd_per_token(self) -> float:
        """Dollars a token; cards times seconds where there is no price."""
        return (self.offer.usd_per_hour or 1.0) / 3600 * self.gpus / self.tokens_per_s

    @property
    def gpus(self) -> int:
        """Cards of the run."""
        return self.question.gpus


class TrainingPlan(Plan, frozen=True, kw_only=True):
    """``ranked``: the best first, one of each framework, axes and number of cards. ``fewest``: the least cards of each offer.

    ``front``: none is both cheaper and sooner.
    """

    task: Task
    ranked: tuple[Trained, ...] = ()
    front: tuple[Trained, ...] = ()
    fewest: tuple[Trained, ...] = ()

    shown_by: ClassVar[tuple[str, str, str]] = ("pages.plan_training", "training_plan_page", "training_object")


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A layout that fits by the forecast, with its step's time."""

    structure: Structure
    question: Training
    margin_bytes: int
    step_s: float
    mfu: float
    bound: str
    term: Term

    @property
    def tokens_per_s(self) -> float:
        """Tokens of all cards."""
        own = self.question
        return own.seq * own.micro_batch * own.accumulate * own.parallel.dp / self.step_s

    @property
    def usd_per_token(self) -> float:
        """Dollars a token; cards times seconds where there is no price."""
        return (self.structure.offer.usd_per_hour or 1.0) / 3600 * self.question.gpus / self.tokens_per_s


def plan_training(task: Task, *, model: Model, watch: Watch | None = None, assumed: tuple[Assumption, ...] = ()) -> TrainingPlan:
    """The plan. Raises MissingError without NumPy, UnmodelledError where no layout can be forecast."""
    check_numpy()
    all_, refused = list(structures(task, model)), dict[str, int]()
    found: list[Candidate] = []
    roomy: set[Any] = set()
    tried, nearest = 0, None
    for done, structure in enumerate(all_):
        if watch:
            watch(done, len(all_))
        try:
            count, own, short = _candidates(task, structure, model, roomy)
        except VramcastError as error:
            refused[str(error)] = refused.get(str(error), 0) + 1
            continue
        tried += count
        found += own
        nearest = min((n for n in (nearest, short) if n), key=lambda n: n[1], default=None)
    if not tried:
        raise UnmodelledError(
            f"no layout can be forecast: {next(iter(refused), 'the batch divides over no number of these cards')}"
        )
    plan = TrainingPlan(
        task=task, tried=tried, structures=len(all_), refused=refused, assumed=(*assumed, *prices_taken(task.offers))
    )
    return _ranked(plan, found, model) if found else msgspec.structs.replace(plan, meets=False, nearest=nearest)


def _candidates(
    task: Task, structure: Structure, model: Model, roomy: set[Any]
) -> tuple[int, list[Candidate], tuple[str, int] | None]:
    """Layouts of one structure: how many there are, those that fit, and the least short of those that do not.

    ``roomy``: layouts that leave a quarter of the card with less computed again, which only costs time beside them; added to.
    """
    import numpy as np

    numbers = [(gpus, dp, micro) for gpus, dp in counts_of(structure.offer, structure, task) for micro in MICRO_BATCHES
               if task.batch // dp % micro == 0]  # fmt: skip
    if not numbers:
        return 0, [], None
    gpus, dp, micro = (np.array(column) for column in zip(*numbers, strict=True))
    given = StepNumbers(micro_batch=micro, seq=task.seq, accumulate=task.batch // (dp * micro), dp=dp, gpus=gpus)
    first = _numbered(structure.question, numbers[0], task)
    trained = _trained_of(first, task, model, structure.offer.card)
    needed = np.broadcast_to(
        peak_bytes(structure.question, given, model=model, card=structure.offer.card).device_bytes, gpus.shape
    )
    left = structure.offer.card.visible_bytes - needed
    found = []
    alike = _but_recomputation(structure)
    for place in np.flatnonzero(left >= 0).tolist():
        if (alike, numbers[place]) in roomy:
            continue
        if left[place] >= structure.offer.card.visible_bytes * _ROOM:
            roomy.add((alike, numbers[place]))
        question = _numbered(structure.question, numbers[place], task)
        found.append(_timed(structure, question, int(left[place]), model, trained))
    best = int(left.max())
    short = (f"{numbers[int(left.argmax())][0]} x {structure.offer.card.name}, {structure.words}", -best) if best < 0 else None
    return len(numbers), found, short


def _but_recomputation(structure: Structure) -> Any:
    """A structure by all but what it computes again: one with less of that is sooner at the same numbers."""
    own = structure.question
    return structure.offer.card.id, msgspec.json.encode(msgspec.structs.replace(own, checkpointing=None))


def _trained_of(question: Training, task: Task, model: Model, card: Accelerator) -> int:
    """Parameters that get gradients, which no layout changes. Raises QuestionError for a layout that cannot be."""
    asked = named_by_task(question)
    validate(asked, model, resolved(asked, model)[0])
    bare = msgspec.structs.replace(question, parallel=Parallel(), gpus=1, zero=None, fsdp=None, checkpointing=None, options={})
    alone = bare if task.method == "full" else question
    return _trainable(model, card, msgspec.json.encode(msgspec.structs.replace(alone, micro_batch=1, accumulate=1)))


@by_identity(2, most=16)
def _trainable(model: Model, card: Accelerator, question: bytes) -> int:
    return forecast_training(msgspec.json.decode(question, type=Training), model=model, card=card).trainable_parameters


def _numbered(question: Training, numbers: tuple[int, int, int], task: Task) -> Training:
    gpus, dp, micro = numbers
    layout = msgspec.structs.replace(question.parallel, dp=dp)
    return msgspec.structs.replace(question, gpus=gpus, parallel=layout, micro_batch=micro, accumulate=task.batch // (dp * micro))


def _timed(structure: Structure, question: Training, left: int, model: Model, trained: int) -> Candidate:
    """The time of a layout's step; ``trained``: parameters of the model that get gradients."""
    card = structure.offer.card
    recipe, _ = attention_on(card, resolved(named_by_task(question), model)[0])
    job = on_card(job_of(question, recipe, model, trained_parameters=trained), recipe.precision.compute, card)
    speed = step_time(job, model, card)
    return Candidate(
        structure=structure, question=question, margin_bytes=left, step_s=speed.step_s, mfu=speed.mfu, bound=speed.bound,
        term=speed.term,
    )  # fmt: skip


def _key(task: Task, one: Candidate) -> tuple[Any, ...]:
    """What a plan is ordered by, deadline and budget first; of equals the one that leaves more memory."""
    seconds, dollars = 1 / one.tokens_per_s, one.usd_per_token
    keys = {"time": (seconds, dollars), "cost": (dollars, seconds), "cards": (one.question.gpus, seconds)}[task.order]
    return (_missed(task, one), *(float(f"{key:.6g}") for key in keys), -one.margin_bytes)


def _order(task: Task, one: Trained) -> tuple[float, ...]:
    """The same key for a judged layout."""
    seconds = 1 / one.tokens_per_s
    dollars = (one.offer.usd_per_hour or 1.0) * one.gpus * seconds
    return {"time": (seconds, dollars), "cost": (dollars, seconds), "cards": (one.gpus, seconds)}[task.order]


def _missed(task: Task, one: Candidate) -> float:
    """How many times deadline or budget are exceeded, 1 where both are kept."""
    if task.tokens is None:
        return 1.0
    worst = 1.0
    if task.deadline_s:
        worst = max(worst, task.tokens / one.tokens_per_s / task.deadline_s)
    if task.budget_usd and one.structure.offer.usd_per_hour:
        worst = max(worst, task.tokens * one.usd_per_token / task.budget_usd)
    return worst


def _ranked(plan: TrainingPlan, found: list[Candidate], model: Model) -> TrainingPlan:
    task = plan.task
    order = sorted(found, key=lambda one: _key(task, one))
    meets = _missed(task, order[0]) <= 1
    kept = [one for one in order if _missed(task, one) <= 1] or order
    ranked = _judged(task, kept, model, kind=_kind, most=SHOWN)
    ranked.sort(key=lambda one: (one.fit.verdict != "fits", *_order(task, one)))
    fewest = sorted(kept, key=lambda one: one.question.gpus)
    first_of_each = _judged(task, fewest, model, kind=lambda one: (one.structure.offer.card.id, one.question.gpus), most=SHOWN)
    least: dict[str, Trained] = {}
    for trained in first_of_each:
        least.setdefault(trained.offer.card.id, trained)
    if not ranked:
        return msgspec.structs.replace(plan, meets=False, nearest=(order[0].structure.words, 0))
    answer = forecast_training(ranked[0].question, model=model, card=ranked[0].offer.card)
    memory = tuple(msgspec.structs.replace(r, interval=training_spread(answer, r).interval()) for r in answer.ranks)
    return msgspec.structs.replace(
        plan, ranked=tuple(ranked), meets=meets, fewest=tuple(least.values()), memory=memory,
        without=without_a_job(task.offers, {one.structure.offer.card.id for one in kept}),
        front=tuple(_judged(task, _front(kept), model, kind=id, most=_MOST_OF_THE_FRONT)),
    )  # fmt: skip


def _kind(one: Candidate) -> Any:
    own = one.question
    layout = own.parallel
    return one.structure.offer.card.id, own.gpus, own.framework, layout.tp, layout.pp, layout.cp, layout.ep


def _front(order: Sequence[Candidate]) -> list[Candidate]:
    """Layouts that no other beats in both money and time."""
    found: list[Candidate] = []
    for one in sorted(order, key=lambda c: (c.usd_per_token, 1 / c.tokens_per_s)):
        if not found or one.tokens_per_s > found[-1].tokens_per_s * 1.02:
            found.append(one)
    return found


def _judged(
    task: Task, order: Sequence[Candidate], model: Model, *, kind: Callable[[Candidate], Any], most: int
) -> list[Trained]:
    """The first of each kind that surely fits, else its first that is tight: those only where too few kinds surely fit."""
    groups: dict[Any, list[Candidate]] = {}
    for one in order:
        groups.setdefault(kind(one), []).append(one)
    found: list[Trained] = []
    sure: list[int] = []
    for group in list(groups.values())[: 3 * most]:
        if len(sure) == most:
            break
        if (trained := _of_kind(task, group, model)) is not None:
            sure += [len(found)] if trained.fit.verdict == "fits" else []
            found.append(trained)
    tight = [place for place in range(len(found)) if place not in sure]
    return [found[place] for place in sorted((*sure, *tight[: most - len(sure)]))]


def _of_kind(task: Task, group: list[Candidate], model: Model) -> Trained | None:
    """The first that surely fits; one that does not passes over those behind it that leave hardly more room."""
    tight, floor = None, -math.inf
    for _ in range(MOST_JUDGED):
        one = next((one for one in group if one.margin_bytes > floor), None)
        if one is None:
            break
        trained = _trained(task, one, model)
        if trained.fit.verdict == "fits":
            return trained
        tight = tight or (trained if trained.fit.verdict == "tight" else None)
        floor = max(0.0, one.margin_bytes) * MORE_ROOM
    return tight


def _trained(task: Task, one: Candidate, model: Model) -> Trained:
    offer, own = one.structure.offer, one.question
    answer = forecast_training(own, model=model, card=offer.card)
    run = None
    if task.tokens:
        speed = training_speed(answer, model, offer.card)
        run = run_of(speed, offer.card, tokens=task.tokens, usd_per_gpu_hour=offer.usd_per_hour)
    whole = ", in float32 throughout" if answer.recipe.precision.compute == "float32" else ""  # torchtitan without FSDP
    return Trained(
        question=own, offer=offer, words=one.structure.words + whole, fit=training_fit(answer, offer.card),
        needed_bytes=max(r.needed_bytes for r in answer.ranks), step_s=one.step_s, mfu=one.mfu, tokens_per_s=one.tokens_per_s,
        bound=one.bound, term=one.term, days=run.days if run else None, usd=run.usd if run else None,
        power_w=offer.card.tdp_w * own.gpus,
    )  # fmt: skip
