"""Layers between the first and the last of a model whose layers differ, each at its own backward.

Hybrids (attention among state-space or gated-delta layers), dense layers before experts, windows among full attention: the layer
that needs most need be neither the first nor the last, and under full sharding each unit is as large as its own layer.
"""

from collections.abc import Iterator

from vramcast.quantity import Number, Quantity, bytes_, is_there, largest, maximum, summed
from vramcast.training.activations.layers import Between
from vramcast.training.alive import Alive
from vramcast.training.full_sharding import adapters_come_ahead, beside, cut_gradients, cuts_units, flat_gradients
from vramcast.training.gathers import gathered, gathered_ahead
from vramcast.training.states import GRADIENTS_CUT
from vramcast.training.structure import Rank, retained_inputs


def layers_between(rank: Rank, reducing: Quantity) -> Iterator[tuple[str, Alive]]:
    """The backward of each such layer, by name; ``reducing``: gradients of the ends on their way."""
    for layer in rank.layers.between:
        what = f"the live layer's gradients and saved tensors (highest at its {layer.highest_at})"
        live = summed(bytes_(layer.working, what), bytes_(rank.layers.boundary, "the gradient of its input"))
        alive = Alive(
            gradients=_gradients(rank, layer),
            activations=_waiting(rank, layer),
            tower=rank.tower.held,
            loss=rank.loss.held,
            temporaries=largest(beside(rank, live, reducing, layer.place + 1), flat_gradients(rank, layer.place)),
            gathered=gathered(rank.recipe, rank.units, blocks=2 - adapters_come_ahead(rank), ends="none", place=layer.place),
            ahead=gathered_ahead(rank.recipe, rank.units, place=layer.place),
        )
        yield f"backward of layer {layer.place + 1}", alive


def _waiting(rank: Rank, layer: Between) -> Number:
    """What it and the layers before it keep; where FSDP1 hooks inputs, those of all layers with the gradients made so far."""
    if not is_there(bytes_(retained_inputs(rank))):
        return layer.waiting
    return rank.layers.waiting + (rank.units.depth - 1 - layer.place) * rank.layers.boundary


def _gradients(rank: Rank, layer: Between) -> Quantity:
    """Those of the layers behind it, and the head's; all that the micro-batch began with where it found some."""
    gradients = rank.states.gradients
    if rank.finds_gradients:
        return gradients
    if cuts_units(rank):
        return cut_gradients(rank, rank.units.depth - 1 - layer.place)
    if rank.recipe.sharding.kind in GRADIENTS_CUT:
        return gradients
    late = 0 if rank.units.tied else rank.kind.embedding_gradient
    left = maximum(0.0, gradients.value - layer.made - late)
    return gradients - bytes_(gradients.value - left, "of this layer, those before it and the embedding (not made yet)")
