"""What full sharding puts together for a moment: gathered weights, unsharded gradients, reduction buffers.

Sources, torch 2.13: distributed/fsdp/_runtime_utils.py (FSDP1: the root unit stays after forward, its gradients are reduced
last) and fully_sharded_data_parallel.py (backward_prefetch BACKWARD_PRE: the next block is gathered before the current one's
gradients), _fully_shard/_fsdp_param_group.py (_backward_prefetch: one group ahead) and _fsdp_state.py (a root left to itself is
not resharded after forward); DeepSpeed 0.18, runtime/zero (stage 3 buckets).
A limit on live elements bounds what ZeRO-3 fetches ahead.
ZeRO++ (DeepSpeed 0.18, runtime/zero/partition_parameters.py): _partition_param_sec keeps a second copy of the weights, cut over
the ranks of a node, from the first forward until stage3.py's _post_step drops it; all_gather_coalesced with quantized weights
gathers an int8 buffer and dequantises it into a new tensor (qwZ).
"""

import msgspec

from vramcast.training.quantized import code_width
from vramcast.training.recipe.parts import Recipe, width
from vramcast.training.states import WEIGHTS_CUT

GATHERS_IN_FLIGHT = 2


class Units(msgspec.Struct, frozen=True, kw_only=True):
    """Elements of one block (and how many there are) and of the ends: input embedding and output head."""

    block: float
    depth: int
    embedding: float
    head: float
    tied: bool
    ranks: int

    @property
    def ends(self) -> float:
        """Elements of the root unit."""
        return self.embedding + (0 if self.tied else self.head)


def is_cut(recipe: Recipe, units: Units) -> bool:
    """Whether weights are sharded at all."""
    return recipe.sharding.kind in WEIGHTS_CUT and units.ranks > 1


class Whole(msgspec.Struct, frozen=True):
    """Weights put together for a moment: their bytes, and the sum with its numbers."""

    bytes: float = 0.0
    why: str = ""


NONE = Whole()


def gathered(recipe: Recipe, units: Units, *, blocks: int, ends: str) -> Whole:
    """Whole weights alive: ``blocks`` blocks, and the ``ends`` in use ("head", "embedding", "none") or, in one root unit, all."""
    if not is_cut(recipe, units):
        return NONE
    compute = width(recipe.precision.compute)
    each = code_width(recipe) or compute
    if recipe.sharding.kind == "zero3":
        return _prefetched(recipe, units, each=each, first=blocks == 1 and ends == "none")
    held = units.depth if not recipe.sharding.reshard else min(blocks, recipe.sharding.live_gathers)
    outer = _ends_in_use(recipe, units, ends)
    parts = (
        (units.block * each * held, f"{held} x a block of {units.block:,.0f} x {each:g} B"),
        (outer * compute, f"ends {outer:,.0f} x {compute} B"),
    )
    return Whole(sum(size for size, _ in parts), " + ".join(why for size, why in parts if size))


def _prefetched(recipe: Recipe, units: Units, *, each: float, first: bool) -> Whole:
    """What ZeRO-3 holds whole: all that its limit of live elements allows, but at the ``first`` block's backward that block.

    Every module's hook fetches ahead, also of modules without weights, so that prefetching outruns the pass until the limit;
    what the backward pass will take from there stays (DeepSpeed 0.19, runtime/zero/partitioned_param_coordinator.py,
    _fetch_sub_module_impl and __params_to_release; config.py: stage3_max_live_parameters 1e9).
    """
    there = units.block * units.depth + units.ends
    whole = units.block if first else min(there, max(recipe.sharding.live_elements, units.block))
    mean = (units.block * units.depth * each + units.ends * width(recipe.precision.compute)) / there
    width_bytes = each if first else mean
    coming = (units.block, f" + {units.block:,.0f} x 1 B on the way") if recipe.sharding.quantized_gathers else (0.0, "")
    return Whole(whole * width_bytes + coming[0], f"{whole:,.0f} live elements x {width_bytes:.3g} B{coming[1]}")


def guarded(recipe: Recipe, units: Units) -> float:
    """Bytes of blocks that FSDP1 has freed while events of its all-gather stream still hold them.

    Source: torch 2.13, distributed/fsdp/_limiter_utils.py: _FreeEventQueue lets two gathers be in flight;
    _runtime_utils.py, _reshard; c10/cuda/CUDACachingAllocator.cpp: a block used on another stream waits for that stream.
    """
    if recipe.sharding.kind != "fsdp1" or not is_cut(recipe, units) or not recipe.sharding.reshard:
        return 0.0
    return GATHERS_IN_FLIGHT * units.block * (code_width(recipe) or width(recipe.precision.compute))


def _ends_in_use(recipe: Recipe, units: Units, ends: str) -> float:
    """Elements of embedding and head that are whole: all of a root unit, or of separate ones those at work."""
    if not recipe.sharding.separate_ends:
        return units.ends
    return (units.embedding if ends == "embedding" or not recipe.sharding.reshard else 0) + (units.head if ends == "head" else 0)


def secondary(recipe: Recipe, elements: float, ranks: int) -> float:
    """Bytes of ZeRO++'s second partition of the weights on one of ``ranks`` ranks."""
    return elements * width(recipe.precision.compute) / ranks if recipe.sharding.kind == "zero3" and ranks > 1 else 0.0


def pending(recipe: Recipe, units: Units) -> float:
    """Unsharded gradients of the ends that wait: FSDP1 reduces the root unit at the end of backward."""
    if not is_cut(recipe, units) or recipe.task.method != "full":
        return 0.0
    if recipe.sharding.separate_ends:
        return 0.0
    return units.head * width(recipe.precision.backward_gradients)
