"""What one rank keeps in host memory: offloaded states, weights and activations in pinned pages, and what saving takes."""

from collections.abc import Iterator

from vramcast.ledger import Term
from vramcast.training.saving import host_to_save
from vramcast.training.scene import Scene
from vramcast.units import gib


def host_terms(scene: Scene) -> tuple[Term, ...]:
    """The host's ledger of one rank; empty when nothing is offloaded."""
    return tuple(
        Term(name=name, bytes=round(size), why=f"{why} = {gib(size)}, {where}", source=source)
        for name, size, why, where, source in _parts(scene)
        if size
    )


_PINNED = "pinned, per rank"
_GRADIENTS = "DeepSpeed 0.18, runtime/zero/stage_1_and_2.py: single_partition_of_fp32_groups[i].grad"


def _parts(s: Scene) -> Iterator[tuple[str, float, str, str, str]]:
    states, boundary, depth = s.states, s.layers.boundary, s.stage.layers
    share = "of this rank's share"
    yield (
        "host_optimizer",
        states.host_states,
        f"moments and masters {share}",
        _PINNED,
        "DeepSpeed 0.18, runtime/zero/offload_config.py",
    )
    yield "host_weights", states.host_weights, f"weights {share}", _PINNED, "DeepSpeed 0.18, runtime/zero/offload_config.py"
    yield "host_gradients", states.host_gradients, f"fp32 gradients {share}, for the step on the CPU", _PINNED, _GRADIENTS
    if _offloads_checkpoints(s):
        why, kept = f"inputs of {depth} layers x {gib(boundary)}", depth * boundary * s.stage.in_flight
        yield "host_activations", kept, why, _PINNED, "unsloth_zoo: offloaded gradient checkpointing"
    size, why = host_to_save(s.recipe, s.units, states)
    yield "host_checkpoint", size, why, "while it is written", "training/saving.py"


def _offloads_checkpoints(s: Scene) -> bool:
    recipe = s.recipe
    return recipe.recomputation.policy.kind == "offloaded" or (
        "activations" in recipe.sharding.offload and recipe.recomputation.policy.kind != "none"
    )
