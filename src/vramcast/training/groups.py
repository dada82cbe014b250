"""The NCCL communicators a rank belongs to: each keeps buffers of its own on the card, whatever the tensors do."""

from vramcast.models.stages import Stage
from vramcast.training.recipe.parts import Recipe
from vramcast.workload import Parallel, Training


def communicators(question: Training, recipe: Recipe, stage: Stage, *, tied: bool) -> tuple[int, ...]:
    """Ranks of each communicator: one per parallel axis that is used, and the world when there are several axes."""
    parallel = question.parallel
    axes = tuple(n for n in (*_data(parallel), parallel.tp, parallel.pp, parallel.cp, parallel.ep) if n > 1)
    world = (max(question.gpus, 2),) if len(axes) > 1 else ()
    further = _pipeline_engine(parallel, stage, tied=tied) if recipe.model_parallel.pipeline_engine else ()
    return axes + further + world or ((question.gpus,) if question.gpus > 1 else ())


def _data(parallel: Parallel) -> tuple[int, ...]:
    """Data-parallel ranks: one group, or one inside a replica and one across replicas; ZeRO++ adds the second partition's.

    Sources: torch 2.13, distributed/fsdp/_init_utils.py (_init_intra_and_inter_node_groups); torchtitan 0.3,
    distributed/parallel_dims.py (dp_replicate, dp_shard); DeepSpeed 0.18, utils/groups.py (_create_zero_param_parallel_group).
    """
    inside = (parallel.dp // parallel.replicate, parallel.replicate) if parallel.replicate > 1 else (parallel.dp,)
    return (*inside, parallel.hpz)


def _pipeline_engine(parallel: Parallel, stage: Stage, *, tied: bool) -> tuple[int, ...]:
    """Communicators of DeepSpeed's pipeline engine: its own data-parallel and whole-model groups, a pair for each neighbour.

    Sources: DeepSpeed 0.6.0, runtime/pipe/topology.py (PipelineParallelGrid: a group of every rank of a replica, one per data
    axis), p2p.py (send and recv since torch 1.8, broadcasts in pairs before), module.py (tied weights); torch,
    ProcessGroupNCCL.cpp, getKeySendRecv: one communicator per pair of ranks.
    """
    if parallel.pp == 1:
        return (parallel.dp,) if parallel.dp > 1 else ()
    ends = stage.first or stage.last
    neighbours = (2,) * (1 if ends else 2) + ((2,) if tied and ends else ())
    return (*((parallel.dp,) if parallel.dp > 1 else ()), parallel.pp * parallel.tp, *neighbours)
