"""Which layers a rank of a pipeline holds, the micro-batches in flight on it, and what waits between stages.

1F1B keeps min(micro-batches, stages - i) forward passes alive on stage i (arXiv 2104.04473, section 2.2.1); the interleaved
schedule warms up (stages - i - 1) * 2 + (v - 1) * group chunks of 1/v of a stage, a group being as many micro-batches as there
are stages unless told otherwise, and one chunk more where expert communication overlaps (Megatron-LM core 0.16.1,
pipeline_parallel/schedules.py, get_pp_rank_microbatches).

DeepSpeed's engine: 0.6.0, runtime/utils.py (partition_balanced), runtime/pipe/module.py (partition_method type:...),
runtime/pipe/engine.py: _exec_forward_pass clones its inputs, and with tensor parallelism keeps of each output the rank's own
part (PartitionedTensor, first_output.data emptied); _exec_backward_pass makes it whole again. torch 2.13,
distributed/pipelining/stage.py: _create_act_recv_info and _setup_backward_recv_info make a buffer for every micro-batch.
"""

from itertools import pairwise

import msgspec

from vramcast.errors import QuestionError
from vramcast.models.inventory import Block, Model
from vramcast.models.sharding import Stage, stage_of, whole
from vramcast.quantity import Number, minimum
from vramcast.training.recipe.parts import Recipe
from vramcast.workload import Parallel

Bounds = list[tuple[int, int]]


def stages(model: Model, parallel: Parallel, *, bounds: Bounds | None = None) -> tuple[Stage, ...]:
    """The first, a middle and the last stage (one stage without pipeline parallelism), those of ``places``.

    ``bounds``: first layer and end of each stage, when they are not cut as evenly as can be.
    Raises QuestionError when the layers cannot be cut into that many stages.
    """
    pp = parallel.pp
    if pp == 1:
        return (whole(model),)
    chunks = pp * parallel.vpp
    if model.layers < chunks:
        raise QuestionError(
            f"{model.layers} layers cannot be cut into {pp} stages of {parallel.vpp} chunks: use pp <= {model.layers}"
        )
    names = {0: "first stage", pp - 1: "last stage"}
    return tuple(
        _with_heads(
            stage_of(
                model,
                bounds[i : i + 1] if bounds else _even(model.layers, i, pp, parallel.vpp),
                name=names.get(i, "middle stage"),
                first=i == 0,
                last=i == pp - 1,
            ),
            model,
        )
        for i in places(pp)
    )


def places(pp: int) -> tuple[int, ...]:
    """The stages that differ from one another: the first, a middle one and the last."""
    return tuple(sorted({0, pp // 2, pp - 1}))


def bounds_of(model: Model, parallel: Parallel, recipe: Recipe) -> Bounds | None:
    """How the framework cuts layers into stages; None where every stage is as long as the others."""
    cut = recipe.model_parallel.stage_cut
    if cut == "even" or parallel.pp == 1:
        return None
    return balanced_bounds(model.layers, parallel.pp, ends=cut == "balanced_ends")


def balanced_bounds(layers: int, stages: int, *, ends: bool) -> Bounds:
    """First and last layer of each stage: as many as the fullest needs, one stage after another, until none is left.

    ``ends``: embedding and head count as layers of the first and the last stage (type:transformer|embedding).
    """
    counted = layers + 2 * ends
    most = -(-counted // stages)
    cuts = [min(most * i, counted) - ends for i in range(stages + 1)]
    return [(max(0, start), min(layers, stop)) for start, stop in pairwise(cuts)]


def in_flight(place: int, parallel: Parallel, recipe: Recipe, *, micro_batches: Number) -> Number:
    """Forward passes of the whole stage that wait for their backward on the stage at that place."""
    pp, vpp = parallel.pp, parallel.vpp
    if pp == 1:
        return 1.0
    if vpp == 1:
        return minimum(pp - place, micro_batches) * 1.0
    group, ahead = recipe.model_parallel.microbatch_group, int(recipe.model_parallel.overlaps_experts)
    chunks = (pp - place - 1) * 2 + (vpp - 1) * (group or pp) + 1 + ahead
    return minimum(chunks, micro_batches * vpp) / vpp


def between_stages(recipe: Recipe, stage: Stage, parallel: Parallel, *, micro_batches: Number, in_flight: Number) -> Number:
    """Hidden states that a rank's pipeline holds beside its checkpoints, counted."""
    if parallel.pp == 1:
        return 0.0
    received = micro_batches * (2 * parallel.vpp - stage.first - stage.last) if recipe.model_parallel.receives_ahead else 0
    return received + (held_tensors(stage, parallel.tp, in_flight) if recipe.model_parallel.pipeline_engine else 0.0)


def held_tensors(stage: Stage, tp: int, in_flight: Number) -> Number:
    """Hidden states that wait beside the checkpoints, counted: outputs, and inputs whose clone is what ran."""
    outputs = 0.0 if stage.last else 1 / tp
    inputs = 1.0 if tp == 1 and not stage.first else 0.0
    restored = 1.0 if tp > 1 and not stage.last else 0.0
    return in_flight * (outputs + inputs) + restored


def _with_heads(stage: Stage, model: Model) -> Stage:
    """The last stage with the layers of the multi-token-prediction heads that are built, which sit beside the output head."""
    heads = (t for t in model.towers if t.kind == "mtp" and not t.stored_only) if stage.last else ()
    more: tuple[tuple[Block, int], ...] = tuple((b, b.count) for tower in heads for b in tower.blocks)
    return msgspec.structs.replace(stage, blocks=stage.blocks + more)


def _even(layers: int, stage: int, pp: int, vpp: int) -> Bounds:
    """The chunks of one stage, every chunk as long as the others."""
    chunks = pp * vpp
    return [(layers * chunk // chunks, layers * (chunk + 1) // chunks) for chunk in range(stage, chunks, pp)]
