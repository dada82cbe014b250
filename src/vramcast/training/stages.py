"""Which layers a rank holds: pipeline stages, their ends, and the micro-batches in flight.

1F1B keeps min(micro-batches, stages - i) forward passes alive on stage i (arXiv 2104.04473, section 2.2.1); the interleaved
schedule warms up (stages - i - 1) * 2 + (v - 1) * group chunks of 1/v of a stage, a group being as many micro-batches as there
are stages unless told otherwise, and one chunk more where expert communication overlaps (Megatron-LM core 0.16.1,
pipeline_parallel/schedules.py, get_pp_rank_microbatches).
"""

import msgspec

from vramcast.errors import QuestionError
from vramcast.models.inventory import Block, Model
from vramcast.workload import Parallel


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of rank: its layers as (block, count), whether it holds the embedding and the head, and passes in flight."""

    name: str
    layers: tuple[tuple[Block, int], ...]
    embedding: bool
    head: bool
    in_flight: float = 1.0

    @property
    def depth(self) -> int:
        """Layers on this rank."""
        return sum(n for _, n in self.layers)


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
        return (Stage(name="every rank", layers=tuple((b, b.count) for b in model.blocks), embedding=True, head=True),)
    chunks = pp * parallel.vpp
    if model.layers < chunks:
        raise QuestionError(
            f"{model.layers} layers cannot be cut into {pp} stages of {parallel.vpp} chunks: use pp <= {model.layers}"
        )
    order = model.layer_list()
    names = {0: "first stage", pp - 1: "last stage"}
    wanted = sorted({0, pp // 2, pp - 1})
    return tuple(
        Stage(
            name=names.get(i, "middle stage"),
            layers=_grouped(order, bounds[i : i + 1] if bounds else _even(len(order), i, pp, parallel.vpp))
            + (_prediction(model) if i == pp - 1 else ()),
            embedding=i == 0,
            head=i == pp - 1,
            in_flight=in_flight(i, pp, parallel.vpp, micro_batches, group=group, ahead=ahead),
        )
        for i in wanted
    )


def _prediction(model: Model) -> tuple[tuple[Block, int], ...]:
    """Layers of the multi-token-prediction heads that are built, which sit beside the output head."""
    heads = (t for t in model.towers if t.kind == "mtp" and not t.stored_only)
    return tuple((b, b.count) for tower in heads for b in tower.blocks)


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


def _grouped(order: list[Block], bounds: list[tuple[int, int]]) -> tuple[tuple[Block, int], ...]:
    counts: dict[int, int] = {}
    kinds = {id(b): b for b in order}
    for start, stop in bounds:
        for block in order[start:stop]:
            counts[id(block)] = counts.get(id(block), 0) + 1
    return tuple((kinds[i], n) for i, n in counts.items())
