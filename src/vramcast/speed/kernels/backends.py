"""Which kernel an engine version takes for an operator on an architecture: rows of data, first match wins, overridable.

A back end is written ``engine/kernel`` where the engine's own call around the kernel shows in the time, and by the kernel's name
alone where it does not (``cublas``). The newest row that is not newer than the version and whose conditions hold is the rule.
"""

import msgspec

from vramcast.errors import UnmodelledError
from vramcast.hardware.accelerator import Accelerator
from vramcast.speed.kernels.machine import card_class

HOPPER, BLACKWELL, CDNA = ("hopper_dc",), ("blackwell_dc",), ("cdna3", "cdna4")
_AITER = "ROCm/aiter, the kernels that vLLM and SGLang take on Instinct cards"
_VLLM_ATTENTION = "vLLM vllm/platforms/cuda.py get_valid_backends; measured kernels of 0.24"
_VLLM_LINEAR = "vLLM vllm/model_executor/kernels/linear; measured kernels of 0.24"
_VLLM_MIXER = "vLLM vllm/model_executor/layers/mamba; measured kernels of 0.24"
_VLLM_MOE = "vLLM vllm/model_executor/layers/fused_moe/oracle; measured kernels of 0.24"
_SGLANG = "SGLang python/sglang/srt/server_args.py defaults; measured kernels of 0.5.14"
_TRTLLM = "TensorRT-LLM tensorrt_llm/_torch; measured kernels of 1.3.0rc20"


_OWN = ("mla_module", "dsa_module", "csa_module", "convolution")  # one build for each engine: the law is filed under it


class Rule(msgspec.Struct, frozen=True):
    """From version ``since``, for these precisions and card classes (none given: all), the engine takes ``backend``."""

    engine: str
    operator: str
    backend: str
    source: str
    since: tuple[int, ...] = ()
    precisions: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()


class Backend(msgspec.Struct, frozen=True):
    """The kernel taken and why."""

    name: str
    because: str


_4BIT = ("nvfp4",)
_MXFP4 = ("mxfp4", "mxfp4_weight_only", "mxfp4_mxfp8")
RULES = (
    Rule("vllm", "gemm", "aiter", _AITER, classes=CDNA),
    Rule("vllm", "moe", "aiter", _AITER, classes=CDNA),
    Rule("vllm", "recurrent_decode", "aiter/triton", _AITER, classes=CDNA),
    Rule("sglang", "gemm", "aiter", _AITER, classes=CDNA),
    Rule("sglang", "moe", "aiter", _AITER, classes=CDNA),
    Rule("sglang", "recurrent_decode", "aiter/triton", _AITER, classes=CDNA),
    Rule("vllm", "gemm", "cublas", _VLLM_LINEAR, precisions=("bf16", "fp16", "fp32", "tf32")),
    Rule("vllm", "gemm", "vllm/cutlass", _VLLM_LINEAR, precisions=("fp8", "int8")),
    Rule("vllm", "gemm", "deepgemm", _VLLM_LINEAR, (0, 8, 5), ("fp8_block",), HOPPER + BLACKWELL),
    Rule("vllm", "gemm", "vllm/triton", _VLLM_LINEAR, precisions=("fp8_block",)),
    Rule("vllm", "gemm", "cutedsl", _VLLM_LINEAR, precisions=("nvfp4", "mxfp4"), classes=BLACKWELL),
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
    Rule("sglang", "gemm", "cublas", _SGLANG, precisions=("bf16", "fp16", "fp32", "tf32")),
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
    Rule("sglang", "moe", "sglang/trtllm_gen", _SGLANG, (0, 5, 3), ("bf16", "fp8_block", "nvfp4", *_MXFP4), BLACKWELL),
    Rule("sglang", "moe", "sglang/cutlass", _SGLANG, precisions=_4BIT),
    Rule("sglang", "moe", "sglang/marlin", _SGLANG, precisions=("int4_weight_only",)),
    Rule("sglang", "moe", "sglang/triton", _SGLANG),
    Rule("sglang", "recurrent_prefill", "sglang/triton", _SGLANG),
    Rule("sglang", "recurrent_decode", "sglang/triton", _SGLANG),
    Rule("tensorrt_llm", "recurrent_prefill", "trtllm/triton", _TRTLLM),
    Rule("tensorrt_llm", "recurrent_decode", "trtllm/triton", _TRTLLM),
    Rule("tensorrt_llm", "gemm", "cublas", _TRTLLM, precisions=("bf16", "fp16", "fp32", "tf32")),
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
    *, engine: str = "vllm", version: tuple[int, ...] = (99,), operator: str, card: Accelerator, precision: str = "bf16"
) -> Backend:
    """The kernel that this engine version takes for an operator (the name of its law) on this card, and the rule's source.

    Raises UnmodelledError where no rule of the engine covers the operator.
    """
    kind = card_class(card)
    if operator.startswith(_OWN):
        return Backend("trtllm" if engine == "tensorrt_llm" else engine, f"the module as {engine} builds it")
    for rule in RULES:
        if (rule.engine, rule.operator) == (engine, operator) and _holds(rule, version, precision, kind):
            since = f" from {'.'.join(map(str, rule.since))}" if rule.since else ""
            return Backend(rule.backend, f"{engine}{since} takes {rule.backend} for {precision} on {kind} ({rule.source})")
    raise UnmodelledError(f"no rule says which {operator} kernel {engine} takes: name the back end")


def _holds(rule: Rule, version: tuple[int, ...], precision: str, kind: str) -> bool:
    applies = (not rule.precisions or precision in rule.precisions) and (not rule.classes or kind in rule.classes)
    return applies and rule.since <= version
