"""A tensor's share of one rank, and the layers of a pipeline stage: the one rule that serving, training and speed ask.

Tensor parallelism cuts an axis in whole units (a KV head, a query head, or a single row or column): a rank holds ceil(units /
tp) of them, so that once ranks outnumber units each unit is replicated over tp / units ranks. A tensor that joins several parts
(q, k and v in one) is cut part by part. Expert parallelism deals whole experts out, whether they lie apart (``copies``) or along
the first axis of one tensor (``stacked``), and ``expert_tp`` ranks cut each of them. Vocabulary rows are padded to a multiple
before they are cut.

All of it is integer arithmetic without a condition on the layout, so that its fields may be numbers or arrays of numbers. Where
ranks hold unequal shares (units that do not divide), the largest is meant: it decides whether a card is full. Engines that
refuse such a layout do so before they ask.

Sources: Megatron-LM, arXiv 1909.08053, section 3 (columns and rows); vllm/model_executor/layers/linear.py QKVParallelLinear (KV
heads replicated); vllm/model_executor/layers/vocab_parallel_embedding.py pad_vocab_size.

Pipeline stages: which layers and which ends of a model one kind of rank holds.

Tensor-parallel ranks of a stage hold equal shares, so an answer needs one rank per distinct stage. Which layers go to which
stage is each engine's and framework's own rule (a ``Split``, or ranges of layers); what stands beside the layers is the same for
all: embeddings on the first stage, the last norm and the head on the last, and weights that several layers share on every stage.
"""

from collections.abc import Callable, Sequence
from math import prod

import msgspec

from vramcast.errors import QuestionError
from vramcast.models.inventory import Block, Model, Tensor, by_identity

VOCABULARY = ("embedding", "head")
ATTENTION = frozenset({"q", "k", "v", "qkv", "o"})


class ExpertPad(msgspec.Struct, frozen=True, kw_only=True):
    """Multiples that kernels round a rank's experts up to: of the axis that is cut and of the other one, by projection."""

    gate_up: tuple[int, int] = (1, 1)
    down: tuple[int, int] = (1, 1)


NO_PAD = ExpertPad()


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Over how many ranks tensors are spread. ``cut`` makes the plain one, where as many ranks cut everything.

    ``tp``: ranks that cut a layer; ``attention_tp``: ranks that cut its attention; ``ep``: ranks over which experts are dealt
    out; ``expert_tp``: ranks that cut each expert; ``vocab_multiple``: vocabulary rows are padded to a multiple of it first.
    ``expert_pad``: multiples that kernels pad a rank's experts to.
    """

    tp: int = 1
    attention_tp: int = 1
    ep: int = 1
    expert_tp: int = 1
    vocab_multiple: int = 1
    expert_pad: ExpertPad = NO_PAD


def cut(
    tp: int,
    *,
    attention_tp: int | None = None,
    ep: int = 1,
    expert_tp: int | None = None,
    vocab_multiple: int = 1,
    expert_pad: ExpertPad = NO_PAD,
) -> Layout:
    """The layout of ``tp`` ranks that cut everything; experts and attention too where nothing else is said of them."""
    return Layout(
        tp=tp,
        attention_tp=tp if attention_tp is None else attention_tp,
        ep=ep,
        expert_tp=tp if expert_tp is None else expert_tp,
        vocab_multiple=vocab_multiple,
        expert_pad=expert_pad,
    )


def share(tensor: Tensor, layout: Layout) -> int:
    """Elements of the tensor's largest share on one rank, all copies that the rank holds."""
    return prod(share_shape(tensor, layout)) * copies_held(tensor, layout)


def copies_held(tensor: Tensor, layout: Layout) -> int:
    """How many of the tensor's equal copies one rank holds: its part of the experts, or all."""
    return units_held(tensor.copies, layout.ep) if is_routed(tensor) else tensor.copies


def share_shape(tensor: Tensor, layout: Layout) -> tuple[int, ...]:
    """The shape of the largest share of one copy; experts that lie in one tensor are dealt out along its first axis."""
    axis, ranks = tensor.shard, _ranks(tensor, layout)
    shape = _dealt_out(tensor, layout, ranks) if tensor.stacked else _padded(tensor, layout)
    if axis is not None and not (axis == 0 and tensor.stacked):
        shape = (*shape[:axis], _cut(tensor, shape[axis], ranks), *shape[axis + 1 :])
    return _for_kernels(tensor, shape, layout.expert_pad) if is_routed(tensor) else shape


def _for_kernels(tensor: Tensor, shape: tuple[int, ...], pad: ExpertPad) -> tuple[int, ...]:
    """An expert's widths rounded up: the cut axis, twice over where gate and up lie along it, and the other one."""
    if pad == NO_PAD:
        return shape
    bias = tensor.role == "expert.bias"
    first = tensor.shard is not None if bias else tensor.role != "expert.down"
    along, across = pad.gate_up if first else pad.down
    halves = 2 if tensor.role.endswith("gate_up") or (bias and first) else 1
    steps = [along * halves if axis == tensor.shard else across for axis in range(len(shape))]
    kept = 1 if tensor.stacked else 0
    return (*shape[:kept], *(-(-n // step) * step for n, step in zip(shape[kept:], steps[kept:], strict=True)))


def _ranks(tensor: Tensor, layout: Layout) -> int:
    if is_routed(tensor):
        return layout.expert_tp
    return layout.attention_tp if tensor.role in ATTENTION else layout.tp


def units_held(units: int, ranks: int) -> int:
    """Indivisible units (heads, groups, experts) that the fullest of ``ranks`` holds: at least one each, so that they repeat."""
    return -(-units // ranks)


def is_routed(tensor: Tensor) -> bool:
    """Whether the tensor belongs to routed experts, which expert parallelism spreads."""
    return tensor.role.startswith("expert.")


def _dealt_out(tensor: Tensor, layout: Layout, ranks: int) -> tuple[int, ...]:
    """The first axis holds experts, each of them several rows where two axes were joined (DBRX), which may be the ones cut."""
    rows = tensor.shape[0] // tensor.stacked
    if tensor.shard == 0:
        rows = _cut(tensor, rows, ranks)
    return (units_held(tensor.stacked, layout.ep) * rows, *tensor.shape[1:])


def _padded(tensor: Tensor, layout: Layout) -> tuple[int, ...]:
    if tensor.shard != 0 or tensor.role not in VOCABULARY:
        return tensor.shape
    return (-(-tensor.shape[0] // layout.vocab_multiple) * layout.vocab_multiple, *tensor.shape[1:])


def _cut(tensor: Tensor, length: int, ranks: int) -> int:
    """The longest part of an axis: whole units of each piece, ceil(units / ranks) of them."""
    pieces = tensor.pieces or ((length, tensor.groups or length),)
    return sum(part // units * units_held(units, ranks) for part, units in pieces)


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
