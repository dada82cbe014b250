"""How published models are named: organisation/core-variant-quantisation, and what each ending says.

Used when an id is neither in the catalogue nor reachable: ``Qwen2.5-7B-Instruct-GPTQ-Int4`` has the shapes of Qwen2.5-7B and the
weights of its ending. Whatever is read from a name is an assumption and is listed as one.
"""

import re
from typing import Any

import msgspec

_VARIANTS = frozenset(
    (
        "instruct",
        "chat",
        "it",
        "base",
        "pt",
        "thinking",
        "hf",
        "preview",
        "sft",
        "dpo",
        "rl",
        "kto",
        "exp",
        "text",
        "bf16",
        "fp16",
        "dequantized",
    )
)
_DATE = re.compile(r"(2[3-6](0[1-9]|1[0-2])|(0[1-9]|1[0-2])([0-2]\d|3[01])|20\d\d)$")

# Files of GGUF repositories and Ollama's tags; types are chosen by file, so what the name says of them is dropped.
_GGUF = re.compile(r"(-qat)?(-i?q\d([-_][a-z0-9]+){0,2})?(-gguf)?$")
_REMARK = re.compile(r"\s*\([^()]*\)$")

_BLOCK_FP8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
_GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}
_AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
_NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}
_AQLM = {"quant_method": "aqlm", "in_group_size": 8, "num_codebooks": 1, "nbits_per_codebook": 16}
_NF4 = {
    "quant_method": "bitsandbytes",
    "load_in_4bit": True,
    "bnb_4bit_quant_type": "nf4",
    "bnb_4bit_use_double_quant": True,
}

# Unsloth's dynamic quants list the vision modules among those left alone
_UNSLOTH = {**_NF4, "llm_int8_skip_modules": ["visual", "vision_tower", "vision_model", "multi_modal_projector"]}
# the defaults of transformers' BitsAndBytesConfig, which an upload under no recipe has: scales are not quantised again
_NF4_TEXT = {**_UNSLOTH, "bnb_4bit_use_double_quant": False}


# llm-compressor's examples of gated-delta hybrids in FP8 and FP4 leave these in 16 bits (examples/quantization_w8a8_fp8 and
# quantization_w4a4_fp4, qwen3_next, qwen3_5, qwen3_6); its AWQ example quantises linear attention too (examples/awq, qwen3_next)
_COMPRESSOR_KEEPS = ("lm_head", "*linear_attn*", "*visual*", "*vision*", "*mlp.gate", "*shared_expert_gate", "mtp*")


def _compressed(kind: str, bits: int, strategy: str, group: int | None = None) -> dict[str, Any]:
    weights = {"num_bits": bits, "type": kind, "strategy": strategy, "group_size": group, "symmetric": True}
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "ignore": [*_COMPRESSOR_KEEPS],
    }


# Endings as publishers write them; the first that matches wins. Group 128 is the default of AutoGPTQ, AutoAWQ and llm-compressor;
# 128 x 128 blocks are DeepSeek's and Qwen's; channel scales are llm-compressor's FP8-dynamic, tensor scales ModelOpt's FP8.
_ENDINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    (r"unsloth-bnb-4bit", _UNSLOTH),
    (r"4bit-bnb-languageonly", _NF4_TEXT),
    (r"bnb-4bit|4bit-bnb|bnb-nf4", _NF4),
    (r"bnb-8bit", {"quant_method": "bitsandbytes", "load_in_8bit": True}),
    (r"awq-int4|int4-awq|awq-4bit|awq-g128|awq", _AWQ),
    (r"gptq-int8|gptq-8bit|int8-gptq", {**_GPTQ, "bits": 8}),
    (r"gptq-int4|gptq-4bit|int4-gptq|gptq", _GPTQ),
    (r"int4-autoround|autoround-int4|int4-auto-?round", {**_GPTQ, "quant_method": "auto-round"}),
    (r"quantized\.w4a16|w4a16", _compressed("int", 4, "group", 128)),
    (r"quantized\.w8a16|w8a16|quantized\.w8a8|w8a8|int8-w8a8", _compressed("int", 8, "channel")),
    (r"fp8-dynamic", _compressed("float", 8, "channel")),
    (r"nvfp4|fp4", _NVFP4),
    (r"mxfp4", {"quant_method": "mxfp4"}),
    (r"fp8-block|fp8-kv|fp8", _BLOCK_FP8),
    (r"aqlm-(?:pv-)?2bit-1x16(?:-hf)?|aqlm", _AQLM),
    (r"mlx-4bit|4bit-mlx", {"bits": 4, "group_size": 64}),
    (r"mlx-8bit|8bit-mlx", {"bits": 8, "group_size": 64}),
    (r"hqq-4bit|4bit-hqq|hqq", {"quant_method": "hqq", "nbits": 4, "group_size": 64}),
    (r"eetq", {"quant_method": "eetq"}),
    (r"int8", {**_GPTQ, "bits": 8}),
    (r"int4|marlin", _GPTQ),
    (r"8bit", {"quant_method": "bitsandbytes", "load_in_8bit": True}),
    (r"4bit", _NF4),
)
_MODELOPT_FP8 = {"quant_method": "modelopt", "quant_algo": "FP8"}
_TENSOR_FP8_PUBLISHERS = frozenset({"nvidia", "amd"})
# Model Optimizer's own default (examples/hf_ptq/hf_ptq.py --kv_cache_qformat), and what ten of NVIDIA's twelve known configs say
_FP8_CACHE = {"kv_cache_quant_algo": "FP8"}
# Z.ai quantised GLM-4.5 to 4.7 by llm-compressor (vllm-hpu-extension pull 350: "the compressed tensor path for FP8 inference")
_CHANNEL_FP8 = re.compile(r"zai-org/glm-4\.")
_CHANNEL_FP8_PUBLISHERS = frozenset({"redhatai", "neuralmagic", "nm-testing"})
# those whose own -FP8 is in blocks; anybody else's copy is taken to be llm-compressor's (examples/quantization_w8a8_fp8)
_BLOCK_FP8_PUBLISHERS = frozenset({
    "", "qwen", "deepseek-ai", "minimaxai", "zai-org", "stepfun-ai", "xiaomimimo", "meituan-longcat", "tencent", "baidu",
    "moonshotai", "inclusionai", "unsloth", "meta-llama", "mistralai", "ibm-granite", "cerebras",
})  # fmt: skip
_MLX_PUBLISHERS = frozenset({"mlx-community"})

# One spelling of each: 3_1 is 3.1, llama-3 is llama3, mistral7b is mistral-7b, Llama fine-tunes' L3.1 is llama3.1.
_SPELLINGS = (
    (r"(?<![q\d])(\d)_(\d)(?!\d)", r"\1.\2"),
    (r"([a-z]{2})(\d[\d.]*[bm])(?=-|$)", r"\1-\2"),
    (r"([a-z])-(?=\d)(?!\d[\d.]*(?:x\d+)?[bmtk](?:-|$))", r"\1"),
    (r"(?<![a-z\d-])l(2|3(?:\.\d)?)-|-l(2|3(?:\.\d)?)-", r"-llama\1\2-"),
)
_CONTEXT = re.compile(r"(\d+)k|1m")
# releases whose positions are not those of the family's first (Qwen3's model cards of July 2025: 262,144 natively)
_OF_RELEASE = (("qwen3", "2507", 262_144),)


class Name(msgspec.Struct, frozen=True, kw_only=True):
    """A name taken apart: ``core`` identifies shapes; ``quantization`` is in the words of a ``quantization_config``."""

    core: str
    variants: frozenset[str] = frozenset()
    key: str = ""
    ending: str = ""
    quantization: dict[str, Any] | None = None
    positions: int = 0


def take_apart(name: str) -> Name:
    """The parts of a published name, letter case and separators ignored."""
    publisher, _, tail = _REMARK.sub("", name.lower()).rpartition("/")
    tail = _GGUF.sub("", re.sub(r"[:\s]+", "-", tail)).removeprefix("meta-").removeprefix("nvidia-")
    tail, ending, scheme = _without_ending(re.sub(_SPELLINGS[0][0], _SPELLINGS[0][1], tail).replace("_", "-"), publisher)
    words = tail.split("-")
    kept = [w for w in words if w not in _VARIANTS and not _DATE.match(w) and not _CONTEXT.fullmatch(w)] or words
    core = "-".join(kept)
    return Name(
        core=core,
        key=spelling(core),
        variants=frozenset(words) - set(kept),
        ending=ending,
        quantization=scheme,
        positions=_positions(words),
    )


def spelling(core: str) -> str:
    """One spelling for names that differ in where hyphens, points and underscores stand."""
    for pattern, plain in _SPELLINGS:
        core = re.sub(pattern, plain, core)
    return core.strip("-")


def _positions(words: list[str]) -> int:
    """The context a name states in thousands (``128k``, ``1m``), or that of its release; 0 for none."""
    stated = [_CONTEXT.fullmatch(word) for word in words]
    of_release = next((count for family, release, count in _OF_RELEASE if words[0] == family and release in words), 0)
    return max((1024 * int(found[1] or 1024) for found in stated if found), default=of_release)


def _without_ending(tail: str, publisher: str) -> tuple[str, str, dict[str, Any] | None]:
    """The name without what it says of quantisation, those words, their scheme; the end of a name is looked at first."""
    for place in ("$", "(?=-)"):
        for pattern, scheme in _ENDINGS:
            found = re.search(rf"-({pattern}){place}", tail)
            if found:
                plain = tail[: found.start()] + tail[found.end() :]
                return plain, found[1], _by_publisher(scheme, publisher, found[1], plain)
    return tail, "", None


def _by_publisher(scheme: dict[str, Any], publisher: str, ending: str, plain: str) -> dict[str, Any]:
    if scheme is _NF4 and publisher in _MLX_PUBLISHERS:
        return {"bits": 4, "group_size": 64}
    if scheme is _NVFP4 and publisher in _CHANNEL_FP8_PUBLISHERS:
        return _compressed("float", 4, "group", 16)
    if publisher == "nvidia" and scheme in (_NVFP4, _BLOCK_FP8):
        return {**(_NVFP4 if scheme is _NVFP4 else _MODELOPT_FP8), **_FP8_CACHE}
    if scheme is not _BLOCK_FP8:
        return scheme
    if publisher in _TENSOR_FP8_PUBLISHERS:
        return _MODELOPT_FP8
    in_blocks = publisher in _BLOCK_FP8_PUBLISHERS and not _CHANNEL_FP8.match(f"{publisher}/{plain}")
    return scheme if in_blocks or ending == "fp8-block" else _compressed("float", 8, "channel")
