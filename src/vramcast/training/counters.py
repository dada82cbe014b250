"""From the instants of a rank to its counters: allocated, reserved by the allocator, seen by the driver, and held on the host.

Allocated is the largest instant plus the matmul workspaces. Reserved is replayed where every event is known (replay.py); else it
follows one rule, read off runs that report both: the
caching allocator cuts its segments to the sizes of their first use, and tensors of another kind (layer temporaries, logits,
gathered blocks, gradients) seldom fit into the holes, so each kind keeps the segments of its own maximum. Batches of varying
length renew the segments of what depends on the length a few times. When the card is full the allocator gives unused segments
back and tries again (c10/cuda/CUDACachingAllocator.cpp), so reserved then ends a little above allocated. The driver sees the
context and NCCL's buffers beside them: each communicator keeps its own on the card, whatever the tensors do.

What one rank keeps in host memory: offloaded states, weights and activations in pinned pages, and what saving takes.

Sources of saving: DeepSpeed 0.18.2, checkpoint/utils.py (clone_tensors_for_torch_save: below ZeRO-3 every process clones its
weights to the host); accelerate 1.14, utils/fsdp_utils.py (save_fsdp_model, save_fsdp_optimizer: weights, then moments, whole on
rank 0); transformers 5, modeling_utils.py (save_pretrained serialises shards of 50 GB, of 5 GB before); torch 2.13,
distributed/checkpoint/state_dict_saver.py (async_save copies the rank's own states to the host first).
"""

from collections.abc import Iterator

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.hardware.runtime import context_bytes, context_term, cublas_workspace_bytes, nccl_bytes
from vramcast.ledger import Assumption, Instant, RankMemory, Term
from vramcast.models.sharding import Stage
from vramcast.quantity import (
    Number,
    Quantity,
    binding,
    bytes_,
    is_array,
    is_there,
    maximum,
    minimum,
    named,
    several,
    smallest,
    summed,
    where,
    whole,
)
from vramcast.training.full_sharding import ROOT
from vramcast.training.gathers import gather_pool, guarded, is_cut, pending, reduced_before
from vramcast.training.moment import EMBEDDING, EVALUATION, FORWARD, LOAD, STEP
from vramcast.training.recipe.parts import GATHERED, Recipe
from vramcast.training.states import NOTHING
from vramcast.training.structure import Rank, StepNumbers, Structure, retained_inputs
from vramcast.workload import Parallel

HANDLES = 2  # the forward thread and autograd's own


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """A factor that no mechanism gives: read off ``cases`` runs, in which it was ``low`` to ``high``."""

    name: str
    value: float
    low: float
    high: float
    cases: int
    of: str

    @property
    def note(self) -> Assumption:
        """The factor among what an answer assumes."""
        return Assumption(self.name, self.value, f"fitted: {self.low:g} to {self.high:g} in {self.cases} {self.of}")


GENERATIONS = Fitted(name="segment_generations", value=2.8, low=2.3, high=3.6, cases=67,
                     of="runs whose batches vary in length: longer ones renew segments that follow the length")  # fmt: skip
SLACK = Fitted(name="reserved_over_allocated", value=1.03, low=1.02, high=1.04, cases=8,
               of="replayed traces: rounding to 2 MiB and split remainders")  # fmt: skip
EXPANDABLE_SLACK = Fitted(name="expandable_over_allocated", value=1.04, low=0.76, high=1.18, cases=32,
                          of="runs of torchtitan, over what the forecast comes to with it: partly used 20 MiB pages")  # fmt: skip
# Of what lives only while loading or stepping, the share that finds no hole in what the rest leaves.
HOLE_SHARE = Fitted(name="share_without_a_hole", value=0.5, low=0.67, high=1.48, cases=40,
                    of="runs with temporaries in their step, as reserved over what the forecast comes to with it")  # fmt: skip
# Of the way from allocated to the card's end, where reserved has stood once unused segments were given back: half where one large
# block of equal batches did not fit; nearly all where the card fills in small steps, as batches get longer or as gathered blocks
# of another stream come back late.
AFTER_RETRY = Fitted(name="reserved_after_a_retry", value=0.5, low=0.1, high=0.8, cases=27,
                     of="runs that filled their card, those on one card with equal batches")  # fmt: skip
AFTER_SMALL_STEPS = Fitted(name="reserved_after_a_retry", value=0.95, low=0.8, high=1.0, cases=27,
                           of="runs that filled their card, those of varying lengths or sharded weights")  # fmt: skip
AHEAD = "gathered_ahead"
BY_LENGTH = ("loss", "temporaries")
BETWEEN_STEPS = ("loss", "temporaries", "activations")  # free when the optimizer runs
PASSING = (
    (LOAD, "weights"),
    (STEP, "temporaries"),
    (EMBEDDING, "temporaries"),
    (ROOT, "temporaries"),
)  # short-lived: they fill holes of the others


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """The three counters of one rank, bytes (or arrays of them), and the ranks of each communicator it belongs to.

    ``outside_bytes``: of the context and the communicators; ``tenant_bytes``: the share of a co-located engine;
    ``fitted``: factors that decide these figures and have no mechanism.
    """

    allocated_bytes: Number
    reserved_bytes: Number
    outside_bytes: Number
    tenant_bytes: Number
    groups: tuple[Number, ...]
    fitted: tuple[Fitted, ...] = ()

    @property
    def device_bytes(self) -> Number:
        """What the driver shows as used."""
        return whole(self.reserved_bytes + self.outside_bytes) + self.tenant_bytes


class Pieces(msgspec.Struct, frozen=True, kw_only=True):
    """What moves reserved memory and no instant shows.

    ``loss_blocks``: distinct blocks of logits over the loss's own peak. ``retained``: bytes that pile up during backward, when
    the logits' segments are free and are cut up for them. ``guarded``: freed bytes that another stream's events still hold.
    ``streams``: bytes gathered on a stream of its own, 0 where there is only one.
    """

    loss_blocks: float = 1.0
    retained: Number = 0.0
    guarded: float = 0.0
    streams: float = 0.0


def counters(
    rank: Rank, moments: tuple[Instant, ...], *, numbers: StepNumbers, card: Accelerator | None, share: float | None = None
) -> Counters:
    """The counters of a rank from the instants of its step; ``share``: reserved over allocated, where the step was replayed."""
    recipe = rank.recipe
    workspace = (HANDLES + recipe.process.workspaces) * cublas_workspace_bytes(card)
    allocated = maximum(*(i.bytes for i in moments)) + workspace
    groups = communicators(rank.structure, rank.kind.stage, numbers)
    outside = context_bytes(card, lazy=recipe.process.lazy_modules) + sum(nccl_bytes(ranks) for ranks in groups)
    if share is None:
        reserved = maximum(SLACK.value * allocated, segment_bytes(recipe, moments, pieces_of(rank)) + workspace)
    else:
        reserved = share * allocated
    varies = recipe.task.lengths == "variable"
    fitted: tuple[Fitted, ...] = (GENERATIONS,) if varies and not recipe.process.expandable else ()
    if card is not None:
        filled = AFTER_SMALL_STEPS if varies or recipe.sharding.kind in GATHERED else AFTER_RETRY
        room = card.visible_bytes - outside
        full = (reserved > room) & (room >= allocated)
        reserved = where(full, allocated + filled.value * (room - allocated), reserved)
        fitted += (filled,) if not is_array(full) and full else ()
    tenant = round(recipe.task.tenant * card.visible_bytes) if card else 0
    return Counters(
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        outside_bytes=outside,
        tenant_bytes=tenant,
        groups=groups,
        fitted=fitted,
    )


def pieces_of(rank: Rank) -> Pieces:
    """What backward piles up once the logits are free: hooked inputs, gradients of the ends; and what FSDP holds apart."""
    hooked = maximum(0.0, retained_inputs(rank) - rank.layers.waiting)
    return Pieces(
        loss_blocks=rank.loss.segments,
        retained=hooked + pending(rank.recipe, rank.units) + reduced_before(rank.recipe, rank.units, rank.units.block).value,
        guarded=guarded(rank.recipe, rank.units),
        streams=gather_pool(rank.recipe, rank.units),
    )


def segment_bytes(recipe: Recipe, moments: tuple[Instant, ...], pieces: Pieces) -> Number:
    """Sum over kinds of each kind's maximum: what the allocator ends up holding.

    What piles up during backward and finds no room in the logits' segments is cut out of the layers' temporaries, of which a
    share is then needed anew.
    """
    if recipe.process.expandable:
        return _expandable_bytes(moments, pieces.streams) + pieces.guarded
    peaks: dict[str, Number] = {}
    for moment in moments:
        for term in moment.terms:
            if (moment.name, term.name) not in PASSING and term.name != AHEAD:  # which has a stream of its own
                peaks[term.name] = maximum(peaks.get(term.name, 0), term.bytes)
    trained = maximum(0, *(t.bytes for m in moments if m.name != EVALUATION for t in m.terms if t.name == "loss"))
    peaks["loss"] = maximum(peaks.get("loss", 0), whole(trained * pieces.loss_blocks))  # an evaluation has two blocks, both told
    renewed = (GENERATIONS.value - 1 if recipe.task.lengths == "variable" else 0) * sum(peaks.get(n, 0) for n in BY_LENGTH)
    passing = sum(t.bytes - peaks.get(t.name, 0) for m in moments for t in m.terms if (m.name, t.name) == PASSING[0])
    step = sum(t.bytes for m in moments for t in m.terms if (m.name, t.name) == PASSING[1])
    roomy = minimum(peaks["loss"], pieces.retained)
    cut = peaks.get("temporaries", 0) * _crowded(roomy, pieces.retained)
    recomputes = recipe.recomputation.policy.kind != "none"
    reused = 0 if recomputes else minimum(_new_gradients(moments), peaks.get("activations", 0))
    more = (
        _stepping(recipe, peaks, step, renewed) + HOLE_SHARE.value * (maximum(0, passing) + cut) + pieces.guarded + pieces.streams
    )
    return sum(peaks.values()) - roomy - reused + renewed + more


def _crowded(roomy: Number, retained: Number) -> Number:
    """The share of what piles up that finds no room in the logits' segments; none of nothing."""
    return where(retained > 0, 1 - roomy / maximum(retained, 1), 0)


def _stepping(recipe: Recipe, peaks: dict[str, Number], step: Number, renewed: Number) -> Number:
    """What the step's temporaries need beyond the holes that forward and backward leave.

    FSDP1's shards are one block per unit, which only the logits' segments hold.
    """
    free = peaks["loss"] if recipe.sharding.kind == "fsdp1" else sum(peaks.get(n, 0) for n in BETWEEN_STEPS) + renewed
    return step - HOLE_SHARE.value * minimum(step, free)


def _expandable_bytes(moments: tuple[Instant, ...], streams: float) -> Number:
    """An expandable segment for each stream, as long as its own maximum: sharded gradients have one where reduction has."""
    if not streams:
        return EXPANDABLE_SLACK.value * maximum(*(i.bytes for i in moments))
    computing = maximum(*(i.bytes - _named(i, "gradients") - _named(i, AHEAD) for i in moments))
    return EXPANDABLE_SLACK.value * computing + maximum(*(_named(i, "gradients") for i in moments)) + streams


def _named(moment: Instant, name: str) -> Number:
    return sum(term.bytes for term in moment.terms if term.name == name)


def _new_gradients(moments: tuple[Instant, ...]) -> Number:
    """Gradients that a step makes while the activations of whole layers, none recomputed, die: they take their room."""
    sizes = {i.name: t.bytes for i in moments for t in i.terms if t.name == "gradients"}
    return maximum(0, *sizes.values()) - sizes.get(FORWARD, 0)


def communicators(structure: Structure, stage: Stage, numbers: StepNumbers) -> tuple[Number, ...]:
    """Ranks of each communicator: one per parallel axis that is used, and the world when there are several axes."""
    parallel, recipe = structure.parallel, structure.recipe
    world = maximum(numbers.gpus, numbers.dp * parallel.model_ranks)
    axes = tuple(n for n in (*_data(parallel, numbers), parallel.tp, parallel.pp, parallel.cp, parallel.ep) if several(n))
    everyone = (maximum(world, 2),) if len(axes) > 1 or (not axes and several(world)) else ()
    tied = structure.model.tied
    further = _pipeline_engine(parallel, stage, numbers, tied=tied) if recipe.model_parallel.pipeline_engine else ()
    return axes + further + everyone


def _data(parallel: Parallel, numbers: StepNumbers) -> tuple[Number, ...]:
    """Data-parallel ranks: one group, or one inside a replica and one across replicas; ZeRO++ adds the second partition's.

    Sources: torch 2.13, distributed/fsdp/_init_utils.py (_init_intra_and_inter_node_groups); torchtitan 0.3,
    distributed/parallel_dims.py (dp_replicate, dp_shard); DeepSpeed 0.18, utils/groups.py (_create_zero_param_parallel_group).
    """
    inside = (numbers.dp // numbers.replicate, numbers.replicate) if several(numbers.replicate) else (numbers.dp,)
    return (*inside, parallel.hpz)


def _pipeline_engine(parallel: Parallel, stage: Stage, numbers: StepNumbers, *, tied: bool) -> tuple[Number, ...]:
    """Communicators of DeepSpeed's pipeline engine: its own data-parallel and whole-model groups, a pair for each neighbour.

    Sources: DeepSpeed 0.6.0, runtime/pipe/topology.py (PipelineParallelGrid: a group of every rank of a replica, one per data
    axis), p2p.py (send and recv since torch 1.8, broadcasts in pairs before), module.py (tied weights); torch,
    ProcessGroupNCCL.cpp, getKeySendRecv: one communicator per pair of ranks.
    """
    data = (numbers.dp,) if several(numbers.dp) else ()
    if parallel.pp == 1:
        return data
    ends = stage.first or stage.last
    neighbours = (2,) * (1 if ends else 2) + ((2,) if tied and ends else ())
    return (*data, parallel.pp * parallel.tp, *neighbours)


def outside_terms(rank: RankMemory, found: Counters, card: Accelerator | None) -> tuple[Term, ...]:
    """What no tensor holds, as terms: with the peak's own terms they sum to what the driver shows.

    Library workspaces, the allocator's idle segments, NCCL's buffers, another program's share, the context.
    """
    idle, nccl = rank.reserved_bytes - rank.allocated_bytes, sum(nccl_bytes(ranks) for ranks in found.groups)
    context = context_term(card)
    over = ", ".join(str(ranks) for ranks in found.groups)
    parts = (
        ("workspace", rank.allocated_bytes - rank.peak.bytes, "of matrix products, for the forward's thread and autograd's",
         "ATen/cuda: CublasHandlePool.cpp"),
        ("fragmentation", idle, f"reserved, filled by no tensor: {idle / rank.allocated_bytes:.1%} of allocated",
         "c10/cuda: CUDACachingAllocator.cpp"),
        ("communication", nccl, f"NCCL, communicators over {over} ranks", "hardware/runtime.py"),
        ("tenant", found.tenant_bytes, "the engine that generates on the same card", "the task's recipe"),
        ("context", rank.device_bytes - rank.reserved_bytes - nccl - found.tenant_bytes, context.why, context.source),
    )  # fmt: skip
    return tuple(Term(name=name, bytes=size, why=why, source=source) for name, size, why, source in parts if size)


FILE_BYTES = 50_000_000_000  # one safetensors file of transformers 5
_OFFLOAD = "DeepSpeed 0.18, runtime/zero/offload_config.py"
_GRADIENTS = "DeepSpeed 0.18, runtime/zero/stage_1_and_2.py: single_partition_of_fp32_groups[i].grad"


def host_terms(rank: Rank) -> tuple[Term, ...]:
    """The host's ledger of one rank, in pinned pages but for what is written; empty when nothing is offloaded."""
    return tuple(Term(name=name, amount=size, source=source) for name, size, source in _parts(rank) if is_there(size))


def _parts(rank: Rank) -> Iterator[tuple[str, Quantity, str]]:
    states = rank.states
    yield "host_optimizer", states.host_states, _OFFLOAD
    yield "host_weights", states.host_weights, _OFFLOAD
    yield "host_gradients", states.host_gradients, _GRADIENTS
    if _offloads_checkpoints(rank):
        passes = named(rank.in_flight, "passes") * named(rank.kind.stage.layers, "layers")
        inputs = passes * bytes_(rank.layers.boundary, "of each one's input")
        yield "host_activations", inputs, "unsloth_zoo: offloaded gradient checkpointing"
    yield "host_checkpoint", _written(rank), "training/counters.py"


def _offloads_checkpoints(rank: Rank) -> bool:
    kind = rank.recipe.recomputation.policy.kind
    return kind == "offloaded" or ("activations" in rank.recipe.sharding.offload and kind != "none")


def _written(rank: Rank) -> Quantity:
    """Memory of the process that saves, while it writes."""
    recipe, states = rank.recipe, rank.states
    if recipe.task.saves == "async":
        return summed(states.weights, states.master, states.optimizer)
    if recipe.task.saves != "full":
        return NOTHING
    if recipe.sharding.kind in ("zero1", "zero2"):
        return states.weights
    if not is_cut(recipe, rank.units):
        return smallest(states.weights, bytes_(FILE_BYTES, "of one file"))
    moments = states.optimizer if recipe.sharding.kind != "zero3" else NOTHING
    larger = binding(states.weights, moments)
    what = "moments" if larger is moments else "weights"
    return larger * named(rank.units.ranks, f"shards (the whole {what} on rank 0)")
