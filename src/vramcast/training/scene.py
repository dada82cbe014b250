"""What one rank's training step is made of, before it is laid out in time."""

import msgspec

from vramcast.models.inventory import Model
from vramcast.models.stages import Stage
from vramcast.training.activations.policy import Layers
from vramcast.training.counts import Count
from vramcast.training.gathers import Units
from vramcast.training.loss import LossCost
from vramcast.training.reasons import Shards
from vramcast.training.recipe.parts import Recipe
from vramcast.training.states import States
from vramcast.training.towers import Sight
from vramcast.workload import Parallel


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an instant is made of.

    ``embedding_gradient``: bytes of the embedding's own gradient; ``partial_embedding``: of a whole one on every rank, which
    becomes its part afterwards.
    """

    model: Model
    recipe: Recipe
    stage: Stage
    parallel: Parallel
    held: Count
    states: States
    layers: Layers
    loss: LossCost
    units: Units
    micro_batches: int
    shards: Shards
    tokens: float
    rows: int
    sight: Sight = Sight()
    embedding_gradient: float = 0.0
    partial_embedding: float = 0.0


def finds_gradients(s: Scene) -> bool:
    """Whether the largest micro-batch begins with gradients of earlier ones, or of the step before."""
    return s.recipe.update.frees_gradients is False or (s.micro_batches > 1 and not s.recipe.task.longest_first)


def retained_inputs(s: Scene) -> float:
    """FSDP1 hooks the inputs of frozen units and keeps them, with their gradients, until backward ends.

    torch 2.13, distributed/fsdp/_runtime_utils.py: _register_post_backward_reshard_only_hook puts a multi-grad hook on the
    inputs of a unit whose parameters need no gradient (since torch 2.1). With reentrant checkpointing the hooked
    inputs are the checkpoints, whose gradients stay as well.
    """
    if s.recipe.sharding.kind != "fsdp1" or s.recipe.task.method == "full" or s.recipe.recomputation.policy.kind != "full":
        return 0.0
    return s.layers.waiting + (s.stage.layers - 2) * s.layers.boundary
