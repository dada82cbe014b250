"""What full sharding puts together for a moment: gathered weights, unsharded gradients, reduction buffers, streams of their own.

Sources, torch 2.13: distributed/fsdp/_runtime_utils.py (FSDP1: the root unit stays after forward, its gradients are reduced
last) and fully_sharded_data_parallel.py (backward_prefetch BACKWARD_PRE: the next block is gathered before the current one's
gradients), _fully_shard/_fsdp_param_group.py (_backward_prefetch: one group ahead) and _fsdp_state.py (a root left to itself is
not resharded after forward); DeepSpeed 0.18, runtime/zero (stage 3 buckets).
A limit on live elements bounds what ZeRO-3 fetches ahead, another what it keeps.
ZeRO++ (DeepSpeed 0.18, runtime/zero/partition_parameters.py): _partition_param_sec keeps a second copy of the weights, cut over
the ranks of a node, from the first forward until stage3.py's _post_step drops it; all_gather_coalesced with quantized weights
gathers an int8 buffer and dequantises it into a new tensor (qwZ).
"""

from typing import Literal

import msgspec

from vramcast.quantity import Number, Quantity, bytes_, named, several, summed
from vramcast.training.counts import Count
from vramcast.training.methods import code_width
from vramcast.training.recipe.parts import Recipe, width
from vramcast.training.states import NOTHING, WEIGHTS_CUT, States, largest_matrix

GATHERS_IN_FLIGHT = 2
Ends = Literal["head", "embedding", "none"]


class Units(msgspec.Struct, frozen=True, kw_only=True):
    """Elements of one block (and how many there are) and of the ends: input embedding and output head; ``ranks`` share them.

    ``root``: of what stands beside them in the root unit, as towers' projectors. ``sizes``: of each block, where they differ;
    ``block`` is then the largest. A ``place`` is counted from the first, or back from the last as -1.
    """

    block: float
    depth: int
    embedding: float
    head: float
    tied: bool
    ranks: Number
    root: float = 0.0
    sizes: tuple[float, ...] = ()

    def of(self, place: int) -> float:
        """Elements of the block at that place; 0 before the first and behind the last."""
        at = place % self.depth if place < 0 else place
        if not 0 <= at < self.depth:
            return 0.0
        return self.sizes[at] if self.sizes else self.block

    def before(self, place: int) -> float:
        """Elements of the block before that place, which backward takes next."""
        return self.of(place - 1) if place else 0.0

    @property
    def blocks(self) -> float:
        """Elements of all blocks."""
        return sum(self.sizes) if self.sizes else self.block * self.depth

    def last_blocks(self, count: int) -> float:
        """Elements of so many blocks, counted from the last."""
        return sum(self.sizes[self.depth - count :]) if self.sizes else self.block * count

    @property
    def ends(self) -> float:
        """Elements of the root unit."""
        return self.embedding + (0 if self.tied else self.head) + self.root

    def last_unit(self, recipe: Recipe) -> float:
        """Elements of the unit that runs last in forward, where it is not a part of the root."""
        return self.head if recipe.sharding.separate_ends else 0.0


def is_cut(recipe: Recipe, units: Units) -> bool:
    """Whether weights are sharded at all."""
    return recipe.sharding.kind in WEIGHTS_CUT and several(units.ranks)


def gathered(recipe: Recipe, units: Units, *, blocks: int, ends: Ends, place: int = -1) -> Quantity:
    """Whole weights alive: ``blocks`` blocks back from ``place``, and the ``ends`` in use or, in one root unit, all."""
    if not is_cut(recipe, units):
        return NOTHING
    compute = width(recipe.precision.compute)
    each = code_width(recipe) or compute
    if recipe.sharding.kind == "zero3":
        return _prefetched(recipe, units, each=each, first=blocks == 1 and ends == "none")
    at_once = 1 if recipe.sharding.kind == "fsdp2" else recipe.sharding.live_gathers  # the next is in gathered_ahead
    held = units.depth if not recipe.sharding.reshard else min(blocks, at_once)
    outer = _ends_in_use(recipe, units, ends)
    return summed(
        _whole_blocks(units, held, place) * bytes_(each),
        named(outer, "elements of the ends") * bytes_(compute),
    )


def _whole_blocks(units: Units, count: int, place: int) -> Quantity:
    if not units.sizes:
        return named(count, "blocks") * named(units.block, "elements")
    if count == units.depth:
        return named(units.blocks, "elements of all blocks")
    elements = units.of(place) + (units.before(place) if count > 1 else 0)
    return named(elements if count else 0, "elements of the blocks at work")


def gathered_ahead(recipe: Recipe, units: Units, *, ends: Ends = "none", place: int = -1) -> Quantity:
    """The buffer of FSDP2's next all-gather, on a stream of its own: of the next block, or of the embedding behind the first.

    Source: torch 2.13, distributed/fsdp/_fully_shard/_fsdp_param_group.py, _backward_prefetch.
    """
    if recipe.sharding.kind != "fsdp2" or not recipe.sharding.reshard or not is_cut(recipe, units):
        return NOTHING
    apart = units.embedding if recipe.sharding.separate_ends and not recipe.kernels.one_graph else 0.0
    coming = (units.before(place) if units.sizes else units.block) if ends == "none" else apart
    return named(coming, "elements of the next unit") * bytes_(width(recipe.precision.compute), "(as it is gathered)")


def copied_out(recipe: Recipe, units: Units, place: int) -> Quantity | None:
    """The buffers that live beside a block while FSDP2's forward copies it out: its own and that of the unit before.

    Source: torch 2.13, distributed/fsdp/_fully_shard/_fsdp_param_group.py, wait_for_unshard: prev_all_gather_state, a local
    name, holds the last result until the copy is made. None under another sharding.
    """
    if recipe.sharding.kind != "fsdp2" or not recipe.sharding.reshard or recipe.kernels.one_graph or not is_cut(recipe, units):
        return None
    last = units.before(place) or (units.embedding if recipe.sharding.separate_ends else units.ends)
    buffers = named(units.of(place) + last, "elements of this unit and the one before")
    return buffers * bytes_(width(recipe.precision.compute), "(as they were gathered)")


def _prefetched(recipe: Recipe, units: Units, *, each: float, first: bool) -> Quantity:
    """What ZeRO-3 holds whole: all that it fetches ahead or keeps for its next use, but at the ``first`` block's that block.

    Every module's hook fetches ahead, also of modules without weights, so that prefetching outruns the pass until the limit of
    live elements; what is used again within the reuse distance stays whatever that limit is, the head first of all (DeepSpeed
    0.19, runtime/zero/partitioned_param_coordinator.py, _fetch_sub_module_impl and __params_to_release; config.py:
    stage3_max_live_parameters and stage3_max_reuse_distance 1e9). Held against traces with either limit lowered to 1e8.
    """
    there, sharding = units.blocks + units.ends, recipe.sharding
    ahead = sharding.live_elements if sharding.prefetch_elements else 0
    kept = max(sharding.reuse_elements, units.head) if sharding.reuse_elements else 0
    whole = units.of(0) if first else min(there, max(ahead, kept, units.block))
    mean = (units.blocks * each + units.ends * width(recipe.precision.compute)) / there
    coming = units.block if recipe.sharding.quantized_gathers else 0
    return summed(
        named(whole, "live elements") * bytes_(each if first else mean), named(coming, "elements on the way") * bytes_(1)
    )


def guarded(recipe: Recipe, units: Units) -> float:
    """Bytes of blocks that FSDP1 has freed while events of its all-gather stream still hold them.

    Source: torch 2.13, distributed/fsdp/_limiter_utils.py: _FreeEventQueue lets two gathers be in flight;
    _runtime_utils.py, _reshard; c10/cuda/CUDACachingAllocator.cpp: a block used on another stream waits for that stream.
    """
    if recipe.sharding.kind != "fsdp1" or not is_cut(recipe, units) or not recipe.sharding.reshard:
        return 0.0
    return GATHERS_IN_FLIGHT * units.block * (code_width(recipe) or width(recipe.precision.compute))


def _ends_in_use(recipe: Recipe, units: Units, ends: Ends) -> float:
    """Elements of embedding and head that are whole: all of a root unit, or of separate ones those at work."""
    if not recipe.sharding.separate_ends:
        return units.ends
    embedding = units.embedding if ends == "embedding" or not recipe.sharding.reshard else 0
    return embedding + (units.head if ends == "head" else 0) + units.root


def secondary(recipe: Recipe, held: Count, ranks: int) -> Quantity:
    """ZeRO++'s second partition of the weights on one of ``ranks`` ranks."""
    if recipe.sharding.kind != "zero3" or ranks == 1:
        return NOTHING
    elements = named(held.trained.total + held.frozen.total, "in a second copy")
    return elements * bytes_(width(recipe.precision.compute)) / named(ranks, "ranks")


def pending(recipe: Recipe, units: Units) -> float:
    """Bytes of unsharded gradients of the ends that wait: FSDP1 reduces the root unit at the end of backward."""
    if not is_cut(recipe, units) or recipe.task.method != "full" or recipe.sharding.separate_ends:
        return 0.0
    return units.head * width(recipe.precision.backward_gradients)


def reduced_before(recipe: Recipe, units: Units, elements: float) -> Quantity:
    """The buffer from which FSDP2 reduces the unit before: it lives through the next unit's backward.

    Source: torch 2.13, distributed/fsdp/_fully_shard/_fsdp_param_group.py, post_backward (comm_ctx.reduce_scatter_state is
    dropped when the next group reduces), _fsdp_collectives.py, foreach_reduce (reduce_scatter_input, in the reduce dtype).
    """
    by_hooks = recipe.sharding.kind == "fsdp2" and not recipe.kernels.one_graph
    whole = by_hooks and recipe.task.method == "full" and is_cut(recipe, units)
    return named(elements if whole else 0, "elements of the unit before") * bytes_(
        width(recipe.precision.reduce), "(being reduced)"
    )


def flattening(recipe: Recipe, units: Units, elements: float) -> Quantity:
    """Gradients of a unit under FSDP1 when its last one is there: each by itself and all of them in the flat one.

    Source: torch 2.13, distributed/fsdp/_flat_param.py, _get_unflat_views_aligned (torch.split: its backward concatenates),
    _runtime_utils.py, _reduce_grad (a copy in the reduce dtype where that differs).
    """
    whole = recipe.sharding.kind == "fsdp1" and recipe.task.method == "full" and is_cut(recipe, units)
    own, reduce = width(recipe.precision.backward_gradients), width(recipe.precision.reduce)
    each = own + max(own, reduce if reduce != own else 0)
    return named(elements if whole else 0, "elements of a unit's gradients") * bytes_(each, "(each, and all in one)")


def gathered_last(recipe: Recipe, units: Units) -> Quantity:
    """The buffer of FSDP2's last all-gather, which the root drops when the model's forward, and so its loss, is over.

    Source: torch 2.13, distributed/fsdp/_fully_shard/_fsdp_state.py, _post_forward (comm_ctx.all_gather_state).
    """
    if recipe.sharding.kind != "fsdp2" or not recipe.kernels.modules or not is_cut(recipe, units):
        return NOTHING  # a loss outside the model comes after
    last = units.last_unit(recipe) or units.of(-1)
    return named(last, "elements of the last unit") * bytes_(width(recipe.precision.compute), "(as it was gathered)")


def gathered_with_last(recipe: Recipe, units: Units) -> Quantity:
    """The buffer that FSDP2 gathered the last block into: no unit of the forward comes after it, whose wait would let it go.

    Of layers that differ, the one that needs most in forward need not be the last, and nothing is added.
    Source: torch 2.13, distributed/fsdp/_fully_shard/_fsdp_param_group.py, wait_for_unshard (comm_ctx.all_gather_state).
    """
    if recipe.sharding.kind != "fsdp2" or recipe.kernels.one_graph or units.sizes or not is_cut(recipe, units):
        return NOTHING
    return named(units.of(-1), "elements of the last block") * bytes_(width(recipe.precision.compute), "(as it was gathered)")


def reducing(recipe: Recipe, units: Units, held: Count) -> Quantity:
    """Gradients of the ends that wait, and the 4-bit copies of one gradient on its way through ZeRO++'s two all-to-alls.

    Source: DeepSpeed 0.18.2, runtime/comm/coalesced_collectives.py, all_to_all_quant_reduce: half a byte per element sent, half
    a byte received.
    """
    quantized = recipe.sharding.quantized_gradients and recipe.sharding.kind == "zero3"
    copies = named(largest_matrix(held) if quantized else 0, "elements of the largest gradient in 4 bits (sent and received)")
    return summed(bytes_(pending(recipe, units), "of the ends' gradients"), copies * bytes_(1))


def gathered_to_save(recipe: Recipe, units: Units, held: Count, states: States) -> Quantity:
    """Whole weights on the card at the highest point of writing a checkpoint.

    Sources: torch 2.13, distributed/fsdp/_state_dict_utils.py (a full state dict unshards each unit in full precision, the root
    unit around all others; rank0_only and offload_to_cpu move it to the host at once) and distributed/_state_dict_utils.py
    (_gather_state_dict: FSDP2 one tensor after another); DeepSpeed 0.18.2, runtime/engine.py
    (_zero3_consolidated_16bit_state_dict: one module after another).
    """
    if recipe.task.saves not in ("device", "full") or not is_cut(recipe, units):
        return NOTHING
    if recipe.task.saves == "device":
        return states.weights * named(units.ranks, "ranks' shards")
    each = bytes_(width(recipe.precision.weights))
    if recipe.sharding.kind == "fsdp1":
        return named(units.block + units.ends, "elements of a block inside its root unit") * each
    return named(max(largest_matrix(held), units.embedding), "elements of the largest tensor") * each


def gather_pool(recipe: Recipe, units: Units) -> float:
    """Bytes of the all-gather's own stream under FSDP2: the largest two units that follow each other.

    The caching allocator lends none of it to the stream that computes. 0 without such a stream: under another sharding, or where
    the whole step is one compiled graph. Sources: c10/cuda/CUDACachingAllocator.cpp (a free block serves its own stream alone);
    torch 2.13, distributed/fsdp/_fully_shard/_fsdp_collectives.py: foreach_all_gather makes its buffer on the copy-in stream, and
    the one before lives until it is copied out; foreach_reduce makes the sharded gradients on the reduce-scatter stream. Traces
    of torchtitan's own trainer hold 2.41 GiB and all gradients there; their reserved peaks meet the published ones within 0.8 %.
    """
    if recipe.sharding.kind != "fsdp2" or recipe.kernels.one_graph or not is_cut(recipe, units):
        return 0.0
    ends = (units.embedding, units.head) if recipe.sharding.separate_ends else (units.ends,)
    return (units.block + max(units.block, *ends)) * width(recipe.precision.compute)
