"""The forecast of a training step: a question and a model become the memory of each kind of rank.

Resolve the question to a recipe and refuse what cannot be (resolve.py), work out its structure and put the numbers in
(structure.py), lay the step out in time (timeline.py), and read the counters off it (counters.py).
"""

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.hardware.runtime import assumed_class
from vramcast.ledger import Assumption, Instant, RankMemory, Term, Unmodelled
from vramcast.models.inventory import Model
from vramcast.quantity import Number, largest, whole
from vramcast.training.activations.choice import traced_notes, unchecked, unread_layers
from vramcast.training.counters import Fitted, counters, host_terms, outside_terms
from vramcast.training.frameworks.common import attention_on
from vramcast.training.loss import WHOLE_LOGITS, LossCost
from vramcast.training.methods import named_by_task
from vramcast.training.moment import STEP
from vramcast.training.recipe.parts import Recipe, width
from vramcast.training.resolve import resolved, validate
from vramcast.training.structure import Rank, StepNumbers, Structure, numbers_of, rank_of, structure_under
from vramcast.training.timeline import instants
from vramcast.training.towers import unmodelled
from vramcast.workload import Parallel, Training


class TrainingForecast(msgspec.Struct, frozen=True, kw_only=True):
    """The answer: each kind of rank with its instants and counters, the recipe and where its parts came from.

    ``family``: the model's; ``novel``: a part of the model is known to have no rule. Both decide the error bar.
    """

    question: Training
    recipe: Recipe
    ranks: tuple[RankMemory, ...]
    trainable_parameters: int
    family: str = ""
    novel: bool = False
    host: tuple[Term, ...] = ()
    assumed: tuple[Assumption, ...] = ()
    unmodelled: tuple[Unmodelled, ...] = ()

    @property
    def worst(self) -> RankMemory:
        """The rank that needs most."""
        return max(self.ranks, key=lambda r: r.device_bytes)


def forecast_training(
    question: Training, *, model: Model, card: Accelerator | None = None, replays: bool = False
) -> TrainingForecast:
    """Memory of one step of ``question`` on ``model``. ``replays``: reserved by the allocator model where its events are known.

    Raises QuestionError for an impossible layout or an unknown name.
    """
    question = named_by_task(question)
    recipe, assumed = resolved(question, model)
    recipe, fitted = attention_on(card, recipe)
    validate(question, model, recipe)
    structure, numbers = structure_under(question, model, recipe, assumed), numbers_of(question)
    ranks = tuple(rank_of(kind, structure, numbers) for kind in structure.ranks)
    found = [_memory(rank, numbers, card, replays=replays) for rank in ranks]
    memories = tuple(memory for memory, _ in found)
    unread, (taken, untraced) = unread_layers(recipe), traced_notes(recipe, memories)
    return TrainingForecast(
        question=question,
        recipe=recipe,
        ranks=memories,
        trainable_parameters=_trainable(question, model, structure),
        family=model.family,
        novel=bool(model.unmodelled or unread),
        host=max((host_terms(rank) for rank in ranks), key=lambda terms: sum(t.bytes for t in terms)),
        assumed=(*assumed, *fitted, *assumed_class(card), *taken, *dict.fromkeys(f.note for _, notes in found for f in notes)),
        unmodelled=(*unread, *untraced, *unmodelled(model, recipe), *unchecked(model, recipe), *_may_be_spared(ranks)),
    )


def _trainable(question: Training, model: Model, structure: Structure) -> int:
    """Elements of the whole model that get gradients, however it is cut: those of one rank that holds all of it."""
    if question.parallel.model_ranks * question.parallel.ep > 1:
        uncut = {name: value for name, value in question.options.items() if name != "expert_tp"}
        whole = msgspec.structs.replace(question, parallel=Parallel(), options=uncut)
        structure = structure_under(whole, model, resolved(whole, model)[0])
    held = structure.ranks[0].held
    return int(held.trained.total + held.adapter.total)


def _memory(
    rank: Rank, numbers: StepNumbers, card: Accelerator | None, *, replays: bool
) -> tuple[RankMemory, tuple[Fitted, ...]]:
    """The ledger and the counters of one kind of rank, and the fitted factors that decided them."""
    moments = instants(rank)
    found = counters(rank, moments, numbers=numbers, card=card, share=_share(rank, numbers, card) if replays else None)
    memory = RankMemory(
        rank=rank.kind.stage.name,
        instants=moments,
        allocated_bytes=found.allocated_bytes,
        reserved_bytes=whole(found.reserved_bytes),
        device_bytes=found.device_bytes,
        needed_bytes=found.device_bytes,
        claimed_bytes=whole(found.reserved_bytes),
        first_step_bytes=_first_step(moments, rank.recipe.sharding.kind),
    )
    return msgspec.structs.replace(memory, outside=outside_terms(memory, found, card)), found.fitted


def _share(rank: Rank, numbers: StepNumbers, card: Accelerator | None) -> float | None:
    from vramcast.training.replay import reserved_share

    return reserved_share(rank, numbers, card)


_STEPS_AT_START = frozenset({"zero1", "zero2", "zero3"})


def _first_step(moments: tuple[Instant, ...], sharding: str) -> int:
    """Peak of the very first step: the optimizer's states do not exist before its end.

    DeepSpeed makes them at the start (runtime/zero/stage_1_and_2.py and stage3.py, initialize_optimizer_states).
    """
    if sharding in _STEPS_AT_START:
        return max(i.bytes for i in moments)
    return max(i.bytes if i.name == STEP else i.without("optimizer") for i in moments)


def _may_be_spared(ranks: tuple[Rank, ...]) -> tuple[Unmodelled, ...]:
    """Float copies of the logits that a compiled loss never makes, as a bound: whether the graph reaches it is not known."""
    last = [rank for rank in ranks if rank.kind.stage.last]
    spared = max((_spared_by_fusing(r.recipe, r.loss, tokens=r.tokens, vocab=r.structure.model.vocab) for r in last), default=0)
    because = "torch.compile: float copies of the logits are counted, a loss in the same graph makes none"
    return (Unmodelled(because, round(spared)),) if spared > 0 else ()


def _spared_by_fusing(recipe: Recipe, loss: LossCost, *, tokens: Number, vocab: int) -> Number:
    """Bytes of float copies of the logits that a compiled loss in the model's own graph would never make."""
    if not recipe.kernels.compiled or recipe.loss.kind not in WHOLE_LOGITS:
        return 0.0
    return largest(loss.forward, loss.backward).value - 2 * tokens * vocab * width(recipe.precision.compute)
