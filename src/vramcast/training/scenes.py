"""The scenes of a question: for each kind of rank, what it holds, saves, gathers and loses to its loss."""

import msgspec

from vramcast.models.attention import Attention
from vramcast.models.inventory import Model
from vramcast.models.sharding import cut, share
from vramcast.models.stages import Stage
from vramcast.training.activations.choice import style_of, updates_inside_backward
from vramcast.training.activations.part import layers_of_part
from vramcast.training.activations.policy import Layers, blend
from vramcast.training.activations.style import Style
from vramcast.training.adapters.prompts import virtual_tokens
from vramcast.training.adapters.tensors import targeted
from vramcast.training.counts import count, trains
from vramcast.training.encoders import encoded
from vramcast.training.gathers import Units
from vramcast.training.loss import Logits, LossCost, loss_cost
from vramcast.training.methods import PARTIALS, PROMPTS
from vramcast.training.optimizers.rules import optimizer
from vramcast.training.pipeline_engine import balanced_bounds
from vramcast.training.reasons import Shards
from vramcast.training.recipe.parts import Recipe, width
from vramcast.training.recipe.policy import Policy
from vramcast.training.scene import Scene
from vramcast.training.stages import stages
from vramcast.training.states import GRADIENTS_CUT, states
from vramcast.training.towers import Sight, sight_of
from vramcast.workload import Adapter, Parallel, Training


def scenes_of(question: Training, model: Model, recipe: Recipe, adapter: Adapter | None) -> tuple[Scene, ...]:
    """One scene for each kind of rank: every rank, or the first, a middle and the last stage."""
    ranks = adapted(model, recipe, adapter)
    before = virtual_tokens(adapter.kind, adapter.sizes) if adapter else 0
    question = msgspec.structs.replace(question, seq=question.seq + before) if before else question
    return tuple(_scene(question, model, recipe, stage, adapter=adapter, ranks=ranks) for stage in _plan(question, model, recipe))


def _sight(question: Training, model: Model, recipe: Recipe, stage: Stage, *, style: Style, rows: int, tokens: float) -> Sight:
    """What stands beside the decoder: the towers of its images, or the encoder that it attends to."""
    policy = _policy(recipe, question.parallel)
    if recipe.task.images:
        return sight_of(model, recipe, stage, policy, style=style, sequences=rows)
    return encoded(model, stage, policy, style=style, tokens=tokens, seq=question.seq)


def adapted(model: Model, recipe: Recipe, adapter: Adapter | None) -> dict[str, int]:
    """Ranks of an adapter by the roles it reaches; none without one, or where it is a prompt."""
    if not adapter or adapter.kind in PROMPTS:
        return {}
    return targeted(model, adapter, router=recipe.adapters.adapts_router, experts=recipe.adapters.adapts_experts)


def _plan(question: Training, model: Model, recipe: Recipe) -> tuple[Stage, ...]:
    """The kinds of rank: their layers as this framework cuts them, and their passes in flight."""
    pp, micro_batches = question.parallel.pp, question.accumulate if question.parallel.pp > 1 else 0
    ends = recipe.model_parallel.stage_cut == "balanced_ends"
    bounds = None if recipe.model_parallel.stage_cut == "even" or pp == 1 else balanced_bounds(model.layers, pp, ends=ends)
    group, ahead = recipe.model_parallel.microbatch_group, int(recipe.model_parallel.overlaps_experts)
    return stages(model, question.parallel, micro_batches=micro_batches, bounds=bounds, group=group, ahead=ahead)


def _scene(
    question: Training, model: Model, recipe: Recipe, stage: Stage, *, adapter: Adapter | None, ranks: dict[str, int]
) -> Scene:
    parallel = question.parallel
    held = count(model, stage, parallel, recipe, adapter=adapter, ranks=ranks)
    shards = parallel.shards
    experts = max(1, shards * parallel.tp // (parallel.ep * recipe.model_parallel.expert_tp))
    row = optimizer(recipe.update.optimizer)
    kept = states(held, recipe, row, shards=shards, expert_shards=experts)
    style = style_of(recipe, parallel, adapter, ranks)
    tokens = recipe.task.sequences * question.micro_batch * question.seq / parallel.cp
    layers = _layers(question, model, recipe, stage, style=style, tokens=tokens)
    rows = recipe.task.sequences * question.micro_batch
    embeds = trains(model, recipe, adapter, "embedding")
    return Scene(
        model=model,
        recipe=recipe,
        stage=stage,
        parallel=parallel,
        held=held,
        states=kept,
        layers=layers,
        loss=_loss(question, model, recipe, stage, tokens, trained=trains(model, recipe, adapter, "head")),
        units=_units(model, recipe, layers.block_elements, stage, ranks=shards, tp=parallel.tp),
        micro_batches=question.accumulate,
        shards=Shards(dense=shards, experts=experts),
        tokens=tokens,
        rows=rows,
        sight=_sight(question, model, recipe, stage, style=style, rows=rows, tokens=tokens),
        embedding_gradient=_embedding_gradient(model, recipe, stage, parallel, trained=embeds),
        partial_embedding=_partial_embedding(model, recipe, stage, parallel, trained=embeds),
    )


def _embedding_gradient(model: Model, recipe: Recipe, stage: Stage, parallel: Parallel, *, trained: bool) -> float:
    """Bytes of a trained embedding's own gradient, where a rank keeps whole ones."""
    if not trained or not stage.first or recipe.sharding.kind in GRADIENTS_CUT or updates_inside_backward(recipe):
        return 0.0
    elements = sum(share(t, cut(parallel.tp)) for t in model.tensors if t.role == "embedding")
    return elements * width(recipe.precision.backward_gradients)


def _partial_embedding(model: Model, recipe: Recipe, stage: Stage, parallel: Parallel, *, trained: bool) -> float:
    """Bytes of the embedding's gradient where DTensor cuts a vocabulary: a whole one on each rank, then its part of their sum.

    Source: torch 2.13, distributed/tensor/_ops/_embedding_ops.py, embedding_dense_backward_strategy (its result is Partial).
    """
    if not trained or not stage.first or not recipe.model_parallel.partial_embedding or parallel.tp == 1:
        return 0.0
    whole = sum(t.elements for t in model.tensors if t.role == "embedding") * width(recipe.precision.backward_gradients)
    return whole * (1 + 1 / parallel.tp)


def _layers(question: Training, model: Model, recipe: Recipe, stage: Stage, *, style: Style, tokens: float) -> Layers:
    """What this rank's layers keep: some of them frozen, some in 16 bits while the others are narrow."""

    def under(style: Style) -> Layers:
        part, trained = PARTIALS.get(question.method), recipe.task.trainable_layers or 0
        policy = _policy(recipe, question.parallel)
        return layers_of_part(policy, stage, style, model, partial=part, trained=trained, tokens=tokens, seq=question.seq)

    if not recipe.precision.saved_inputs or recipe.precision.narrow_layers is None:
        return under(style)
    wide = under(msgspec.structs.replace(style, saved_inputs=0, saved_weights=0))
    return blend(under(style), wide, min(1.0, recipe.precision.narrow_layers / model.layers))


def _policy(recipe: Recipe, parallel: Parallel) -> Policy:
    """The policy of a rank's layers: offloaded activations leave nothing on the card; block counts layers of each chunk."""
    policy = recipe.recomputation.policy
    if policy.kind == "block":
        return Policy("block", policy.layers * parallel.vpp)
    return Policy("offloaded") if "activations" in recipe.sharding.offload and policy.kind != "none" else policy


def _units(model: Model, recipe: Recipe, block: float, stage: Stage, *, ranks: int, tp: int) -> Units:
    """What sharding gathers on this rank; the ends are on the first stage and the last."""
    ends = {role: sum(share(t, cut(tp)) for t in model.tensors if t.role == role) for role in ("embedding", "head")}
    return Units(
        block=block,
        depth=stage.layers,
        embedding=ends["embedding"] * stage.first,
        head=ends["embedding" if model.tied else "head"] * stage.last,
        tied=model.tied and recipe.loss.tied is not False and stage.first and stage.last,
        ranks=ranks,
    )


def _loss(question: Training, model: Model, recipe: Recipe, stage: Stage, tokens: float, *, trained: bool) -> LossCost:
    if not stage.last:
        return LossCost(forward=0, backward=0, why="no head on this rank")
    columns = model.vocab / (question.parallel.tp if recipe.model_parallel.vocab_parallel else 1)
    heads = 1 + sum(t.kind == "mtp" and not t.stored_only for t in model.towers)
    returned = sum(n * mixer.cache_elements for b, n in stage.blocks for mixer in b.mixers if isinstance(mixer, Attention))
    return loss_cost(
        recipe,
        Logits(
            tokens=tokens * recipe.loss.scored,
            vocab=columns,
            cache=tokens * returned if recipe.loss.returns_cache and recipe.recomputation.policy.kind == "none" else 0,
            hidden=model.hidden,
            rows=recipe.task.sequences * question.micro_batch,
            width=width(recipe.precision.compute),
            heads=heads,
            head_trains=trained,
            head_gradient=columns * model.hidden * width(recipe.precision.backward_gradients) if trained else 0,
        ),
    )
