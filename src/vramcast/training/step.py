"""One training step of one rank as a timeline: what is alive at each instant, in named terms that sum to it."""

from vramcast.ledger import Instant, Term
from vramcast.training import reasons
from vramcast.training.gathers import gathered, pending
from vramcast.training.instant import STEP, instant
from vramcast.training.recipe.parts import width
from vramcast.training.saving import gathered_to_save
from vramcast.training.scene import Scene, finds_gradients, retained_inputs
from vramcast.training.states import GRADIENTS_CUT, largest
from vramcast.units import gib


def instants(scene: Scene) -> tuple[Instant, ...]:
    """The instants of a steady step, in order."""
    stage = scene.stage
    moments = [_load(scene)] if scene.states.loaded else []
    if scene.sight.held:
        moments.append(_seeing(scene))
    moments.append(_end_of_forward(scene))
    if stage.last:
        moments += [_loss(scene), _loss_backward(scene)]
    moments += [_last_block(scene), _first_block(scene)]
    if scene.embedding_gradient or scene.partial_embedding:
        moments.append(_embedding(scene))
    if scene.sight.saved:
        moments.append(_seen(scene))
    if scene.recipe.update.checks_overflow:
        moments.append(instant("overflow check", scene, gradients=scene.states.gradients, overflow=scene.states.overflow_copy))
    moments.append(_optimizer_step(scene))
    if scene.recipe.task.eval_batch:
        moments.append(_evaluation(scene))
    if scene.recipe.task.saves:
        moments.append(_save(scene))
    return tuple(moments)


def _load(s: Scene) -> Instant:
    """A quantised model is loaded whole on every card before FSDP cuts it (transformers, quantizers/base.py)."""
    return Instant(name="load", terms=(Term(name="weights", bytes=round(s.states.loaded), why="whole, before sharding"),))


def _seeing(s: Scene) -> Instant:
    """Images go through their tower before the decoder begins."""
    return instant(f"forward of the {s.sight.name}", s, tower=s.sight.held, temporaries=s.sight.forward)


def _end_of_forward(s: Scene) -> Instant:
    return instant(
        "end of forward",
        s,
        activations=s.layers.waiting,
        tower=s.sight.held,
        temporaries=s.layers.forward + s.layers.copies * (1 - 1 / s.stage.layers),
        gathered=gathered(s.recipe, s.units, blocks=1, ends="head"),
    )


def _loss(s: Scene) -> Instant:
    return instant(
        "loss",
        s,
        activations=s.layers.waiting,
        tower=s.sight.held,
        temporaries=s.layers.copies,
        loss=s.loss.forward,
        gathered=gathered(s.recipe, s.units, blocks=1, ends="head"),
    )


def _loss_backward(s: Scene) -> Instant:
    return instant(
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
    return instant(
        "backward of the last block", s, activations=s.layers.waiting, tower=s.sight.held, temporaries=working, gathered=whole
    )


def _first_block(s: Scene) -> Instant:
    """All gradients exist but the embedding's, unless a tied head has made it; of the activations only the first block's."""
    recipe, layers = s.recipe, s.layers
    retained = retained_inputs(s)
    late = 0 if s.units.tied or finds_gradients(s) else s.embedding_gradient
    own = 0 if recipe.sharding.kind in GRADIENTS_CUT else layers.gradients + late
    gradients = max(0.0, s.states.gradients - own)
    return instant(
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
    there = s.units.tied or finds_gradients(s)
    own = s.partial_embedding or (s.embedding_gradient if there else 0)
    matrix = f"the embedding's own gradient {gib(own)} and " if own else ""
    return instant(
        "backward of the embedding",
        s,
        told=(f"{matrix}the gradient of its output {gib(s.layers.boundary)}", "torch: derivatives.yaml, accumulate_grad.h"),
        gradients=s.states.gradients,
        tower=s.sight.held,
        temporaries=s.layers.boundary + own,
        gathered=gathered(s.recipe, s.units, blocks=0, ends="embedding"),
        gradient_copy=s.states.wide_copy,
    )


def _seen(s: Scene) -> Instant:
    """A tower's backward is the last of the step: every other gradient exists, and that of the decoder's input."""
    return instant(
        f"backward of the {s.sight.name}",
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
    quantized = s.recipe.sharding.quantized_gradients and s.recipe.sharding.kind == "zero3"
    return pending(s.recipe, s.units) + (largest(s.held) if quantized else 0)


def _optimizer_step(s: Scene) -> Instant:
    return instant(
        STEP,
        s,
        told=reasons.stepping(s.held, s.recipe, s.shards),
        gradients=s.states.step_gradients,
        temporaries=s.states.step_copy,
        gradient_copy=s.states.flat_copy,
    )


def _evaluation(s: Scene) -> Instant:
    """A forward without autograd at the evaluation batch, after batches whose logits stay on the card.

    Source: transformers 5, trainer.py (evaluation_loop), trainer_pt_utils.py: EvalLoopContainer.add concatenates what was kept
    with what is new, both alive; accelerate converts the model's outputs to float under autocast.
    """
    scale = s.recipe.task.eval_batch / s.rows
    batch = s.tokens * scale * s.model.vocab if s.stage.last else 0.0
    kept = (
        batch
        * (4 if s.recipe.precision.autocast else width(s.recipe.precision.compute))
        * max(0, 2 * s.recipe.task.eval_kept - 2)
    )
    return instant(
        "evaluation",
        s,
        gradients=_after_step(s),
        tower=s.sight.pixels * scale,
        temporaries=max(s.layers.forward, s.sight.forward) * scale,
        loss=batch * (width(s.recipe.precision.compute) + 4) + kept,
        gathered=gathered(s.recipe, s.units, blocks=1, ends="head"),
    )


def _save(s: Scene) -> Instant:
    """Weights gathered for a checkpoint, between two steps."""
    return instant(
        "checkpoint save",
        s,
        gradients=_after_step(s),
        gathered=gathered_to_save(s.recipe, s.units, s.held, s.states),
    )


def _after_step(s: Scene) -> float:
    """Gradients that stay when no step is under way: those in buffers of their own."""
    return s.states.gradients if s.recipe.update.frees_gradients is False else 0.0
