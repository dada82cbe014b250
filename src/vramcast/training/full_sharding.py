"""What full sharding does to the moments of a backward pass: which units are whole, and whose gradients are being cut up."""

from collections.abc import Iterator

from vramcast.quantity import Quantity, bytes_, maximum, summed
from vramcast.training.gathers import copied_out, flattening, gathered, is_cut, reduced_before, reducing
from vramcast.training.moment import LiveBytes
from vramcast.training.structure import Rank

ROOT = "gradients of the root unit"


def cuts_units(rank: Rank) -> bool:
    """Whether FSDP trains whole units, whose gradients it cuts one after the other; one compiled graph orders them itself."""
    recipe = rank.recipe
    sharded = recipe.sharding.kind in ("fsdp1", "fsdp2") and is_cut(recipe, rank.units)
    return sharded and recipe.task.method == "full" and not recipe.kernels.one_graph


def cut_gradients(rank: Rank, blocks: int) -> Quantity:
    """Gradients under FSDP once so many blocks are reduced, and with them the head where it is a unit of its own."""
    units = rank.units
    done = units.last_blocks(blocks) + units.last_unit(rank.recipe)
    return rank.states.gradients * (done / (units.blocks + units.ends))


def flat_gradients(rank: Rank, place: int) -> Quantity:
    """The gradients of the block at that place under FSDP1, each and all in one, beside the ends' that wait."""
    boundary = bytes_(rank.layers.boundary, "the gradient of its input")
    return summed(
        flattening(rank.recipe, rank.units, rank.units.of(place)), boundary, reducing(rank.recipe, rank.units, rank.kind.held)
    )


def beside(rank: Rank, live: Quantity, ends: Quantity, after: int) -> Quantity:
    """A layer's backward, the ``ends``' gradients that wait, and under FSDP2 the reduction of the layer ``after`` it."""
    return summed(live, ends, reduced_before(rank.recipe, rank.units, rank.units.of(after)))


def whole_at_the_loss(rank: Rank, *, again: bool) -> Quantity:
    """What is whole at the loss: the ends, and the last block where it is gathered ``again`` as backward begins.

    FSDP2 gathers it when its unit's backward, or the root's, begins; FSDP1 with the root's, before whatever ran last in
    forward, which is an adapter's unit where a dense layer stands before the head. Sources: torch 2.13,
    distributed/fsdp/_fully_shard/_fsdp_state.py (_pre_backward hangs on the unit's outputs), _runtime_utils.py
    (_pre_backward_hook).
    """
    recipe, kind = rank.recipe, rank.recipe.sharding.last_at_loss
    if recipe.sharding.kind == "fsdp2":
        there = kind == "whole" or (again and kind == "backward")
    else:
        there = again and not (recipe.task.method == "adapter" and rank.kind.transforms_head)
    return gathered(recipe, rank.units, blocks=int(there), ends="head")


def adapters_come_ahead(rank: Rank) -> bool:
    """Whether the unit that FSDP1 gathers ahead is an adapter's, not a block (peft/utils/other.py, fsdp_auto_wrap_policy).

    Where a checkpoint is around the unit (transformers up to 4.52), recomputation gathers it, and the block before comes ahead.
    """
    recipe = rank.recipe
    around = recipe.recomputation.reentrant and recipe.recomputation.policy.kind == "full"
    return recipe.sharding.kind == "fsdp1" and recipe.task.method == "adapter" and not around


def root_reduced(rank: Rank) -> Iterator[tuple[str, LiveBytes]]:
    """FSDP1 reduces the root unit last: all its gradients, each and in the flat one, while it is whole and all else is cut."""
    recipe, units = rank.recipe, rank.units
    if not cuts_units(rank) or recipe.sharding.kind != "fsdp1" or recipe.sharding.separate_ends or not units.ends:
        return
    yield (
        ROOT,
        LiveBytes(
            gradients=rank.states.gradients if rank.finds_gradients else cut_gradients(rank, units.depth),
            loss=rank.loss.held,
            temporaries=flattening(recipe, units, units.ends),
            gathered=gathered(recipe, units, blocks=0, ends="embedding"),
        ),
    )


def copies_out(rank: Rank) -> Iterator[tuple[str, LiveBytes]]:
    """FSDP2's forward copies a unit out of the buffer in which it came, while that of the unit before still lives.

    Once at the first block, once at the last, and at those between that are unlike their neighbours.
    """
    layers, units = rank.layers, rank.units
    ends = (("first", 0, layers.boundary), ("last", units.depth - 1, maximum(layers.boundary, layers.waiting - layers.last_kept)))
    inner = (
        (f"{layer.place + 1}th", layer.place, layer.waiting)
        for layer in layers.between
        if rank.recipe.recomputation.policy.recomputes_layers
    )
    for name, place, waiting in (*ends, *inner):
        ahead = copied_out(rank.recipe, units, place)
        if ahead is not None:
            yield (
                f"gathering the {name} block",
                LiveBytes(
                    activations=waiting,
                    tower=rank.tower.held,
                    gathered=gathered(rank.recipe, units, blocks=1, ends="none", place=place),
                    ahead=ahead,
                ),
            )
