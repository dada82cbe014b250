"""Which layers a rank holds: pipeline stages, their ends, and the micro-batches in flight.

1F1B keeps min(micro-batches, stages - i) forward passes alive on stage i (arXiv 2104.04473, section 2.2.1); the interleaved
schedule warms up (stages - i - 1) * 2 + (v - 1) * group chunks of 1/v of a stage, a group being as many micro-batches as there
are stages unless told otherwise, and one chunk more where expert communication overlaps (Megatron-LM core 0.16.1,
pipeline_parallel/schedules.py, get_pp_rank_microbatches).
"""

import msgspec

from vramcast.errors import QuestionError
from vramcast.models.inventory import Block, Model
from vramcast.models.stages import Stage, stage_of, whole
from vramcast.workload import Parallel


def stages(
    model: Model,
    parallel: Parallel,
    *,
    micro_batches: int = 0,
    bounds: list[tuple[int, int]] | None = None,
    group: int = 0,
    ahead: int = 0,
) -> tuple[Stage, ...]:
    """The first, a middle and the last stage (one stage without pipeline parallelism).

    ``bounds``: first layer and end of each stage, when they are not cut as evenly as can be; ``group``: micro-batches that run
    through a chunk before the next; ``ahead``: chunks that run forward before their turn.

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
                in_flight=in_flight(i, pp, parallel.vpp, micro_batches, group=group, ahead=ahead),
            ),
            model,
        )
        for i in sorted({0, pp // 2, pp - 1})
    )


def _with_heads(stage: Stage, model: Model) -> Stage:
    """The last stage with the layers of the multi-token-prediction heads that are built, which sit beside the output head."""
    heads = (t for t in model.towers if t.kind == "mtp" and not t.stored_only) if stage.last else ()
    more: tuple[tuple[Block, int], ...] = tuple((b, b.count) for tower in heads for b in tower.blocks)
    return msgspec.structs.replace(stage, blocks=stage.blocks + more)


def in_flight(stage: int, pp: int, vpp: int = 1, micro_batches: int = 0, *, group: int = 0, ahead: int = 0) -> float:
    """Forward passes of the whole stage that wait for their backward on ``stage``."""
    if vpp == 1:
        most = pp - stage
        return float(min(most, micro_batches) if micro_batches else most)
    chunks = (pp - stage - 1) * 2 + (vpp - 1) * (group or pp) + 1 + ahead
    total = micro_batches * vpp if micro_batches else chunks
    return min(chunks, total) / vpp


def _even(layers: int, stage: int, pp: int, vpp: int) -> list[tuple[int, int]]:
    """The chunks of one stage, every chunk as long as the others."""
    chunks = pp * vpp
    return [(layers * chunk // chunks, layers * (chunk + 1) // chunks) for chunk in range(stage, chunks, pp)]
