"""Writing a checkpoint: what is gathered on the card for it, and what the saving process holds in host memory.

Sources: torch 2.13, distributed/fsdp/_state_dict_utils.py (a full state dict unshards each unit in full precision, the root
unit around all others; rank0_only and offload_to_cpu move it to the host at once) and distributed/_state_dict_utils.py
(_gather_state_dict: FSDP2 one tensor after another); DeepSpeed 0.18.2, runtime/engine.py (_zero3_consolidated_16bit_state_dict:
one module after another) and checkpoint/utils.py (clone_tensors_for_torch_save: below ZeRO-3 every process clones its weights to
the host); accelerate 1.14, utils/fsdp_utils.py (save_fsdp_model, save_fsdp_optimizer: weights, then moments, whole on rank 0);
transformers 5, modeling_utils.py (save_pretrained serialises shards of 50 GB, of 5 GB before); torch 2.13,
distributed/checkpoint/state_dict_saver.py (async_save copies the rank's own states to the host first).
"""

from vramcast.training.counts import Count
from vramcast.training.gathers import NONE, Units, Whole, is_cut
from vramcast.training.recipe.parts import Recipe, width
from vramcast.training.states import States, largest
from vramcast.units import gib

SAVES = ("full", "device", "sharded", "async")
FILE_BYTES = 50_000_000_000  # one safetensors file of transformers 5


def gathered_to_save(recipe: Recipe, units: Units, held: Count, states: States) -> Whole:
    """Whole weights on the card at the highest point of saving."""
    if recipe.task.saves not in ("device", "full") or not is_cut(recipe, units):
        return NONE
    if recipe.task.saves == "device":
        return Whole(states.weights * units.ranks, f"the shards of {units.ranks} ranks x {gib(states.weights)}")
    each = width(recipe.precision.weights)
    if recipe.sharding.kind == "fsdp1":
        unit = units.block + units.ends
        return Whole(unit * each, f"a block inside its root unit, {unit:,.0f} x {each} B")
    most = max(largest(held), units.embedding)
    return Whole(most * each, f"the largest tensor, {most:,.0f} x {each} B")


def host_to_save(recipe: Recipe, units: Units, states: States) -> tuple[float, str]:
    """Bytes in the memory of the process that saves, and why."""
    if recipe.task.saves == "async":
        return (
            states.weights + states.master + states.optimizer,
            "this rank's weights, masters and moments, copied before writing",
        )
    if recipe.task.saves != "full":
        return 0.0, ""
    if recipe.sharding.kind in ("zero1", "zero2"):
        return states.weights, "every process clones the 16-bit weights"
    if not is_cut(recipe, units):
        return min(states.weights, FILE_BYTES), "the tensors of one file, serialised"
    moments = states.optimizer if recipe.sharding.kind != "zero3" else 0.0
    whole = max(states.weights, moments) * units.ranks
    return whole, f"the whole {'moments' if moments > states.weights else 'weights'} on rank 0"
