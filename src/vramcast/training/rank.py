"""One rank's step for the numbers of a batch: states, activations, loss and gathers, as quantities of numbers or arrays."""

import msgspec

from vramcast.quantity import Number, Quantity, maximum
from vramcast.training.activations.layers import Layers
from vramcast.training.activations.sizes import Shape
from vramcast.training.gathers import Units
from vramcast.training.loss import NO_HEAD, Logits, LossCost, loss_cost
from vramcast.training.recipe.parts import Recipe, width
from vramcast.training.stages import in_flight
from vramcast.training.states import NOTHING, Sharers, States, states
from vramcast.training.structure import RankStructure, StepNumbers, Structure
from vramcast.training.towers import TowerCost, cost_of


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the moments of a step are made of. ``tokens`` and ``rows`` (sequences) of one micro-batch on this rank.

    ``finds_gradients``: the largest micro-batch begins with gradients of earlier ones, or of the step before.
    """

    structure: Structure
    kind: RankStructure
    states: States
    layers: Layers
    loss: LossCost
    units: Units
    tower: TowerCost
    tokens: Number
    rows: Number
    in_flight: Number
    micro_batches: Number
    finds_gradients: bool
    accumulates: bool

    @property
    def recipe(self) -> Recipe:
        """Its recipe."""
        return self.structure.recipe

    @property
    def starting_gradients(self) -> Quantity:
        """Gradients that are there when the largest micro-batch begins."""
        return self.states.gradients if self.finds_gradients else NOTHING

    @property
    def resting_gradients(self) -> Quantity:
        """Gradients that stay when no step is under way: those in buffers of their own."""
        return self.states.gradients if self.recipe.update.frees_gradients is False else NOTHING


def rank_of(kind: RankStructure, structure: Structure, numbers: StepNumbers) -> Rank:
    """One kind of rank under those numbers."""
    recipe, parallel = structure.recipe, structure.parallel
    rows = recipe.task.sequences * numbers.micro_batch
    seq = numbers.seq + structure.virtual_tokens
    text = Shape(tokens=rows * seq / parallel.cp, seq=seq)
    passes = in_flight(kind.place, parallel, recipe, micro_batches=numbers.accumulate)
    layers = kind.layers.at(text, passes)
    sharers = sharers_of(structure, numbers)
    return Rank(
        structure=structure,
        kind=kind,
        states=states(kind.held, recipe, sharers),
        layers=layers,
        loss=_loss(kind, structure, tokens=text.tokens, rows=rows),
        units=_units(kind, sharers.dense),
        tower=cost_of(kind.towers, text, rows=rows, in_flight=passes),
        tokens=text.tokens,
        rows=rows,
        in_flight=passes,
        micro_batches=numbers.accumulate,
        finds_gradients=recipe.update.frees_gradients is False or (numbers.accumulates and not recipe.task.longest_first),
        accumulates=numbers.accumulates,
    )


def sharers_of(structure: Structure, numbers: StepNumbers) -> Sharers:
    """Ranks that share a dense tensor and an expert."""
    parallel, experts_tp = structure.parallel, structure.recipe.model_parallel.expert_tp
    dense = maximum(1, numbers.dp * parallel.cp // numbers.replicate)
    return Sharers(dense=dense, experts=maximum(1, dense * parallel.tp // (parallel.ep * experts_tp)))


def _units(kind: RankStructure, ranks: Number) -> Units:
    """What sharding gathers on this rank; the ends are on the first stage and the last."""
    return Units(
        block=kind.block_elements,
        depth=kind.stage.layers,
        embedding=kind.embedding,
        head=kind.head,
        tied=kind.tied,
        ranks=ranks,
    )


def _loss(kind: RankStructure, structure: Structure, *, tokens: Number, rows: Number) -> LossCost:
    recipe, model = structure.recipe, structure.model
    if not kind.stage.last:
        return NO_HEAD
    returned = recipe.loss.returns_cache and recipe.recomputation.policy.kind == "none"
    trained = kind.trains_head
    return loss_cost(
        recipe,
        Logits(
            tokens=tokens * recipe.loss.scored,
            vocab=kind.columns,
            cache=tokens * kind.returned if returned else 0,
            hidden=model.hidden,
            rows=rows,
            width=width(recipe.precision.compute),
            heads=kind.prediction_heads,
            head_trains=trained,
            head_gradient=kind.columns * model.hidden * width(recipe.precision.backward_gradients) if trained else 0,
        ),
    )


def retained_inputs(rank: Rank) -> Number:
    """FSDP1 hooks the inputs of frozen units and keeps them, with their gradients, until backward ends.

    torch 2.13, distributed/fsdp/_runtime_utils.py: _register_post_backward_reshard_only_hook puts a multi-grad hook on the
    inputs of a unit whose parameters need no gradient (since torch 2.1). With reentrant checkpointing the hooked
    inputs are the checkpoints, whose gradients stay as well.
    """
    recipe = rank.recipe
    if recipe.sharding.kind != "fsdp1" or recipe.task.method == "full" or recipe.recomputation.policy.kind != "full":
        return 0.0
    return rank.layers.waiting + (rank.kind.stage.layers - 2) * rank.layers.boundary
