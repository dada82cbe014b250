"""What full sharding does to the moments of a backward pass: which units are whole, and whose gradients are being cut up."""

from vramcast.quantity import Quantity, bytes_, summed
from vramcast.training.gathers import flattening, gathered, is_cut, reducing
from vramcast.training.structure import Rank


def cuts_units(rank: Rank) -> bool:
    """Whether FSDP trains whole units, whose gradients it cuts one after the other; one compiled graph orders them itself."""
    recipe = rank.recipe
    sharded = recipe.sharding.kind in ("fsdp1", "fsdp2") and is_cut(recipe, rank.units)
    return sharded and recipe.task.method == "full" and not recipe.kernels.one_graph


def cut_gradients(rank: Rank, blocks: int) -> Quantity:
    """Gradients under FSDP once so many blocks are reduced, and with them the head where it is a unit of its own."""
    units = rank.units
    done = units.block * blocks + units.last_unit(rank.recipe)
    return rank.states.gradients * (done / (units.block * units.depth + units.ends))


def flat_gradients(rank: Rank) -> Quantity:
    """A block's gradients under FSDP1, each and all in one, beside the ends' that wait."""
    boundary = bytes_(rank.layers.boundary, "the gradient of its input")
    return summed(flattening(rank.recipe, rank.units), boundary, reducing(rank.recipe, rank.units, rank.kind.held))


def whole_at_the_loss(rank: Rank, *, again: bool) -> Quantity:
    """What is whole at the loss; FSDP2 gathers the last block ``again`` when its unit's backward, or the root's, begins.

    Source: torch 2.13, distributed/fsdp/_fully_shard/_fsdp_state.py (_pre_backward hangs on the unit's outputs).
    """
    sharding = rank.recipe.sharding
    there = sharding.last_at_loss == "whole" or (again and sharding.last_at_loss == "backward")
    return gathered(rank.recipe, rank.units, blocks=1 if sharding.kind != "fsdp2" or there else 0, ends="head")


def adapters_come_ahead(rank: Rank) -> bool:
    """Whether the unit that FSDP1 gathers ahead is an adapter's, not a block (peft/utils/other.py, fsdp_auto_wrap_policy).

    Where a checkpoint is around the unit (transformers up to 4.52), recomputation gathers it, and the block before comes ahead.
    """
    recipe = rank.recipe
    around = recipe.recomputation.reentrant and recipe.recomputation.policy.kind == "full"
    return recipe.sharding.kind == "fsdp1" and recipe.task.method == "adapter" and not around
