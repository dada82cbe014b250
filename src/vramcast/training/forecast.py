"""The forecast of a training step: a question, a model and a recipe become the memory of each kind of rank."""

from typing import Any

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import Assumption, Instant, RankMemory, Term, Unmodelled
from vramcast.models.attention import Attention
from vramcast.models.inventory import Model
from vramcast.training.activations.choice import style_of, updates_inside_backward
from vramcast.training.activations.part import layers_of_part
from vramcast.training.activations.policy import Layers, blend
from vramcast.training.activations.style import Style
from vramcast.training.adapter_kinds import KINDS
from vramcast.training.adapters import targeted
from vramcast.training.counters import counters
from vramcast.training.frameworks import framework_name, resolver
from vramcast.training.frameworks.common import attention_on, fsdp_offload, is_narrow, narrow_inputs
from vramcast.training.gathers import Units, pending
from vramcast.training.groups import communicators
from vramcast.training.host import host_terms
from vramcast.training.loss import Logits, LossCost, loss_cost
from vramcast.training.methods import PARTIALS, PROMPTS, TASKS, kind_of, task_of
from vramcast.training.optimizers import optimizer, update_of
from vramcast.training.outside import outside_terms
from vramcast.training.pipeline_engine import balanced_bounds
from vramcast.training.reasons import Shards
from vramcast.training.recipe import Draft, Recipe, width
from vramcast.training.stages import Stage, stages
from vramcast.training.states import GRADIENTS_CUT, count, states
from vramcast.training.step import STEP, Scene, instants, retained_inputs
from vramcast.training.validate import validate
from vramcast.training.words import QUANT_ALIASES
from vramcast.workload import Adapter, Parallel, Training


class TrainingForecast(msgspec.Struct, frozen=True, kw_only=True):
    """The answer: each kind of rank with its instants and counters, the recipe and where its parts came from."""

    question: Training
    recipe: Recipe
    ranks: tuple[RankMemory, ...]
    trainable_parameters: int
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
    question = _named_by_task(question)
    recipe, assumed = resolve(question, model)
    recipe, fitted = attention_on(card, recipe)
    validate(question, model, recipe)
    adapter = _adapter(question)
    ranks = targeted(model, adapter, router=recipe.adapts_router) if adapter and adapter.kind not in PROMPTS else {}
    plan = _plan(question, model, recipe)
    scenes = [_scene(question, model, recipe, stage, adapter=adapter, ranks=ranks) for stage in plan]
    memories = tuple(_rank(scene, question, card) for scene in scenes)
    trainable = sum(s.held.trained + s.held.expert_trained + s.held.adapter for s in scenes[:1])
    host = max((host_terms(s) for s in scenes), key=lambda terms: sum(t.bytes for t in terms))
    return TrainingForecast(
        question=question,
        recipe=recipe,
        ranks=memories,
        trainable_parameters=trainable,
        host=host,
        assumed=assumed + fitted,
        unmodelled=_unmodelled(model),
    )


def _plan(question: Training, model: Model, recipe: Recipe) -> tuple[Stage, ...]:
    """The kinds of rank: their layers as this framework cuts them, and their passes in flight."""
    pp, micro_batches = question.parallel.pp, question.accumulate if question.parallel.pp > 1 else 0
    ends = recipe.stage_cut == "balanced_ends"
    bounds = None if recipe.stage_cut == "even" or pp == 1 else balanced_bounds(model.layers, pp, ends=ends)
    group, ahead = recipe.microbatch_group, int(recipe.overlaps_experts)
    return stages(model, question.parallel, micro_batches=micro_batches, bounds=bounds, group=group, ahead=ahead)


def _named_by_task(question: Training) -> Training:
    """A task given as the method (dpo, grpo) trains everything, or the adapter that is given."""
    if question.method not in TASKS:
        return question
    method = "lora" if question.adapter else "full"
    return msgspec.structs.replace(question, method=method, options={"task": question.method} | question.options)


def _unmodelled(model: Model) -> tuple[Unmodelled, ...]:
    """What this forecast leaves out, by name."""
    towers = [t for t in model.towers if not t.stored_only and t.kind != "mtp"]
    return tuple(Unmodelled(f"activations of {t.name} ({t.kind}): their size follows the inputs, not the text") for t in towers)


def resolve(question: Training, model: Model) -> tuple[Recipe, tuple[Assumption, ...]]:
    """The recipe of a question: what was given first, then what its framework does."""
    name = framework_name(question.framework)
    draft = Draft(_given(question) | question.options)
    task, partial = task_of(draft.get("task", "sft")), PARTIALS.get(question.method)
    because = task.source if draft.get("task") else ""
    copies = task.frozen if kind_of(question.method) != "adapter" else max(0, task.frozen - 1)
    draft.default(because, sequences=task.sequences, trained_copies=task.trained, tenant=task.tenant, frozen_copies=copies)
    if partial:
        draft.default(partial.source, trainable_layers=partial.layers, trains_ends=partial.ends)
        if partial.master:
            draft.default(partial.source, master=partial.master, states=partial.master)
    draft.default("", framework=name, version=question.framework_version or "")
    if question.method == "qlora":
        draft.default("QLoRA holds frozen weights in 4-bit NormalFloat (arXiv 2305.14314)", quant="nf4")
    narrow_inputs(draft, question, name)
    resolver(name)(draft, question, model)
    fsdp_offload(draft)
    return draft.finish()


def _given(question: Training) -> dict[str, Any]:
    return {
        "method": kind_of(question.method),
        "weights": question.param_dtype,
        "compute": "bfloat16" if is_narrow(question) else question.compute_dtype,
        "gradients": question.grad_dtype,
        "optimizer": optimizer(question.optimizer).name if question.optimizer else None,
        "update": update_of(question.optimizer),
        "checkpointing": question.checkpointing,
        "attention": question.attention,
        "loss": question.loss,
        "compiled": question.compile,
        "quant": QUANT_ALIASES.get(question.quant or "", question.quant),
        "offload": question.offload or None,
    }


def _adapter(question: Training) -> Adapter | None:
    """The adapter asked for, of the kind that the method names."""
    if kind_of(question.method) != "adapter":
        return None
    kind = question.method if question.method != "qlora" else "lora"
    rank = KINDS[kind].sizes.get("r") or 1 if kind in KINDS else 1
    given = question.adapter or Adapter(kind=kind, rank=rank)
    return msgspec.structs.replace(given, kind=kind if given.kind == "lora" else given.kind, dora=given.dora or kind == "dora")


def _scene(
    question: Training, model: Model, recipe: Recipe, stage: Stage, *, adapter: Adapter | None, ranks: dict[str, int]
) -> Scene:
    parallel = question.parallel
    held = count(model, stage, parallel, recipe, adapter=adapter, ranks=ranks)
    shards = parallel.shards
    experts = max(1, shards * parallel.tp // (parallel.ep * recipe.expert_tp))
    row = optimizer(recipe.optimizer)
    kept = states(held, recipe, row, shards=shards, expert_shards=experts)
    style = style_of(recipe, parallel, adapter, ranks)
    tokens = recipe.sequences * question.micro_batch * question.seq / parallel.cp
    layers = _layers(question, model, recipe, stage, style=style, tokens=tokens)
    return Scene(
        model=model,
        recipe=recipe,
        stage=stage,
        parallel=parallel,
        held=held,
        states=kept,
        layers=layers,
        loss=_loss(question, model, recipe, stage, tokens),
        units=_units(model, recipe, layers.block_elements, stage, ranks=shards, tp=parallel.tp),
        accumulating=question.accumulate > 1,
        shards=Shards(dense=shards, experts=experts),
        tokens=tokens,
        rows=recipe.sequences * question.micro_batch,
        embedding_gradient=_embedding_gradient(model, recipe, stage, question.parallel),
    )


def _embedding_gradient(model: Model, recipe: Recipe, stage: Stage, parallel: Parallel) -> float:
    """Bytes of the embedding's own gradient, where a rank keeps whole ones."""
    trained = stage.embedding and (recipe.method == "full" or recipe.trains_ends)
    if not trained or recipe.sharding in GRADIENTS_CUT or updates_inside_backward(recipe):
        return 0.0
    elements = sum(t.on_rank(tp=parallel.tp) for t in model.tensors if t.role == "embedding")
    return elements * width(recipe.backward_gradients)


def _layers(question: Training, model: Model, recipe: Recipe, stage: Stage, *, style: Style, tokens: float) -> Layers:
    """What this rank's layers keep: some of them frozen, some in 16 bits while the others are narrow."""

    def under(style: Style) -> Layers:
        part, trained = PARTIALS.get(question.method), recipe.trainable_layers or 0
        policy = _policy(recipe, question.parallel)
        return layers_of_part(policy, stage, style, model, partial=part, trained=trained, tokens=tokens, seq=question.seq)

    if not recipe.saved_inputs or recipe.narrow_layers is None:
        return under(style)
    wide = under(msgspec.structs.replace(style, saved_inputs=0, saved_weights=0))
    return blend(under(style), wide, min(1.0, recipe.narrow_layers / model.layers))


def _policy(recipe: Recipe, parallel: Parallel) -> str:
    """The policy of a rank's layers: offloaded activations leave nothing on the card; block counts layers of each chunk."""
    word, _, number = recipe.checkpointing.partition(":")
    if word == "block":
        return f"block:{int(number) * parallel.vpp}"
    return "offloaded" if "activations" in recipe.offload and word != "none" else recipe.checkpointing


def _units(model: Model, recipe: Recipe, block: float, stage: Stage, *, ranks: int, tp: int) -> Units:
    ends = {role: sum(t.on_rank(tp=tp) for t in model.tensors if t.role == role) for role in ("embedding", "head")}
    return Units(
        block=block,
        depth=stage.depth,
        embedding=ends["embedding"],
        head=ends["embedding"] if model.tied else ends["head"],
        tied=model.tied and recipe.tied is not False,
        ranks=ranks,
    )


def _loss(question: Training, model: Model, recipe: Recipe, stage: Stage, tokens: float) -> LossCost:
    if not stage.head:
        return LossCost(forward=0, backward=0, why="no head on this rank")
    trains = recipe.method == "full" or recipe.trains_ends
    columns = model.vocab / (question.parallel.tp if recipe.vocab_parallel else 1)
    heads = 1 + sum(t.kind == "mtp" and not t.stored_only for t in model.towers)
    returned = sum(n * mixer.cache_elements for b, n in stage.layers for mixer in b.mixers if isinstance(mixer, Attention))
    return loss_cost(
        recipe,
        Logits(
            tokens=tokens * recipe.scored,
            vocab=columns,
            cache=tokens * returned if recipe.returns_cache and recipe.checkpointing == "none" else 0,
            hidden=model.hidden,
            rows=recipe.sequences * question.micro_batch,
            width=width(recipe.compute),
            heads=heads,
            head_trains=trains,
            head_gradient=columns * model.hidden * width(recipe.backward_gradients) if trains else 0,
        ),
    )


def _piled_up(scene: Scene) -> float:
    """What backward piles up once the logits are free, in whose segments it finds room: hooked inputs, gradients of the ends."""
    return max(0.0, retained_inputs(scene) - scene.layers.waiting) + pending(scene.recipe, scene.units)


def _rank(scene: Scene, question: Training, card: Accelerator | None) -> RankMemory:
    moments = instants(scene)
    groups = communicators(question, scene.recipe, scene.stage, tied=scene.model.tied)
    allocated, reserved, device = counters(
        scene.recipe,
        moments,
        groups=groups,
        card=card,
        segments=scene.loss.segments,
        retained=_piled_up(scene),
    )
    tenant = round(scene.recipe.tenant * card.visible_bytes) if card else 0
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
