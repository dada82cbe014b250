"""One training step of one rank as a timeline: what is alive at each instant, in named terms that sum to it."""

from collections.abc import Iterator

import msgspec

from vramcast.ledger import Instant, Term
from vramcast.models.inventory import Model
from vramcast.training import reasons
from vramcast.training.activations.policy import Layers
from vramcast.training.counts import Count
from vramcast.training.gathers import Units, gathered, pending, secondary
from vramcast.training.loss import LossCost
from vramcast.training.pipeline_engine import between_stages
from vramcast.training.reasons import Shards
from vramcast.training.recipe import Recipe, width
from vramcast.training.saving import gathered_to_save
from vramcast.training.stages import Stage
from vramcast.training.states import GRADIENTS_CUT, States, largest
from vramcast.training.towers import Sight, opened_by
from vramcast.units import gib
from vramcast.workload import Parallel

STEP = "optimizer step"


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an instant is made of."""

    model: Model
    recipe: Recipe
    stage: Stage
    parallel: Parallel
    held: Count
    states: States
    layers: Layers
    loss: LossCost
    units: Units
    micro_batches: int
    shards: Shards
    tokens: float
    rows: int
    sight: Sight = Sight()
    embedding_gradient: float = 0.0


def instants(scene: Scene) -> tuple[Instant, ...]:
    """The instants of a steady step, in order."""
    stage = scene.stage
    moments = [_load(scene)] if scene.states.loaded else []
    if scene.sight.held:
        moments.append(_seeing(scene))
    moments.append(_end_of_forward(scene))
    if stage.head:
        moments += [_loss(scene), _loss_backward(scene)]
    moments += [_last_block(scene), _first_block(scene)]
    if scene.embedding_gradient:
        moments.append(_embedding(scene))
    if scene.sight.saved:
        moments.append(_seen(scene))
    if scene.recipe.checks_overflow:
        moments.append(_instant("overflow check", scene, gradients=scene.states.gradients, overflow=scene.states.overflow_copy))
    moments.append(_optimizer_step(scene))
    if scene.recipe.eval_batch:
        moments.append(_evaluation(scene))
    if scene.recipe.saves:
        moments.append(_save(scene))
    return tuple(moments)


def _load(s: Scene) -> Instant:
    """A quantised model is loaded whole on every card before FSDP cuts it (transformers, quantizers/base.py)."""
    return Instant(name="load", terms=(Term(name="weights", bytes=round(s.states.loaded), why="whole, before sharding"),))


def _seeing(s: Scene) -> Instant:
    """Images go through their tower before the decoder begins."""
    return _instant("forward of the vision tower", s, tower=s.sight.held, temporaries=s.sight.forward)


def _end_of_forward(s: Scene) -> Instant:
    return _instant(
        "end of forward",
        s,
        activations=s.layers.waiting,
        tower=s.sight.held,
        temporaries=s.layers.forward,
        gathered=gathered(s.recipe, s.units, blocks=1, ends="head"),
    )


def _loss(s: Scene) -> Instant:
    return _instant(
        "loss",
        s,
        activations=s.layers.waiting,
        tower=s.sight.held,
        loss=s.loss.forward,
        gathered=gathered(s.recipe, s.units, blocks=1, ends="head"),
    )


def _loss_backward(s: Scene) -> Instant:
    return _instant(
        "backward of the loss",
        s,
        activations=s.layers.waiting,
        tower=s.sight.held,
        loss=s.loss.backward,
        gathered=gathered(s.recipe, s.units, blocks=1, ends="head"),
    )


def _last_block(s: Scene) -> Instant:
    """The head's gradient already exists (or, sharded, is on its way), one block's working set is at its highest."""
    working = s.layers.working + s.layers.boundary + _reducing(s)
    whole = gathered(s.recipe, s.units, blocks=2, ends="none")
    return _instant(
        "backward of the last block", s, activations=s.layers.waiting, tower=s.sight.held, temporaries=working, gathered=whole
    )


def _first_block(s: Scene) -> Instant:
    """All gradients exist but the embedding's, unless a tied head has made it; of the activations only the first block's."""
    recipe, layers = s.recipe, s.layers
    retained = retained_inputs(s)
    late = 0 if s.units.tied or _finds_gradients(s) else s.embedding_gradient
    own = 0 if recipe.sharding in GRADIENTS_CUT else layers.gradients + late
    gradients = max(0.0, s.states.gradients - own)
    return _instant(
        "backward of the first block",
        s,
        gradients=gradients,
        activations=retained or layers.first_kept,
        tower=s.sight.held,
        temporaries=layers.first_working + layers.boundary + _reducing(s),
        gathered=gathered(recipe, s.units, blocks=1, ends="none"),
        gradient_copy=s.states.wide_copy,
    )


def _embedding(s: Scene) -> Instant:
    """The embedding's gradient is a matrix of its own, added to one that is there: the tied head's, or the last micro-batch's.

    Source: torch, derivatives.yaml, embedding_dense_backward; accumulate_grad.h takes a first gradient as it is.
    """
    there = s.units.tied or _finds_gradients(s)
    return _instant(
        "backward of the embedding",
        s,
        gradients=s.states.gradients,
        tower=s.sight.held,
        temporaries=s.layers.boundary + (s.embedding_gradient if there else 0),
        gradient_copy=s.states.wide_copy,
    )


def _seen(s: Scene) -> Instant:
    """A tower's backward is the last of the step: every other gradient exists, and that of the decoder's input."""
    return _instant(
        "backward of the vision tower",
        s,
        gradients=s.states.gradients,
        tower=s.sight.held,
        temporaries=s.sight.working + s.layers.boundary,
        gradient_copy=s.states.wide_copy,
    )


def _reducing(s: Scene) -> float:
    """Gradients of the ends that wait, and the 4-bit copies of one gradient on its way through ZeRO++'s two all-to-alls.

    Source: DeepSpeed 0.18.2, runtime/comm/coalesced_collectives.py, all_to_all_quant_reduce: half a byte per element sent, half
    a byte received.
    """
    quantized = s.recipe.quantized_gradients and s.recipe.sharding == "zero3"
    return pending(s.recipe, s.units) + (largest(s.held) if quantized else 0)


def retained_inputs(s: Scene) -> float:
    """FSDP1 hooks the inputs of frozen units and keeps them, with their gradients, until backward ends.

    torch 2.13, distributed/fsdp/_runtime_utils.py: _register_post_backward_reshard_only_hook puts a multi-grad hook on the
    inputs of a unit whose parameters need no gradient (since torch 2.1). With reentrant checkpointing the hooked
    inputs are the checkpoints, whose gradients stay as well.
    """
    if s.recipe.sharding != "fsdp1" or s.recipe.method == "full" or s.recipe.checkpointing != "full":
        return 0.0
    return s.layers.waiting + (s.stage.depth - 2) * s.layers.boundary


def _optimizer_step(s: Scene) -> Instant:
    return _instant(STEP, s, gradients=s.states.gradients, temporaries=s.states.step_copy, gradient_copy=s.states.flat_copy)


def _evaluation(s: Scene) -> Instant:
    """A forward without autograd at the evaluation batch, after batches whose logits stay on the card.

    Source: transformers 5, trainer.py (evaluation_loop), trainer_pt_utils.py: EvalLoopContainer.add concatenates what was kept
    with what is new, both alive; accelerate converts the model's outputs to float under autocast.
    """
    scale = s.recipe.eval_batch / s.rows
    batch = s.tokens * scale * s.model.vocab if s.stage.head else 0.0
    kept = batch * (4 if s.recipe.autocast else width(s.recipe.compute)) * max(0, 2 * s.recipe.eval_kept - 2)
    return _instant(
        "evaluation",
        s,
        gradients=_after_step(s),
        tower=s.sight.pixels * scale,
        temporaries=max(s.layers.forward, s.sight.forward) * scale,
        loss=batch * (width(s.recipe.compute) + 4) + kept,
        gathered=gathered(s.recipe, s.units, blocks=1, ends="head"),
    )


def _save(s: Scene) -> Instant:
    """Weights gathered for a checkpoint, between two steps."""
    return _instant(
        "checkpoint save",
        s,
        gradients=_after_step(s),
        gathered=gathered_to_save(s.recipe, s.units, s.held, s.states),
    )


def _after_step(s: Scene) -> float:
    """Gradients that stay when no step is under way: those in buffers of their own."""
    return s.states.gradients if s.recipe.frees_gradients is False else 0.0


def _secondary(s: Scene) -> float:
    held = s.held
    return secondary(s.recipe, held.trained + held.expert_trained + held.frozen, s.parallel.hpz)


def _buckets(s: Scene) -> float:
    """Flat buffers: DeepSpeed's buckets and pipeline outputs, or DDP's own copy of the gradients."""
    whole = s.states.gradients if s.recipe.ddp_buckets else 0.0
    outputs = between_stages(s.recipe, s.stage, s.parallel, micro_batches=s.micro_batches) * s.layers.boundary
    return whole + outputs + s.recipe.bucket_elements * width(s.recipe.compute)


def _instant(name: str, s: Scene, **sizes: float) -> Instant:
    """An instant from the steady states and the sizes alive at it; gradients already present when micro-batches accumulate."""
    if "gradients" not in sizes:
        sizes["gradients"] = s.states.gradients if _finds_gradients(s) else 0.0
    if s.recipe.low_gradients and name != STEP:
        sizes["gradients"] += s.held.trained * width(s.recipe.low_gradients)
    whole = s.recipe.whole_accumulation if s.micro_batches > 1 and name != STEP else ""
    if whole and (sizes["gradients"] or not s.recipe.longest_first):
        sizes["gradients"] = s.states.whole_gradients
    return Instant(name=name, terms=tuple(_terms(s, sizes)))


def _finds_gradients(s: Scene) -> bool:
    """Whether the largest micro-batch begins with gradients of earlier ones, or of the step before."""
    return s.recipe.frees_gradients is False or (s.micro_batches > 1 and not s.recipe.longest_first)


def _terms(s: Scene, sizes: dict[str, float]) -> Iterator[Term]:
    """The named terms of an instant, largest parts first in the order of their life."""
    states, held, recipe = s.states, s.held, s.recipe
    kept = reasons.activations(recipe, depth=s.stage.depth, in_flight=s.stage.in_flight, tokens=s.tokens)
    parts = {
        "weights": (states.weights, reasons.weights(held, recipe, s.shards)),
        "gradients": (sizes["gradients"], reasons.gradients(held, recipe, s.shards)),
        "optimizer": (states.optimizer, reasons.optimizer_states(held, recipe, s.shards)),
        "master_weights": (states.master, reasons.master(held, recipe, s.shards)),
        "secondary_weights": (_secondary(s), reasons.secondary(held, recipe, s.parallel.hpz)),
        "communication": (_buckets(s), "reduction and gather buckets, outputs in flight"),
        "activations": (sizes.get("activations", 0.0) + sizes.get("tower", 0.0), kept),
        "loss": (sizes.get("loss", 0.0), s.loss.why),
        "gathered": (sizes.get("gathered", 0.0), "whole units gathered for compute"),
        "temporaries": (sizes.get("temporaries", 0.0), s.layers.why),
        "gradient_copy": (sizes.get("gradient_copy", 0.0), reasons.gradient_copy(held, recipe, s.shards)),
        "overflow_check": (sizes.get("overflow", 0.0), "the largest gradient in float32"),
    }
    for name, (size, why) in parts.items():
        if size:
            source = reasons.source_of(name, recipe)
            opened = _saved(s, sizes) if name == "activations" else ()
            yield Term(
                name=name,
                bytes=sum(t.bytes for t in opened) or round(size),
                why=f"{why} = {gib(size)}",
                source=source,
                terms=opened,
            )


def _saved(s: Scene, sizes: dict[str, float]) -> tuple[Term, ...]:
    """What waits for backward by the operation that made it, while all of it waits; what images left beside it."""
    text, tower = sizes.get("activations", 0.0), sizes.get("tower", 0.0)
    each = s.stage.depth * s.tokens
    whole = text and text == s.layers.waiting
    opened = tuple(
        Term(name=f"saved.{name}", bytes=round(part), why=f"{part / each:,.0f} B per token and layer on average")
        for name, part in (s.layers.parts if whole else ())
    )
    return opened_by(s.sight, opened, text=text, tower=tower)
