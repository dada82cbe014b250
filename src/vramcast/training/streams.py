"""Memory of FSDP2's own streams: the caching allocator lends none of it to the stream that computes.

Sources: c10/cuda/CUDACachingAllocator.cpp (a free block serves its own stream alone); torch 2.13,
distributed/fsdp/_fully_shard/_fsdp_collectives.py: foreach_all_gather makes its buffer on the copy-in stream, and the one before
lives until it is copied out; foreach_reduce makes the sharded gradients on the reduce-scatter stream. Traces of torchtitan's own
trainer hold 2.41 GiB and all gradients there; their reserved peaks meet the published ones within 0.8 %.
"""

from vramcast.ledger import Instant
from vramcast.training.gathers import Units, is_cut
from vramcast.training.recipe.parts import Recipe, width


def gather_pool(recipe: Recipe, units: Units) -> float:
    """Bytes of the all-gather's stream: the largest two units that follow each other.

    0 without one: under another sharding, or where the whole step is one compiled graph.
    """
    if recipe.sharding.kind != "fsdp2" or recipe.kernels.one_graph or not is_cut(recipe, units):
        return 0.0
    ends = (units.embedding, units.head) if recipe.sharding.separate_ends else (units.ends,)
    return (units.block + max(units.block, *ends)) * width(recipe.precision.compute)


def gradients_of(moment: Instant) -> int:
    """Bytes of the gradients at an instant."""
    return sum(term.bytes for term in moment.terms if term.name == "gradients")
