"""How an engine spreads a model over ranks, the layouts it refuses to start with, and the widths its expert kernels round up to.

What ``--dp`` and ``--ep`` mean:

* vLLM: data-parallel ranks are copies of all but the experts. Experts form one group of tp x dp ranks: each is cut over all of
  them, or, with expert parallelism, dealt out over all of them. vLLM has no size of its own for that: any ``--ep`` above 1
  switches it on (docs, data parallel deployment; fused_moe/config.py FusedMoEParallelConfig.make).
* SGLang: data-parallel ranks are whole replicas of tp ranks; only attention is repeated within them under data-parallel
  attention. ``--ep`` ranks are part of the tp ranks and tp / ep of them cut each expert (server_args.py, ep_size).
* TensorRT-LLM: as SGLang, moe_tensor_parallel_size x moe_expert_parallel_size is tp (mapping.py).

llama.cpp and transformers lay whole layers on cards: nothing is cut.

Experts in MXFP4 are rounded when weights are created, after tensor parallelism has cut the intermediate width. Marlin takes the
intermediate width in steps of 128 and the hidden one in steps of 256; FlashInfer's CUTLASS kernels both in 128, its TensorRT-LLM
ones both in 256, ROCm's both in 256 (vllm/model_executor/layers/fused_moe/oracle/mxfp4.py,
mxfp4_round_up_hidden_size_and_intermediate_size). Triton's take the intermediate width in steps of 64; on Hopper the values are
then laid out in tiles of 128 bytes along the axis that is summed over, 256 elements (triton_kernels, tensor_details/
layout_details/hopper_value.py). gpt-oss-120b in start-up logs: 65.97 GiB under Marlin, 64.4 under Triton on an H100, for 60.8 GiB
of checkpoint. TensorRT-LLM pads both to 128 (tensorrt_llm/_torch/modules/fused_moe/quantization.py, weight_alignment).

vLLM's order is FlashInfer's on data-centre Blackwell, Triton's on Hopper and there, and Marlin: the wheels install
``triton_kernels`` since 0.11.1 (before, vllm-project/vllm#26582). Adapters take Marlin. SGLang takes FlashInfer's on data-centre
Blackwell and Triton's elsewhere (sglang/srt/layers/quantization/mxfp4.py).
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from vramcast.errors import QuestionError
from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import Assumption
from vramcast.models.inventory import Model, by_identity
from vramcast.models.layers import Attention, Dense, Experts, LatentAttention
from vramcast.models.sharding import NO_PAD, ExpertPad, cut, is_routed, share
from vramcast.quantity import Number, is_array
from vramcast.serving.engines.base import Table, Version, at
from vramcast.serving.weights import Storage
from vramcast.units import gib
from vramcast.workload import Parallel


def even_split(layers: int, pp: int) -> tuple[int, ...]:
    """Layers per stage, the remainder given to the last stage."""
    return (layers // pp,) * (pp - 1) + (layers // pp + layers % pp,)


def middle_split(layers: int, pp: int) -> tuple[int, ...]:
    """Layers per stage, the remainder given one each from the last stage but one backwards.

    Source: vllm/distributed/utils.py get_pp_indices (since 0.7): the last stage also holds the norm and the head.
    """
    short = (*((0,) * (pp - 1 - layers % pp)), *((1,) * (layers % pp)), 0)
    return tuple(layers // pp + extra for extra in short)


def front_split(layers: int, pp: int) -> tuple[int, ...]:
    """Layers per stage, the remainder given one each to the first stages (accelerate and TensorRT-LLM)."""
    return tuple(layers // pp + (index < layers % pp) for index in range(pp))


WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64)


class Reasons(msgspec.Struct, frozen=True, kw_only=True):
    """Where an engine asserts something of a layout: heads, KV heads, widths, blocks of fp8 scales, experts to spread.

    An empty text: the engine does not assert it.
    """

    heads: str
    kv_heads: str
    widths: str = ""
    blocks: str = ""
    experts: str = ""


REASONS = {
    "vllm": Reasons(
        heads="vllm/config/model.py, verify_with_parallel_config",
        kv_heads="model_executor/layers/linear.py, QKVParallelLinear; the model's attention asserts the same",
        widths="distributed/utils.py, divide",
        blocks="model_executor/layers/quantization/fp8.py, create_weights",
        experts="vllm/config/model.py, verify_with_parallel_config",
    ),
    "sglang": Reasons(
        heads="sglang/srt/layers/linear.py, divide",
        kv_heads="sglang/srt/layers/linear.py, QKVParallelLinear; the model's attention asserts the same",
        widths="sglang/srt/distributed/utils.py, divide",
        blocks="sglang/srt/layers/quantization/fp8.py, create_weights",
    ),
    "tgi": Reasons(
        heads="text_generation_server/models/custom_modeling/flash_llama_modeling.py, num_heads % num_shards",
        kv_heads="text_generation_server/models/flash_causal_lm.py, num_kv_heads // world_size",
    ),
    "lmdeploy": Reasons(
        heads="src/turbomind/models/llama/unified_attention_layer.cc, head_num % tp_size",
        kv_heads="src/turbomind/models/llama/unified_attention_layer.cc, head_num % kv_head_num",
    ),
    "tensorrt_llm": Reasons(
        heads="tensorrt_llm/_torch/modules/attention.py", kv_heads="tensorrt_llm/models/convert_utils.py, dup_kv_weight"
    ),
}


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that cut attention, ranks over which experts are dealt out, and ranks that cut each expert."""

    attention: int
    experts: int = 1
    each_expert: int = 1


def spread_of(engine: str, parallel: Parallel, options: Mapping[str, Any]) -> Spread:
    """How the engine spreads experts under these flags. Raises QuestionError where ep does not divide what it has to."""
    spreads = bool(options.get("enable_expert_parallel")) or parallel.ep > 1
    if engine == "vllm":
        group = expert_group(parallel, options)
        return Spread(attention=parallel.tp, experts=group if spreads else 1, each_expert=1 if spreads else group)
    repeats = (options.get("dp_size") or 1) if options.get("enable_dp_attention") else 1
    return _of_tp_ranks(engine, parallel, spreads=spreads, attention=max(1, parallel.tp // repeats))


def expert_group(parallel: Parallel, options: Mapping[str, Any]) -> int:
    """Ranks that vLLM's experts belong to: tp x dp."""
    return parallel.tp * max(options.get("data_parallel_size") or 1, parallel.dp)


def _of_tp_ranks(engine: str, parallel: Parallel, *, spreads: bool, attention: int) -> Spread:
    """Experts belong to the tp ranks: ``ep`` shares of them, each cut over tp / ep ranks; a flag without a number means all."""
    tp = parallel.tp
    shares = parallel.ep if parallel.ep > 1 else tp if spreads else 1
    if tp % shares:
        raise QuestionError(
            f"{engine} spreads experts over its tensor parallel ranks, so ep has to divide tp: ep={shares}, tp={tp}; "
            f"use --tp {shares} --ep {shares}"
        )
    return Spread(attention=attention, experts=shares, each_expert=tp // shares)


def check_layout(engine: str, version: str, model: Model, spread: Spread) -> None:
    """Raises QuestionError for what the engine refuses to cut, with its reason and the sizes that would do."""
    reasons = REASONS[engine]
    named = f"{engine} {version}"
    if reasons.experts and spread.experts > 1 and not has_experts(model):
        raise QuestionError(f"{named} spreads experts, and this model has none ({reasons.experts}): leave --ep out")
    _check_heads(named, reasons, model, spread.attention)
    scales = _scale_block(model)
    for what, width, ranks in _widths(model, spread):
        if reasons.widths and width % ranks:
            raise QuestionError(
                f"{named} needs {what} widths divisible by the ranks that cut them: {width}, {ranks} ranks ({reasons.widths})"
            )
        if reasons.blocks and ranks > 1 and scales and (width // ranks) % scales:
            more = "; deal experts out instead: --enable-expert-parallel" if what == "expert" else ""
            raise QuestionError(
                f"{named} needs each rank's part of a matrix to be whole blocks of fp8 scales: {what} width {width} / {ranks} "
                f"ranks = {width // ranks}, blocks of {scales} ({reasons.blocks}){more}"
            )


def check_context_ranks(model: Model, ranks: int, tp: Number) -> None:
    """Raises QuestionError where vLLM refuses decode context parallelism: it uses the tensor-parallel ranks that repeat KV heads.

    Source: vllm/config/parallel.py (tp is a multiple of it) and vllm/config/model.py, verify_with_parallel_config: without latent
    attention tp has to exceed the KV heads, and at most tp / KV heads ranks share a sequence.
    """
    if ranks == 1 or is_array(tp):
        return
    asked = f"decode_context_parallel_size is {ranks}"
    if tp % ranks:
        raise QuestionError(f"{asked}: vLLM wants it to divide tp, which is {tp}")
    keys = min(_units(model)[1], default=1)
    if tp // keys < ranks:
        raise QuestionError(
            f"{asked}: vLLM shares a sequence among ranks that hold the same KV heads, of which {keys} KV heads on tp={tp} have "
            f"{max(1, tp // keys)}; use --tp {keys * ranks} or leave it out"
        )


def _widths(model: Model, spread: Spread) -> Iterator[tuple[str, int, int]]:
    """What is cut besides heads: its name, its width, and over how many ranks."""
    for block in model.blocks:
        kind = block.feedforward
        if isinstance(kind, Experts):
            yield "expert", kind.intermediate, spread.each_expert
        elif isinstance(kind, Dense):
            yield "MLP", kind.intermediate, spread.attention


def has_experts(model: Model) -> bool:
    """Whether any layer is a mixture of experts."""
    return any(isinstance(block.feedforward, Experts) for block in model.blocks)


def _check_heads(named: str, reasons: Reasons, model: Model, tp: int) -> None:
    heads, keys = _units(model)
    for count in heads:
        if count % tp:
            raise QuestionError(
                f"{named} needs attention heads divisible by tensor parallel size: {count} heads, tp={tp} ({reasons.heads}); "
                f"use tp of {_usable(model)}"
            )
    for count in keys:
        if not _cuts(count, tp):
            raise QuestionError(
                f"{named} needs key-value heads divisible by tensor parallel size, or it by them: {count} heads, tp={tp} "
                f"({reasons.kv_heads}); use tp of {_usable(model)}"
            )


@by_identity()
def _units(model: Model) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The numbers of query heads and of key-value heads that its layers have, each ascending."""
    mixers = [m for block in model.blocks for m in block.mixers]
    heads = {m.heads for m in mixers if isinstance(m, Attention | LatentAttention)}
    return tuple(sorted(heads)), tuple(sorted({m.kv_heads for m in mixers if isinstance(m, Attention)}))


def _usable(model: Model) -> str:
    heads, keys = _units(model)
    return ", ".join(str(n) for n in WIDTHS if all(h % n == 0 for h in heads) and all(_cuts(k, n) for k in keys))


def _cuts(units: int, ranks: int) -> bool:
    """Whether units are dealt out evenly, or each is repeated on equally many ranks."""
    return units % ranks == 0 or ranks % units == 0


def _scale_block(model: Model) -> int:
    """Rows that share a scale in a checkpoint of fp8 blocks, 0 in any other."""
    config = model.quantization or {}
    blocks = config.get("weight_block_size") if config.get("quant_method") == "fp8" else None
    return int(blocks[0]) if isinstance(blocks, list | tuple) and blocks else 0


INSTALLS_TRITON_KERNELS: Table[bool] = (((0,), False), ((0, 11, 1), True))


class ExpertKernel(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel: the widths it wants, and whether it works in the workspace that vLLM's modular experts share."""

    name: str
    pad: ExpertPad
    workspace: bool = True


MARLIN = ExpertKernel(name="Marlin", pad=ExpertPad(gate_up=(128, 256), down=(128, 256)))
CUTLASS = ExpertKernel(name="FlashInfer CUTLASS", pad=ExpertPad(gate_up=(128, 128), down=(128, 128)))
TRTLLM_GEN = ExpertKernel(name="FlashInfer TRT-LLM", pad=ExpertPad(gate_up=(256, 256), down=(256, 256)), workspace=False)
TRITON = ExpertKernel(name="Triton", pad=ExpertPad(gate_up=(64, 1), down=(64, 1)), workspace=False)
TRITON_HOPPER = ExpertKernel(name="Triton", pad=ExpertPad(gate_up=(64, 256), down=(256, 1)), workspace=False)
ROCM = ExpertKernel(name="ROCm", pad=ExpertPad(gate_up=(256, 256), down=(256, 256)))
# SGLang's NVFP4 experts: rows of swizzled block scales come in 128 (sglang/srt/layers/quantization/modelopt_quant.py)
SGLANG_NVFP4 = ExpertKernel(name="CUTLASS", pad=ExpertPad(gate_up=(128, 1), down=(128, 1)))
# vLLM's NVFP4 experts without a gate, likewise; gated ones of such widths are refused there, and Marlin takes them as they are
# (vllm/model_executor/layers/quantization/utils/flashinfer_fp4_moe.py prepare_nvfp4_moe_layer_for_fi_or_cutlass)
FLASHINFER_NVFP4 = ExpertKernel(name="FlashInfer CUTLASS", pad=ExpertPad(gate_up=(128, 1), down=(128, 1)))
TENSORRT_LLM = ExpertKernel(name="TensorRT-LLM", pad=ExpertPad(gate_up=(128, 128), down=(128, 128)), workspace=False)
# vLLM's --moe-backend and SGLang's --moe-runner-backend by what they select
BY_FLAG = {
    "marlin": MARLIN, "triton": TRITON, "triton_kernel": TRITON, "flashinfer_cutlass": CUTLASS,
    "flashinfer_cutlass_afp8": CUTLASS, "flashinfer_trtllm": TRTLLM_GEN, "flashinfer_trtllm_afp8": TRTLLM_GEN,
    "flashinfer_mxfp4": TRTLLM_GEN,
}  # fmt: skip


def vllm_kernel(
    model: Model, storage: Storage, card: Accelerator | None, version: Version, options: Mapping[str, Any]
) -> tuple[ExpertKernel | None, ExpertKernel | None]:
    """What a start of vLLM takes for the model's experts, and the next in its order where that depends on what is installed."""
    generation = generation_of(card)
    if not _applies(storage, card):
        plain = generation < _MULTIPLIES_NVFP4 or options.get("moe_backend") == "marlin" or not _ungated_nvfp4(model, storage)
        return (None if plain else FLASHINFER_NVFP4), None
    triton = TRITON_HOPPER if generation == 9 else TRITON
    asked = BY_FLAG.get(str(options.get("moe_backend")))
    if asked:
        return (triton if asked is TRITON else asked), None
    if generation == 0:
        return ROCM, None
    if options.get("enable_lora") or generation not in (9, 10):
        return MARLIN, None
    if generation == 10:
        return TRTLLM_GEN, triton
    return (triton, MARLIN) if at(version, INSTALLS_TRITON_KERNELS) else (MARLIN, triton)


_MULTIPLIES_NVFP4 = 10


def _ungated_nvfp4(model: Model, storage: Storage) -> bool:
    """Whether routed experts are in NVFP4 and have no gate."""
    ungated = any(isinstance(b.feedforward, Experts) and not b.feedforward.gated for b in model.blocks)
    return ungated and storage.expert_format(model) == "nvfp4"


def sglang_kernel(storage: Storage, card: Accelerator | None, options: Mapping[str, Any]) -> ExpertKernel | None:
    """What a start of SGLang takes for the model's experts in MXFP4."""
    if not _applies(storage, card):
        return None
    generation = generation_of(card)
    asked = BY_FLAG.get(str(options.get("moe_runner_backend")), TRTLLM_GEN if generation == 10 else TRITON)
    return TRITON_HOPPER if asked is TRITON and generation == 9 else ROCM if generation == 0 else asked


def tensorrt_llm_kernel(storage: Storage) -> ExpertKernel | None:
    """TensorRT-LLM's, whatever the card."""
    return TENSORRT_LLM if storage.name == "mxfp4" else None


def pad_of(kernel: ExpertKernel | None) -> ExpertPad:
    """The widths a kernel wants; those of the checkpoint where none is known."""
    return kernel.pad if kernel else NO_PAD


def named_kernel(
    model: Model, storage: Storage, kernel: ExpertKernel | None, other: ExpertKernel | None, ranks: int
) -> tuple[Assumption, ...]:
    """What the answer says of the kernel it assumed: its padding on one of ``ranks``, and what the other one would take."""
    if kernel is None:
        return ()
    plain = routed_bytes(model, storage, NO_PAD)
    own = routed_bytes(model, storage, kernel.pad) - plain
    because = f"kernels of that version and card; it pads experts by {gib(round(own / ranks))} a rank"
    if other is not None:
        more = (routed_bytes(model, storage, other.pad) - plain - own) / ranks
        than = f"{gib(round(abs(more)))} {'more' if more >= 0 else 'less'}"
        because += f"; where it is not installed, {other.name} is taken and needs {than}"
    return (Assumption("moe_backend", kernel.name, because),)


@by_identity(2, most=64)
def routed_bytes(model: Model, storage: Storage, pad: ExpertPad) -> float:
    """Bytes of all routed experts in those widths, uncut."""
    routed = ((tensor, block) for block in model.blocks for tensor in block.tensors if is_routed(tensor))
    layout = cut(1, expert_pad=pad)
    return sum(storage.share_bytes(tensor, share(tensor, layout), block=block) * block.count for tensor, block in routed)


def _applies(storage: Storage, card: Accelerator | None) -> bool:
    return storage.name == "mxfp4" and card is not None and (card.capability is not None or bool(card.target))


def generation_of(card: Accelerator | None) -> int:
    """The major compute capability, 0 for AMD's cards."""
    return card.capability[0] if card is not None and card.capability else 0
