"""What a rank of a pipeline holds: its layers, the micro-batches in flight, and its elements by what happens to them.

1F1B keeps min(micro-batches, stages - i) forward passes alive on stage i (arXiv 2104.04473, section 2.2.1); the interleaved
schedule warms up (stages - i - 1) * 2 + (v - 1) * group chunks of 1/v of a stage, a group being as many micro-batches as there
are stages unless told otherwise, and one chunk more where expert communication overlaps (Megatron-LM core 0.16.1,
pipeline_parallel/schedules.py, get_pp_rank_microbatches).

DeepSpeed's engine: 0.6.0, runtime/utils.py (partition_balanced), runtime/pipe/module.py (partition_method type:...),
runtime/pipe/engine.py: _exec_forward_pass clones its inputs, and with tensor parallelism keeps of each output the rank's own
part (PartitionedTensor, first_output.data emptied); _exec_backward_pass makes it whole again. torch 2.13,
distributed/pipelining/stage.py: _create_act_recv_info and _setup_backward_recv_info make a buffer for every micro-batch.
"""

from collections.abc import Iterator
from math import prod

import msgspec

from vramcast.errors import QuestionError
from vramcast.models.classes import model_class
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.sharding import (
    Layout,
    Stage,
    copies_held,
    cut,
    is_routed,
    outer_tensors,
    share,
    share_shape,
    stage_of,
    whole,
)
from vramcast.quantity import Number, minimum
from vramcast.training.adapters.prompts import PROMPT_KINDS, prompt_shapes
from vramcast.training.adapters.tensors import beside, is_linear, once
from vramcast.training.methods import BITSANDBYTES, LAYERS_ALONE, last_layers, scale_bytes
from vramcast.training.optimizers.rules import TrainedTensor
from vramcast.training.recipe.parts import Recipe
from vramcast.training.stage_layouts import Spans, stage_spans
from vramcast.workload import Adapter, Parallel


def stages(model: Model, parallel: Parallel, *, bounds: list[Spans] | None = None) -> tuple[Stage, ...]:
    """The first, a middle and the last stage (one stage without pipeline parallelism), those of ``places``.

    ``bounds``: first layer and end of each chunk of each stage, when they are not cut as evenly as can be.
    Raises QuestionError when the layers cannot be cut into that many stages.
    """
    pp = parallel.pp
    if pp == 1:
        return (whole(model),)
    chunks = pp * parallel.vpp
    bounds = bounds or (stage_spans(model.layers, pp=pp, vpp=parallel.vpp, cut="even") if model.layers >= chunks else None)
    if bounds is None:
        raise QuestionError(
            f"{model.layers} layers cannot be cut into {pp} stages of {parallel.vpp} chunks: use pp <= {model.layers}"
        )
    names = {0: "first stage", pp - 1: "last stage"}
    return tuple(
        _with_heads(
            stage_of(
                model,
                bounds[i],
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


def bounds_of(model: Model, parallel: Parallel, recipe: Recipe) -> list[Spans] | None:
    """How the framework cuts layers into stages; None where every stage is as long as the others, or none can be cut.

    Raises QuestionError for a layout that is none of this model or of these stages.
    """
    pp, vpp = parallel.pp, parallel.vpp
    cut, written = recipe.model_parallel.stage_cut, recipe.model_parallel.stage_layout
    plain = cut == "even" and not written
    if pp == 1 or (plain and (model.layers % (pp * vpp) == 0 or model.layers < pp * vpp)):
        return None
    return stage_spans(model.layers, pp=pp, vpp=vpp, cut=cut, layout=written)


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


class Elements(msgspec.Struct, frozen=True):
    """Elements (or bytes) of dense tensors, and of experts, which fewer ranks share where experts are parallel."""

    dense: float = 0
    experts: float = 0

    @property
    def total(self) -> float:
        """All of them."""
        return self.dense + self.experts


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """Elements one rank holds before data-parallel sharding.

    ``quantized_scales``: bytes of scales, zero points and code books beside what is quantised. ``adapter_held``: floats that
    adapters keep untrained; ``shapes`` and ``adapters``: the tensors of what is trained.
    """

    trained: Elements = Elements()
    frozen: Elements = Elements()
    quantized: Elements = Elements()
    quantized_scales: Elements = Elements()
    adapter: Elements = Elements()
    adapter_held: int = 0
    shapes: tuple[TrainedTensor, ...] = ()
    adapters: tuple[TrainedTensor, ...] = ()


def count(
    model: Model, stage: Stage, parallel: Parallel, recipe: Recipe, *, adapter: Adapter | None, ranks: dict[str, int]
) -> Count:
    """Elements of this stage by what happens to them."""
    total: dict[tuple[str, bool], float] = {}
    shapes: list[TrainedTensor] = []
    layout = layout_of(parallel, recipe)
    kept_wide = frozenset(model_class(model.text_class).whole.unquantized)
    beside_layers = _left_by_packers(model, recipe)

    def add(kind: str, tensor: Tensor, amount: float) -> None:
        at = (kind, is_routed(tensor))
        total[at] = total.get(at, 0) + amount

    for tensor, copies, active in _parts(model, stage, recipe):
        elements = copies * share(tensor, layout)
        left = id(tensor) in beside_layers or (kept_wide and not kept_wide.isdisjoint(tensor.name.split(".")))
        kind = _kind(tensor, recipe, adapter, model.hidden) if (active or adapter) and not (left and adapter) else "frozen"
        add(kind, tensor, elements)
        if kind == "quantized":
            held = copies * copies_held(tensor, layout)
            add("quantized_scales", tensor, held * scale_bytes(recipe, share_shape(tensor, layout)))
        if adapter and _is_saved(tensor, adapter):  # PEFT trains a copy beside the frozen original
            add("trained", tensor, elements)
            shapes.append(_part(tensor, elements, layout))
        if kind == "trained":
            shapes.append(_part(tensor, elements, layout))
    for tensor in _tied_heads(model, stage):
        if adapter and _is_saved(tensor, adapter):
            add("trained", tensor, share(tensor, layout))
            shapes.append(_part(tensor, share(tensor, layout), layout))
    adapters = tuple(_adapters(model, stage, parallel, recipe, adapter=adapter, ranks=ranks)) if adapter else ()
    for part in adapters:
        at = ("adapter", part.of_experts)
        total[at] = total.get(at, 0) + part.elements * part.copies
    kinds = {kind: Elements(total.get((kind, False), 0), total.get((kind, True), 0)) for kind, _ in total}
    adapter_held = once(model, adapter, ranks)[1] if adapter else 0
    return Count(**kinds, shapes=tuple(shapes), adapters=adapters, adapter_held=adapter_held)


def _adapters(
    model: Model, stage: Stage, parallel: Parallel, recipe: Recipe, *, adapter: Adapter, ranks: dict[str, int]
) -> Iterator[TrainedTensor]:
    """Tensors an adapter trains on this rank: beside each weight it reaches, and once for the model."""
    transposed = model_class(model.text_class).whole.transposed
    parts = [*_parts(model, stage, recipe), *((head, 1, True) for head in _tied_heads(model, stage))]
    for tensor, copies, active in parts:
        if not active or not ranks.get(tensor.role) or len(tensor.shape) != 2:
            continue
        own = copies * tensor.copies // (parallel.ep if is_routed(tensor) else 1)
        for shape in beside(tensor, adapter, transposed=transposed, fused=recipe.kernels.fused_experts):
            yield TrainedTensor((max(1, shape[0] // parallel.tp), *shape[1:]), max(1, own), tensor.role)
    if stage.first:
        whole = (
            prompt_shapes(model, adapter.kind, adapter.sizes) if adapter.kind in PROMPT_KINDS else once(model, adapter, ranks)[0]
        )
        yield from (TrainedTensor(shape, 1, "") for shape in whole)


def _tied_heads(model: Model, stage: Stage) -> tuple[Tensor, ...]:
    """The head that a tied embedding serves as: a module of its own, which PEFT adapts or copies beside the embedding.

    Source: peft 0.21.2, tuners/tuners_utils.py: ensure_weight_tying, off unless asked for.
    """
    tied = [t for t in model.tensors if t.role == "embedding"] if model.tied and stage.last else []
    return tuple(msgspec.structs.replace(t, name="lm_head.weight", role="head") for t in tied[:1])


def _part(tensor: Tensor, elements: int, layout: Layout) -> TrainedTensor:
    """A trained tensor as this rank holds it: cut by tensor parallelism, its vocabulary padded, its experts shared out."""
    shape = share_shape(tensor, layout)
    return TrainedTensor(shape, max(1, elements // max(1, prod(shape))), tensor.role)


def _parts(model: Model, stage: Stage, recipe: Recipe) -> Iterator[tuple[Tensor, int, bool]]:
    """Tensors with copies and whether they are trained: all of them, all but frozen towers, or the last layers' alone."""
    if recipe.task.method != "partial":
        skipped = {id(t) for block, _ in stage.blocks if passed_over(block, recipe) for t in block.tensors}
        resting = skipped if recipe.sharding.kind in _TAKEN_ALONE else set()
        yield from ((tensor, n, id(tensor) not in resting) for tensor, n in _tensors(model, stage, recipe))
        yield from (
            (tensor, n, not recipe.task.freezes_towers and not rests) for tensor, n, rests in _beside(model, stage, recipe)
        )
        return
    trained = last_layers(stage, recipe.task.trainable_layers or 0)
    taken = {id(block): n for block, n in trained.blocks}
    for block, n in stage.blocks:
        active = taken.get(id(block), 0)
        yield from ((t, active, True) for t in block.tensors if active)
        yield from ((t, n - active, False) for t in block.tensors if n > active)
    bare = msgspec.structs.replace(stage, blocks=())
    yield from ((tensor, n, recipe.task.trains_ends) for tensor, n in _tensors(model, bare, recipe))
    yield from ((tensor, n, recipe.task.trains_ends and not rests) for tensor, n, rests in _beside(model, bare, recipe))


_TAKEN_ALONE = ("none", "fsdp1", "fsdp2")  # shardings in which a parameter without a gradient takes no room for one


def passed_over(block: Block, recipe: Recipe) -> bool:
    """Whether the model runs past such a layer: it reads images alone, and there are none.

    Source: transformers 5.23, models/mllama, MllamaTextModel.forward (cross_attention_states is None).
    """
    return block.cross is not None and not block.mixers and not recipe.task.images


def _tensors(model: Model, stage: Stage, recipe: Recipe) -> list[tuple[Tensor, int]]:
    """Every tensor of the stage's decoder with its number of copies; a tied head is held again by a last stage of its own."""
    held = [(t, n) for block, n in stage.blocks for t in block.tensors if t.kind != "buffer"]
    held.extend((tensor, 1) for tensor in outer_tensors(model, stage) if tensor.kind != "buffer")
    if model.tied and stage.last and stage.first and recipe.loss.tied is False:
        held.extend((t, 1) for t in model.tensors if t.role == "embedding")
    heads = (tower for tower in model.towers if stage.first and tower.kind == "mtp" and not tower.stored_only)
    held.extend(pair for tower in heads for pair in _tower(tower))
    return held


def _beside(model: Model, stage: Stage, recipe: Recipe) -> Iterator[tuple[Tensor, int, bool]]:
    """Tensors of the towers that stand beside the decoder, on the stage that embeds, and whether they rest.

    Without images no gradient reaches a vision tower, so it gets none and no optimizer state; flat buffers (DDP, FSDP1, ZeRO)
    hold room for them all the same, FSDP1 in the root alone, as their layers are units of their own. Source: torch 2.13,
    optim/adamw.py, _init_group passes over parameters without a gradient.
    """
    kind = recipe.sharding.kind
    alone = not recipe.task.images and kind in _TAKEN_ALONE
    for tower in beside_decoder(model) if stage.first else ():
        rests = alone and tower.kind == "vision"
        yield from ((tensor, 1, rests and kind != "fsdp1") for tensor in tower.tensors)  # in FSDP1's flat root
        yield from ((tensor, block.count, rests) for block in tower.blocks for tensor in block.tensors)


def beside_decoder(model: Model) -> tuple[Tower, ...]:
    """The towers that stand beside the decoder: all that are built, but for heads of further tokens."""
    return tuple(tower for tower in model.towers if tower.kind != "mtp" and not tower.stored_only)


def _tower(tower: Tower) -> list[tuple[Tensor, int]]:
    """A tower's tensors; the layers of a prediction head are counted with the stage's own."""
    blocks = () if tower.kind == "mtp" else tower.blocks
    return [(t, 1) for t in tower.tensors] + [(t, b.count) for b in blocks for t in b.tensors]


def layout_of(parallel: Parallel, recipe: Recipe) -> Layout:
    """How the framework spreads tensors: a padded vocabulary divides evenly over the ranks that cut it."""
    multiple = recipe.model_parallel.pad_vocab_to * parallel.tp if recipe.model_parallel.pad_vocab_to > 1 else 1
    return cut(parallel.tp, ep=parallel.ep, expert_tp=recipe.model_parallel.expert_tp, vocab_multiple=multiple)


# Projections that Megatron-LM's layers hold in one tensor
_PACKED = dict.fromkeys(("q", "k", "v"), "qkv") | {
    f"{of}{half}": f"{of}up" for of in ("", "expert.", "shared.") for half in ("gate", "up")
}
_BY_PLAIN_TORCH = ("router", "embedding", "norm", "patch", "position")


def placeholder_elements(model: Model, stage: Stage, parallel: Parallel, recipe: Recipe) -> float:
    """Elements of one gradient per distinct shape of a rank's weights, packed as Megatron-LM holds them; 0 where none is kept."""
    if not recipe.precision.placeholders:
        return 0.0
    layout, shapes = layout_of(parallel, recipe), set[tuple[int, int]]()
    ends = [t for t in outer_tensors(model, stage) if t.role == "head" or (model.tied and stage.last and t.role == "embedding")]
    for tensors in (*(block.tensors for block, _ in stage.blocks), ends):
        packed: dict[str, tuple[int, int]] = {}
        for tensor in tensors:
            if len(tensor.shape) == 2 and (tensors is ends or not tensor.role.startswith(_BY_PLAIN_TORCH)):
                rows, columns = share_shape(tensor, layout)
                name = _PACKED.get(tensor.role, tensor.name)
                packed[name] = (packed.get(name, (0, 0))[0] + rows, columns)
        shapes.update(packed.values())
    return float(sum(rows * columns for rows, columns in shapes))


def _kind(tensor: Tensor, recipe: Recipe, adapter: Adapter | None, hidden: int) -> str:
    if adapter is None and recipe.task.method != "frozen":
        return "trained"
    routed = is_routed(tensor)
    if (
        routed and recipe.kernels.fused_experts and recipe.quantization.scheme in BITSANDBYTES
    ):  # no nn.Linear (integrations/bitsandbytes.py)
        return "frozen"
    packed = recipe.kernels.splits_experts and routed and len(tensor.shape) == 3
    beside = recipe.quantization.scheme in BITSANDBYTES and _is_plain_linear(tensor, hidden)
    return "quantized" if recipe.quantization.scheme and (is_linear(tensor) or packed or beside) else "frozen"


def _left_by_packers(model: Model, recipe: Recipe) -> frozenset[int]:
    """Identities of the towers' tensors where the scheme packs the decoder's layers alone (methods.LAYERS_ALONE)."""
    if recipe.quantization.scheme not in LAYERS_ALONE:
        return frozenset()
    towers = [tower for tower in beside_decoder(model) if tower.kind != "encoder"]
    return frozenset(id(t) for tower in towers for t in (*tower.tensors, *(t for b in tower.blocks for t in b.tensors)))


def unquantized_roles(model: Model) -> frozenset[str]:
    """Roles of the matrices that the class has every quantiser leave alone."""
    names = frozenset(model_class(model.text_class).whole.unquantized)
    tensors = (t for block in model.blocks for t in block.tensors) if names else ()
    return frozenset(t.role for t in tensors if not names.isdisjoint(t.name.split(".")))


def _is_plain_linear(tensor: Tensor, hidden: int) -> bool:
    """Linear layers that bitsandbytes replaces outside the blocks: a tower's projector, the dense layer before a head.

    Source: transformers 5.23, quantizers/base.py, get_keys_to_not_convert leaves out the output embeddings and what is tied.
    """
    dense = tensor.role == "head" and tensor.shape == (hidden, hidden)
    return len(tensor.shape) == 2 and tensor.name.endswith(".weight") and (tensor.role == "projector" or dense)


_SAVED_ROLES = {"wte": "embedding", "embed_tokens": "embedding", "lm_head": "head", "output": "head"}


def trains(model: Model, recipe: Recipe, adapter: Adapter | None, *roles: str) -> bool:
    """Whether the ends of those roles are trained: with all else, by the method, or as PEFT's modules_to_save."""
    if recipe.task.method == "full" or recipe.task.trains_ends:
        return True
    ends = (*model.tensors, *_tied_heads(model, whole(model)))
    return adapter is not None and any(t.role in roles and _is_saved(t, adapter) for t in ends)


def _is_saved(tensor: Tensor, adapter: Adapter) -> bool:
    leaf = tensor.name.removesuffix(".weight").rsplit(".", 1)[-1]
    return any(leaf == m or (_SAVED_ROLES.get(m) == tensor.role and leaf != m) for m in adapter.modules_to_save)
