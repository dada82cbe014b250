"""Pipeline stages: which layers and which ends of a model one kind of rank holds.

Tensor-parallel ranks of a stage hold equal shares, so an answer needs one rank per distinct stage. Which layers go to which stage
is each engine's and framework's own rule (a ``Split``, or ranges of layers); what stands beside the layers is the same for all:
embeddings on the first stage, the last norm and the head on the last, and weights that several layers share on every stage.
"""

from collections.abc import Callable, Sequence

import msgspec

from vramcast.errors import QuestionError
from vramcast.memo import by_identity
from vramcast.models.inventory import Block, Model, Tensor

Split = Callable[[int, int], tuple[int, ...]]
"""From layers and stages to the number of layers of each stage."""

_FIRST = ("embedding", "position", "projector")
_LAST = ("head", "norm", "bias")


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of rank: its blocks with the number of their layers here, and whether it holds the ends of the model.

    ``first``: it embeds; ``last``: it holds the head. ``in_flight``: forward passes of the whole stage that wait for their
    backward at once, decided by a training schedule; 1 where there is none.
    """

    name: str
    blocks: tuple[tuple[Block, int], ...]
    first: bool = True
    last: bool = True
    in_flight: float = 1.0

    @property
    def layers(self) -> int:
        """Layers of the decoder on this stage."""
        return sum(count for _, count in self.blocks)


@by_identity(most=512)
def whole(model: Model) -> Stage:
    """The only stage of a model that no pipeline cuts."""
    return Stage(name="every rank", blocks=tuple((b, b.count) for b in model.blocks))


def stage_of(
    model: Model, spans: Sequence[tuple[int, int]], *, name: str, first: bool, last: bool, in_flight: float = 1.0
) -> Stage:
    """The stage that holds the layers from start to before stop of every span."""
    held = {i for start, stop in spans for i in range(start, stop)}
    counts = ((block, sum(i in held for i in block.indices)) for block in model.blocks)
    return Stage(name=name, blocks=tuple(pair for pair in counts if pair[1]), first=first, last=last, in_flight=in_flight)


@by_identity(most=512)
def every_stage(model: Model, pp: int, split: Split) -> tuple[Stage, ...]:
    """All stages of a pipeline in order. Raises QuestionError when there are more stages than layers."""
    if pp == 1:
        return (whole(model),)
    if pp > model.layers:
        raise QuestionError(
            f"pp is {pp} but {model.id or model.family} has {model.layers} layers: use at most one stage per layer"
        )
    stages, start = [], 0
    for index, length in enumerate(split(model.layers, pp)):
        span = (start, start + length)
        stages.append(stage_of(model, [span], name=f"stage {index} of {pp}", first=index == 0, last=index == pp - 1))
        start += length
    return tuple(stages)


@by_identity(most=512)
def distinct_stages(model: Model, pp: int, split: Split) -> tuple[Stage, ...]:
    """The stages of a pipeline that differ from one another. Raises as every_stage."""
    kinds: dict[object, Stage] = {}
    for stage in every_stage(model, pp, split):
        kinds.setdefault((stage.first, stage.last, tuple((b.name, b.indices, count) for b, count in stage.blocks)), stage)
    return tuple(kinds.values())


def outer_tensors(model: Model, stage: Stage) -> tuple[Tensor, ...]:
    """The tensors outside any block that a stage holds; a tied embedding is held again by a last stage of its own."""
    return tuple(tensor for tensor in model.tensors if _stands_on(tensor, stage, model))


def _stands_on(tensor: Tensor, stage: Stage, model: Model) -> bool:
    if tensor.role in _FIRST:
        return stage.first or (stage.last and model.tied and tensor.role == "embedding")
    return stage.last if tensor.role in _LAST else True
