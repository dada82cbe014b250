"""What pipelines hold between stages; how DeepSpeed's engine cuts layers into stages.

Sources: DeepSpeed 0.6.0, runtime/utils.py (partition_balanced), runtime/pipe/module.py (partition_method type:...),
runtime/pipe/engine.py: _exec_forward_pass clones its inputs, and with tensor parallelism keeps of each output the rank's own
part (PartitionedTensor, first_output.data emptied); _exec_backward_pass makes it whole again. torch 2.13,
distributed/pipelining/stage.py: _create_act_recv_info and _setup_backward_recv_info make a buffer for every micro-batch.
"""

from itertools import pairwise

from vramcast.models.stages import Stage
from vramcast.training.recipe.parts import Recipe
from vramcast.workload import Parallel


def balanced_bounds(layers: int, stages: int, *, ends: bool) -> list[tuple[int, int]]:
    """First and last layer of each stage: as many as the fullest needs, one stage after another, until none is left.

    ``ends``: embedding and head count as layers of the first and the last stage (type:transformer|embedding).
    """
    counted = layers + 2 * ends
    most = -(-counted // stages)
    cuts = [min(most * i, counted) - ends for i in range(stages + 1)]
    return [(max(0, start), min(layers, stop)) for start, stop in pairwise(cuts)]


def held_tensors(stage: Stage, tp: int) -> float:
    """Hidden states that wait beside the checkpoints, counted: outputs, and inputs whose clone is what ran."""
    outputs = 0.0 if stage.last else 1 / tp
    inputs = 1.0 if tp == 1 and not stage.first else 0.0
    restored = 1.0 if tp > 1 and not stage.last else 0.0
    return stage.in_flight * (outputs + inputs) + restored


def between_stages(recipe: Recipe, stage: Stage, parallel: Parallel, *, micro_batches: int) -> float:
    """Hidden states that a rank's pipeline holds beside its checkpoints, counted."""
    if parallel.pp == 1:
        return 0.0
    received = micro_batches * (2 * parallel.vpp - stage.first - stage.last) if recipe.model_parallel.receives_ahead else 0
    return received + (held_tensors(stage, parallel.tp) if recipe.model_parallel.pipeline_engine else 0.0)
