"""What a card computes by itself, what is emulated on it and what is refused, with the reason and its source.

A feature is a number format, a weight scheme or an attention kernel. For NVIDIA the answer follows the compute capability; for
other makers the formats of the chip. Where neither is known the verdict is ``unknown``, never a guess.
"""

import msgspec

from vramcast.errors import unknown_name
from vramcast.hardware.accelerator import Accelerator

NEVER = (99, 0)
_NAMES = {(7, 0): "Volta", (7, 5): "Turing", (8, 0): "Ampere", (8, 9): "Ada", (9, 0): "Hopper", (10, 0): "Blackwell"}


class Capability(msgspec.Struct, frozen=True):
    """``verdict``: native, emulated, refused or unknown; ``because`` names what decides and what happens instead."""

    verdict: str
    because: str


class Rule(msgspec.Struct, frozen=True):
    """NVIDIA: native from this compute capability, emulated (``how``) from that one; ``until`` ends the native range."""

    native: tuple[int, int]
    emulated: tuple[int, int] = NEVER
    how: str = ""
    source: str = ""
    until: tuple[int, int] = NEVER


_VLLM = "vLLM docs, supported hardware for quantization kernels"
_MARLIN = "weights are unpacked to 16 bits inside the Marlin kernel: memory saved, no faster arithmetic"
RULES = {
    "fp32": Rule((0, 0)),
    "fp16": Rule((6, 0), (0, 0), "fp32 arithmetic on fp16 storage", "CUDA programming guide, arithmetic throughput"),
    "bf16": Rule(
        (8, 0), (5, 0), "PyTorch converts through fp32, slowly; vLLM and SGLang take fp16 unless told", "vLLM platforms/cuda.py"
    ),
    "tf32": Rule((8, 0), (0, 0), "plain fp32", "NVIDIA A100 whitepaper"),
    "fp8": Rule((8, 9), (7, 5), _MARLIN, _VLLM),
    "int8": Rule((7, 5), (6, 1), "dp4a vector instructions", _VLLM),
    "nvfp4": Rule((10, 0), (7, 5), _MARLIN, _VLLM),
    "mxfp4": Rule((10, 0), (7, 5), _MARLIN, _VLLM),
    "fp8_kv": Rule((8, 9), (5, 0), "the cache is stored in fp8 and converted in software", "vLLM docs, quantized KV cache"),
    "awq": Rule((7, 5), source=_VLLM),
    "gptq": Rule((7, 0), source=_VLLM),
    "marlin": Rule((8, 0), (7, 5), "the Turing variant of the kernel", _VLLM),
    "bitsandbytes": Rule((7, 0), (6, 0), "LLM.int8 without tensor cores", "bitsandbytes docs, hardware compatibility"),
    "gguf": Rule((7, 0), (5, 0), "llama.cpp's kernels without tensor cores", _VLLM),
    "flash_attention_2": Rule((8, 0), source="flash-attention README: Ampere, Ada, Hopper and later"),
    "flash_attention_3": Rule((9, 0), source="flash-attention README: Hopper", until=(10, 0)),
    "efficient_attention": Rule((5, 0), source="PyTorch aten/transformers/cuda/sdp_utils.cpp"),
    "flashinfer": Rule((7, 5), source="FlashInfer README: Turing and later"),
}
# What other chips compute natively. Sources: ROCm docs, precision support by architecture; Apple Metal feature set tables.
_CHIPS = {
    "CDNA1": {"fp32", "fp16", "bf16", "int8"},
    "CDNA2": {"fp32", "fp16", "bf16", "int8", "flash_attention_2"},
    "CDNA3": {"fp32", "fp16", "bf16", "tf32", "fp8", "int8", "fp8_kv", "flash_attention_2"},
    "CDNA4": {"fp32", "fp16", "bf16", "fp8", "int8", "mxfp4", "fp8_kv", "flash_attention_2"},
    "RDNA3": {"fp32", "fp16", "bf16", "int8"},
    "RDNA3.5": {"fp32", "fp16", "bf16", "int8"},
    "RDNA4": {"fp32", "fp16", "bf16", "fp8", "int8"},
    "Apple GPU": {"fp32", "fp16", "bf16", "gguf"},
    "Gaudi": {"fp32", "fp16", "bf16", "fp8"},
}
_SPELLINGS = {
    "float32": "fp32", "float16": "fp16", "half": "fp16", "bfloat16": "bf16", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8",
    "fp4": "nvfp4", "w8a8": "int8", "gptq_marlin": "marlin", "awq_marlin": "marlin", "nf4": "bitsandbytes",
    "flash_attn": "flash_attention_2",
}  # fmt: skip


def capability(card: Accelerator, feature: str) -> Capability:
    """Whether the card does this by itself. Raises QuestionError for a feature that is in no table."""
    name = _SPELLINGS.get(feature, feature)
    if name not in RULES:
        raise unknown_name("capability", feature, [*RULES, *_SPELLINGS])
    if card.capability:
        return _of_nvidia(card, name, RULES[name])
    native = _CHIPS.get(card.architecture)
    if native is None or name not in RULES:
        return Capability("unknown", f"nothing is known about {name} on {card.name}")
    if name in native:
        return Capability("native", f"{card.architecture} computes {name}")
    return Capability(
        "unknown" if name not in {"fp8", "mxfp4", "nvfp4", "bf16"} else "refused", f"{card.architecture} has no {name}"
    )


def _of_nvidia(card: Accelerator, name: str, rule: Rule) -> Capability:
    own = card.capability or (0, 0)
    text = f"{card.name} has compute capability {own[0]}.{own[1]}"
    if rule.native <= own < rule.until:
        return Capability("native", f"{text}; {name} is native from {_since(rule.native)}")
    if own >= rule.until:
        return Capability("refused", f"{text}; {name} exists only below {rule.until[0]}.{rule.until[1]} ({rule.source})")
    if own >= rule.emulated:
        return Capability("emulated", f"{text} and {name} needs {_since(rule.native)}: {rule.how} ({rule.source})")
    return Capability("refused", f"{text} and {name} needs {_since(rule.native)} ({rule.source})")


def _since(capability_: tuple[int, int]) -> str:
    name = _NAMES.get(capability_)
    return f"{capability_[0]}.{capability_[1]}{f' ({name})' if name else ''}"
