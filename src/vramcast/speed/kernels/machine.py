"""What a kernel law needs to know of a card, and which kernel an engine version takes on it: rows of data, first match wins.

A back end is written ``engine/kernel`` where the engine's own call around the kernel shows in the time, and by the kernel's name
alone where it does not (``cublas``). The newest row that is not newer than the version and whose conditions hold is the rule.
"""

from typing import Any

import msgspec

from vramcast.errors import UnmodelledError
from vramcast.hardware.accelerator import Accelerator, link_between

LOW_POWER_W = 80  # T4, P4, L4, A2: boards of about 70 W do not hold their rated clock under sustained tensor work (SPEED 3)
# What such a board holds of the compute share of a class without its limit: fp32 products of T4 and P4 against V100 and A100
# (sitar-lab/NeuSight@6945927, 10,831 rows; laws.json, gemm fp32). What an MI300X holds of it where it takes the law of another
# maker's card: 668 of 1,300 TFLOP/s against 795 of 989 on an H100 (stas00/ml-engineering, compute/accelerator, MAMF table).
SUSTAINED = {"low_power": {"compute": 0.5}, "cdna3": {"compute": 0.64}}
# What kernels that were timed on another maker's cards alone hold of their share on CDNA 3 and 4, by operator. Attention: vLLM's
# Triton kernel against AITER's own there (vLLM blog 2025-12-16: 1.2 to 4.4 times the tokens). An engine's own all-reduce: a mesh
# of point-to-point links for a switch. Both were chosen on 13 sources of served models (truth/speed), each of which, left out,
# would have been given the same.
OF_ANOTHER_MAKER = {"decode_attention": {"bandwidth": 0.5}, "all_reduce": {"link": 0.67}}
_FORMATS = {
    "bf16": ("bf16", "fp16", "fp16_vector", "fp32"),
    "fp16": ("fp16", "bf16", "fp16_vector", "fp32"),
    "fp8": ("fp8", "bf16", "fp16", "fp32"),
    "int8": ("int8", "fp8", "bf16", "fp16", "fp32"),
    "fp4": ("fp4", "fp8", "bf16", "fp16", "fp32"),
    "fp32": ("fp32",),
    "tf32": ("tf32", "fp32"),
}
_CLASSES = {
    "Ampere GA100": "ampere_dc",
    "Hopper": "hopper_dc",
    "Blackwell": "blackwell_dc",
    "Volta": "volta_dc",
    "CDNA3": "cdna3",
    "CDNA4": "cdna4",
    "Apple GPU": "apple",
    "Gaudi": "gaudi",
    "TPU": "tpu",
}
_CONSUMER = {"Ampere GA10x": "ampere", "Ada": "ada", "Blackwell RTX": "blackwell_rtx", "Turing": "turing", "Pascal": "pascal"}
# Where a class has no law of an operator, the classes tried next: nearest in unit design and memory kind first.
NEIGHBOURS = {
    "hopper_dc": ("blackwell_dc", "ampere_dc"),
    "blackwell_dc": ("hopper_dc", "ampere_dc"),
    "ampere_dc": ("hopper_dc", "ampere_pro", "volta_dc"),
    "volta_dc": ("ampere_dc",),
    "ampere_pro": ("ada_pro", "geforce", "blackwell_pro", "ampere_dc", "hopper_dc"),
    "ada_pro": ("blackwell_pro", "geforce", "ampere_pro", "ampere_dc", "hopper_dc"),
    "blackwell_pro": ("ada_pro", "geforce", "ampere_pro", "blackwell_dc", "hopper_dc"),
    "geforce": ("blackwell_pro", "ada_pro", "ampere_pro", "ampere_dc", "hopper_dc"),
    "low_power": ("ada_pro", "blackwell_pro", "ampere_pro", "ampere_dc"),
    "turing_pro": ("ampere_pro", "low_power", "ampere_dc"),
    "pascal": ("low_power", "volta_dc", "ampere_dc"),
    "cdna3": ("cdna4", "hopper_dc"),
    "cdna4": ("cdna3", "blackwell_dc"),
}


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A card for one number format. Every field is a number, or an array with one entry for each row of a table.

    ``units``: SMs or compute units. ``flops_per_s``: dense peak of the format. ``bandwidth_bytes_per_s``: of device memory.
    """

    units: Any
    flops_per_s: Any
    bandwidth_bytes_per_s: Any
    l2_bytes: Any = 0


def machine(card: Accelerator, number_format: str = "bf16") -> Machine:
    """The card at its dense peak for this format, or at that of the nearest wider one it has; "link" is the link to its peers.

    Raises UnmodelledError for a card without a known rate, unit count or bandwidth.
    """
    if number_format == "link":
        return Machine(units=1, flops_per_s=1.0, bandwidth_bytes_per_s=link(card))
    rate = next((card.flops[name] for name in _FORMATS[number_format] if card.flops.get(name)), 0)
    if not rate or not card.bandwidth_bytes_per_s:
        raise UnmodelledError(f"{card.name} has no known {'bandwidth' if rate else 'peak rate'}: no time can be forecast on it")
    return Machine(
        units=card.sms or 64,
        flops_per_s=rate,
        bandwidth_bytes_per_s=card.bandwidth_bytes_per_s,
        l2_bytes=card.l2_bytes,
    )


# fp32 operations of one SM, compute unit or core in a cycle (a multiply-add is two): 128 lanes, 64 on these architectures.
_HALF_LANES = ("Volta", "Turing", "Ampere GA100", "CDNA", "CDNA2")


# A shift goes to 64 lanes of an SM: all of Turing's, Volta's and the A100's, half of the others' (CUDA C++ Programming Guide,
# throughput of arithmetic instructions).
_ALL_SHIFT = ("Turing", "Turing GTX", "Volta", "Ampere GA100")


def shifts_per_s(card: Accelerator) -> float:
    """32-bit shifts per second, counted as fp32 operations are (two a lane and cycle); 0 where it is not known."""
    share = 0.5 if card.vendor == "NVIDIA" and card.architecture not in _ALL_SHIFT else 1.0
    return card.flops.get("fp32", 0.0) * share


# Boards whose GDDR6 keeps its error-correcting code in the same memory give a sixteenth of their capacity to it, and read it with
# the data: A40 and L40S reach 7 % less than boards without (llama-bench of May 2024, F16 of an 8B model).
_CODED, _ECC_CAPACITY = 0.93, 0.95


def readable_bytes_per_s(card: Accelerator) -> float:
    """The card's bandwidth less what an error-correcting code in the same memory takes."""
    coded = card.memory_type.startswith("GDDR") and card.visible_bytes < _ECC_CAPACITY * card.sold_bytes
    return card.bandwidth_bytes_per_s * (_CODED if coded else 1.0)


def cycles_per_s(card: Accelerator) -> float:
    """Cycles per second of all SMs together, from the fp32 rate; 0 where it is not known."""
    lanes = 64 if card.architecture in _HALF_LANES else 128
    return card.flops.get("fp32", 0.0) / (2 * lanes)


def link(card: Accelerator, cards: int = 2) -> float:
    """Bytes per second one way between so many cards of a machine: their direct links, the host's where these do not join them.

    Raises UnmodelledError where neither is known.
    """
    rate = link_between(card, cards)
    if not rate:
        raise UnmodelledError(f"{card.name} has no known link: no collective can be forecast on it")
    return rate


def card_class(card: Accelerator) -> str:
    """Architecture times market: the cards whose kernels share their constants (``hopper_dc``, ``ada_pro``, ``geforce``)."""
    if card.vendor == "NVIDIA" and 0 < card.tdp_w <= LOW_POWER_W and not card.unified:
        return "low_power"
    if card.architecture in _CLASSES:
        return _CLASSES[card.architecture]
    if card.architecture in _CONSUMER:
        return "geforce" if "GeForce" in card.name else f"{_CONSUMER[card.architecture]}_pro".replace("rtx_", "")
    return card.architecture.lower().replace(" ", "_")


HOPPER, BLACKWELL, CDNA = ("hopper_dc",), ("blackwell_dc",), ("cdna3", "cdna4")
_AITER = "ROCm/aiter, the kernels that vLLM and SGLang take on Instinct cards"
_VLLM_ATTENTION = "vLLM vllm/platforms/cuda.py get_valid_backends; measured kernels of 0.24"
_ROCM_ATTENTION = (
    "vLLM on ROCm: Triton's unified attention unless AITER is asked for (vLLM blog 2025-12-16); SGLang takes AITER's "
    "(server_args.py, is_hip), which nobody timed alone: the law of Triton's kernel stands for both"
)
_VLLM_LINEAR = "vLLM vllm/model_executor/kernels/linear; measured kernels of 0.24"
# FlashInfer's CUTLASS product for 4-bit floats is TensorRT-LLM's own.
_VLLM_CUTEDSL = "vLLM pull 42235 (2026-05): FlashInfer's CuTe DSL before its CUTLASS kernel for NVFP4 on Blackwell"
_VLLM_MIXER = "vLLM vllm/model_executor/layers/mamba; measured kernels of 0.24"
_VLLM_MOE = "vLLM vllm/model_executor/layers/fused_moe/oracle; measured kernels of 0.24"
_SGLANG = "SGLang python/sglang/srt/server_args.py defaults; measured kernels of 0.5.14"
_SGLANG_AUTO = (
    "SGLang server_args.py: moe_runner_backend auto is flashinfer_trtllm for listed architectures alone, in 16 bits later than "
    "in 8 and 4 (Qwen3-235B and Qwen3-Coder-Next of 0.5.6 and 0.5.8 run at Triton's time, Qwen3.5 of 0.5.9 does not)"
)
_SGLANG_OSS = (
    "SGLang server_args.py: GptOssForCausalLM takes triton_kernels' grouped product, as vLLM does; the law of SGLang's own "
    "Triton kernel is that of weights unpacked to 16 bits (layers/quantization/mxfp4.py without triton_kernels)"
)
_TRTLLM = "TensorRT-LLM tensorrt_llm/_torch; measured kernels of 1.3.0rc20"


_OWN = ("mla_module", "dsa_module", "csa_module", "convolution")  # one build for each engine: the law is filed under it


class Rule(msgspec.Struct, frozen=True):
    """From version ``since``, for these precisions, card classes and model families (none given: all), the engine takes it."""

    engine: str
    operator: str
    backend: str
    source: str
    since: tuple[int, ...] = ()
    precisions: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    families: tuple[str, ...] = ()


class Backend(msgspec.Struct, frozen=True):
    """The kernel taken and why."""

    name: str
    because: str


# 4-bit experts on Instinct: AITER's own for mxfp4 needs gfx950 (vllm/model_executor/layers/quantization/mxfp4.py), Marlin needs
# CUDA: packed integers go through Triton's fused_moe_wna16 (compressed_tensors_moe.py, moe_wna16.py).
_VLLM_ROCM = "vllm/model_executor/layers/quantization/mxfp4.py and compressed_tensors_moe.py, 0.17, on ROCm"
_4BIT = ("nvfp4",)
_MXFP4 = ("mxfp4", "mxfp4_weight_only", "mxfp4_mxfp8")
RULES = (
    Rule("vllm", "gemm", "aiter", _AITER, classes=CDNA),
    Rule("vllm", "moe", "vllm/triton", _VLLM_ROCM, (), _MXFP4, ("cdna3",)),
    Rule("vllm", "moe", "vllm/triton", _VLLM_ROCM, (), ("int4_weight_only",), CDNA),
    Rule("vllm", "moe", "aiter", _AITER, classes=CDNA),
    Rule("vllm", "recurrent_decode", "aiter/triton", _AITER, classes=CDNA),
    Rule("vllm", "decode_attention", "sglang/triton", _ROCM_ATTENTION, classes=CDNA),
    Rule("sglang", "gemm", "aiter", _AITER, classes=CDNA),
    Rule("sglang", "moe", "sglang/triton", _VLLM_ROCM, (), ("int4_weight_only",), CDNA),
    Rule("sglang", "moe", "aiter", _AITER, classes=CDNA),
    Rule("sglang", "recurrent_decode", "aiter/triton", _AITER, classes=CDNA),
    Rule("sglang", "decode_attention", "sglang/triton", _ROCM_ATTENTION, classes=CDNA),
    Rule("vllm", "gemm", "vllm/cublas", _VLLM_LINEAR, precisions=("bf16", "fp16", "fp32", "tf32")),
    Rule("vllm", "gemm", "vllm/cutlass", _VLLM_LINEAR, precisions=("fp8", "int8")),
    Rule("vllm", "gemm", "deepgemm", _VLLM_LINEAR, (0, 8, 5), ("fp8_block",), HOPPER + BLACKWELL),
    Rule("vllm", "gemm", "vllm/triton", _VLLM_LINEAR, precisions=("fp8_block",)),
    Rule("vllm", "gemm", "cutedsl", _VLLM_CUTEDSL, (0, 21), ("nvfp4", "mxfp4"), BLACKWELL),
    Rule("vllm", "gemm", "trtllm", _VLLM_CUTEDSL, precisions=("nvfp4", "mxfp4"), classes=BLACKWELL),
    Rule("vllm", "gemm", "marlin", _VLLM_LINEAR),
    Rule("vllm", "decode_attention", "vllm/fa3", _VLLM_ATTENTION, (0, 7, 2), classes=HOPPER),
    Rule("vllm", "decode_attention", "vllm/trtllm_gen", _VLLM_ATTENTION, (0, 11), classes=BLACKWELL),
    Rule("vllm", "decode_attention", "vllm/flashinfer", _VLLM_ATTENTION, precisions=("fp8",)),
    Rule("vllm", "decode_attention", "vllm/fa2", _VLLM_ATTENTION),
    Rule("vllm", "prefill_attention", "vllm/fa3", _VLLM_ATTENTION, (0, 7, 2), classes=HOPPER),
    Rule("vllm", "prefill_attention", "vllm/trtllm_gen", _VLLM_ATTENTION, (0, 11), classes=BLACKWELL),
    Rule("vllm", "prefill_attention", "vllm/flashinfer", _VLLM_ATTENTION, precisions=("fp8",)),
    Rule("vllm", "prefill_attention", "vllm/fa2", _VLLM_ATTENTION),
    Rule("vllm", "mla_decode", "sglang/fa3", _VLLM_ATTENTION, classes=HOPPER),
    Rule("vllm", "mla_decode", "sglang/trtllm_mla", _VLLM_ATTENTION, classes=BLACKWELL),
    Rule("vllm", "mla_decode", "sglang/triton", _VLLM_ATTENTION),
    Rule("vllm", "mla_prefill", "sglang/trtllm_mla", _VLLM_ATTENTION, classes=BLACKWELL),
    Rule("vllm", "mla_prefill", "sglang/fa3", _VLLM_ATTENTION),
    Rule("vllm", "moe", "vllm/trtllm_gen", _VLLM_MOE, (0, 11), ("bf16", "fp8", "fp8_block", "nvfp4", *_MXFP4), BLACKWELL),
    Rule("vllm", "moe", "vllm/cutlass", _VLLM_MOE, (0, 11), ("fp8", "fp8_block"), HOPPER),
    Rule("vllm", "moe", "vllm/cutlass", _VLLM_MOE, (0, 11), ("bf16", "fp8", "nvfp4"), ("blackwell_pro",)),
    Rule("vllm", "moe", "vllm/triton", _VLLM_MOE, (0, 10), _MXFP4, HOPPER),
    Rule("vllm", "moe", "vllm/marlin", _VLLM_MOE, precisions=(*_MXFP4, "nvfp4", "int4_weight_only")),
    Rule("vllm", "moe", "vllm/triton", _VLLM_MOE),
    Rule("vllm", "recurrent_prefill", "vllm/flashinfer", _VLLM_MIXER, (0, 16), classes=HOPPER + BLACKWELL),
    Rule("vllm", "recurrent_prefill", "vllm/triton", _VLLM_MIXER),
    Rule("vllm", "recurrent_decode", "vllm/triton", _VLLM_MIXER),
    Rule("sglang", "gemm", "sglang/cublas", _SGLANG, precisions=("bf16", "fp16", "fp32", "tf32")),
    Rule("sglang", "gemm", "sglang/cutlass", _SGLANG, precisions=("fp8", "int8")),
    Rule("sglang", "gemm", "deepgemm", _SGLANG, precisions=("fp8_block",), classes=HOPPER + BLACKWELL),
    Rule("sglang", "gemm", "vllm/triton", _SGLANG, precisions=("fp8_block",)),
    Rule("sglang", "gemm", "cutedsl", _SGLANG, precisions=("nvfp4", "mxfp4"), classes=BLACKWELL),
    Rule("sglang", "gemm", "marlin", _SGLANG),
    Rule("sglang", "decode_attention", "sglang/fa3", _SGLANG, (0, 4, 6), classes=HOPPER),
    Rule("sglang", "decode_attention", "sglang/trtllm_gen", _SGLANG, (0, 5, 3), classes=BLACKWELL),
    Rule("sglang", "decode_attention", "sglang/flashinfer", _SGLANG),
    Rule("sglang", "prefill_attention", "sglang/fa3", _SGLANG, (0, 4, 6), classes=HOPPER),
    Rule("sglang", "prefill_attention", "sglang/trtllm_gen", _SGLANG, (0, 5, 3), classes=BLACKWELL),
    Rule("sglang", "prefill_attention", "sglang/flashinfer", _SGLANG),
    Rule("sglang", "mla_decode", "sglang/fa3", _SGLANG, classes=HOPPER),
    Rule("sglang", "mla_decode", "sglang/trtllm_mla", _SGLANG, classes=BLACKWELL),
    Rule("sglang", "mla_decode", "sglang/triton", _SGLANG),
    Rule("sglang", "mla_prefill", "sglang/fa3", _SGLANG, classes=HOPPER),
    Rule("sglang", "mla_prefill", "sglang/trtllm_mla", _SGLANG, classes=BLACKWELL),
    Rule("sglang", "mla_prefill", "sglang/triton", _SGLANG),
    Rule("sglang", "moe", "sglang/triton", _SGLANG_AUTO, (), ("fp8_block",), BLACKWELL, ("minimax_m2",)),
    Rule("sglang", "moe", "sglang/trtllm_gen", _SGLANG, (0, 5, 3), ("fp8_block", "nvfp4", *_MXFP4), BLACKWELL),
    Rule("sglang", "moe", "sglang/trtllm_gen", _SGLANG_AUTO, (0, 5, 9), ("bf16",), BLACKWELL),
    Rule("sglang", "moe", "vllm/triton", _SGLANG_OSS, (), _MXFP4, HOPPER, ("gpt_oss",)),
    Rule("sglang", "moe", "sglang/cutlass", _SGLANG, precisions=_4BIT),
    Rule("sglang", "moe", "sglang/marlin", _SGLANG, precisions=("int4_weight_only",)),
    Rule("sglang", "moe", "sglang/triton", _SGLANG),
    Rule("sglang", "recurrent_prefill", "sglang/triton", _SGLANG),
    Rule("sglang", "recurrent_decode", "sglang/triton", _SGLANG),
    Rule("tensorrt_llm", "recurrent_prefill", "trtllm/triton", _TRTLLM),
    Rule("tensorrt_llm", "recurrent_decode", "trtllm/triton", _TRTLLM),
    Rule("tensorrt_llm", "gemm", "trtllm/cublas", _TRTLLM, precisions=("bf16", "fp16", "fp32", "tf32")),
    Rule("tensorrt_llm", "gemm", "deepgemm", _TRTLLM, precisions=("fp8_block",), classes=BLACKWELL),
    Rule("tensorrt_llm", "gemm", "trtllm", _TRTLLM),
    Rule("tensorrt_llm", "decode_attention", "trtllm", _TRTLLM),
    Rule("tensorrt_llm", "prefill_attention", "trtllm", _TRTLLM),
    Rule("tensorrt_llm", "mla_decode", "trtllm", _TRTLLM),
    Rule("tensorrt_llm", "mla_prefill", "trtllm", _TRTLLM),
    Rule("tensorrt_llm", "moe", "trtllm/deepgemm", _TRTLLM, precisions=("fp8_block",), classes=BLACKWELL),
    Rule("tensorrt_llm", "moe", "trtllm/cutlass", _TRTLLM),
)


def backend(
    *, engine: str = "vllm", version: tuple[int, ...] = (99,), operator: str, card: Accelerator, precision: str = "bf16",
    family: str = "",
) -> Backend:  # fmt: skip
    """The kernel that this engine version takes for an operator (the name of its law) on this card, and the rule's source.

    ``family``: of the model, where an engine's own default depends on it.

    Raises UnmodelledError where no rule of the engine covers the operator.
    """
    kind = card_class(card)
    if operator.startswith(_OWN):
        return Backend("trtllm" if engine == "tensorrt_llm" else engine, f"the module as {engine} builds it")
    for rule in RULES:
        if (rule.engine, rule.operator) == (engine, operator) and _holds(rule, version, precision, kind, family):
            since = f" from {'.'.join(map(str, rule.since))}" if rule.since else ""
            return Backend(rule.backend, f"{engine}{since} takes {rule.backend} for {precision} on {kind} ({rule.source})")
    raise UnmodelledError(f"no rule says which {operator} kernel {engine} takes: name the back end")


def _holds(rule: Rule, version: tuple[int, ...], precision: str, kind: str, family: str) -> bool:
    said = ((rule.precisions, precision), (rule.classes, kind), (rule.families, family))
    applies = all(not wanted or value in wanted for wanted, value in said)
    return applies and rule.since <= version
