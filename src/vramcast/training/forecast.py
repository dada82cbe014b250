"""The forecast of a training step: a question, a model and a recipe become the memory of each kind of rank."""

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.hardware.runtime import assumed_class
from vramcast.ledger import Assumption, Instant, RankMemory, Term, Unmodelled
from vramcast.models.inventory import Model
from vramcast.training.activations.known import traced_notes, unread_layers
from vramcast.training.activations.recurrent import unchecked
from vramcast.training.compiled import may_be_spared
from vramcast.training.counters import Pieces, counters
from vramcast.training.frameworks.common import attention_on
from vramcast.training.gathers import guarded, pending
from vramcast.training.groups import communicators
from vramcast.training.host import host_terms
from vramcast.training.instant import STEP
from vramcast.training.methods import adapter_of, named_by_task
from vramcast.training.outside import outside_terms
from vramcast.training.recipe.parts import Recipe
from vramcast.training.resolve import resolve
from vramcast.training.scene import Scene, retained_inputs
from vramcast.training.scenes import scenes_of
from vramcast.training.step import instants
from vramcast.training.streams import gather_pool
from vramcast.training.towers import unmodelled
from vramcast.training.validate import validate
from vramcast.workload import Training


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


def forecast_training(question: Training, *, model: Model, card: Accelerator | None = None) -> TrainingForecast:
    """Memory of one step of ``question`` on ``model``.

    Raises QuestionError for an impossible layout or an unknown name.
    """
    question = named_by_task(question)
    recipe, assumed = resolve(question, model)
    recipe, fitted = attention_on(card, recipe)
    validate(question, model, recipe)
    adapter = adapter_of(question)
    scenes = scenes_of(question, model, recipe, adapter)
    memories = tuple(_rank(scene, question, card) for scene in scenes)
    unread, (taken, untraced) = unread_layers(recipe), traced_notes(recipe, memories)
    trainable = sum(s.held.trained + s.held.expert_trained + s.held.adapter for s in scenes[:1])
    host = max((host_terms(s) for s in scenes), key=lambda terms: sum(t.bytes for t in terms))
    return TrainingForecast(
        question=question,
        recipe=recipe,
        ranks=memories,
        trainable_parameters=trainable,
        family=model.family,
        novel=bool(model.unmodelled or unread),
        host=host,
        assumed=assumed + fitted + assumed_class(card) + taken,
        unmodelled=(*unread, *untraced, *unmodelled(model, recipe), *unchecked(model, recipe), *may_be_spared(scenes)),
    )


def _pieces(scene: Scene) -> Pieces:
    """What backward piles up once the logits are free: hooked inputs, gradients of the ends; and what FSDP holds apart."""
    hooked = max(0.0, retained_inputs(scene) - scene.layers.waiting)
    return Pieces(
        loss_blocks=scene.loss.segments,
        retained=hooked + pending(scene.recipe, scene.units),
        guarded=guarded(scene.recipe, scene.units),
        streams=gather_pool(scene.recipe, scene.units),
    )


def _rank(scene: Scene, question: Training, card: Accelerator | None) -> RankMemory:
    moments = instants(scene)
    groups = communicators(question, scene.recipe, scene.stage, tied=scene.model.tied)
    allocated, reserved, device = counters(
        scene.recipe,
        moments,
        groups=groups,
        card=card,
        pieces=_pieces(scene),
    )
    tenant = round(scene.recipe.task.tenant * card.visible_bytes) if card else 0
    memory = RankMemory(
        rank=scene.stage.name,
        instants=moments,
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        device_bytes=device + tenant,
        needed_bytes=device + tenant,
        claimed_bytes=reserved,
        first_step_bytes=_first_step(moments),
    )
    return msgspec.structs.replace(memory, outside=outside_terms(memory, tenant_bytes=tenant, groups=groups, card=card))


def _first_step(moments: tuple[Instant, ...]) -> int:
    """Peak of the very first step: the optimizer's states do not exist before its end."""
    return max(i.bytes if i.name == STEP else i.without("optimizer") for i in moments)
