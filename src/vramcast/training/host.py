"""What one rank keeps in host memory: offloaded states, weights and activations in pinned pages, and what saving takes.

Sources of saving: DeepSpeed 0.18.2, checkpoint/utils.py (clone_tensors_for_torch_save: below ZeRO-3 every process clones its
weights to the host); accelerate 1.14, utils/fsdp_utils.py (save_fsdp_model, save_fsdp_optimizer: weights, then moments, whole on
rank 0); transformers 5, modeling_utils.py (save_pretrained serialises shards of 50 GB, of 5 GB before); torch 2.13,
distributed/checkpoint/state_dict_saver.py (async_save copies the rank's own states to the host first).
"""

from collections.abc import Iterator

from vramcast.ledger import Term
from vramcast.quantity import Quantity, binding, bytes_, is_there, named, smallest, summed
from vramcast.training.gathers import is_cut
from vramcast.training.rank import Rank
from vramcast.training.states import NOTHING

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
    yield "host_checkpoint", _written(rank), "training/host.py"


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
