"""The words of inference rows: cards, versions, quantisations, types and flags as reports write them, in this program's terms."""

import re
from typing import Any

import msgspec

from vramcast.errors import VramcastError
from vramcast.hardware.accelerator import Accelerator
from vramcast.hardware.cards import find_accelerator
from vramcast.models.inventory import Model
from vramcast.truth.rows import unsloth
from vramcast.units import GiB

Row = dict[str, Any]

_REMARK = re.compile(r"\(([^)]*)\)")
_VISIBLE = re.compile(r"([\d.]+)\s*GiB(?:\s+visible|\))")
_VERSION = re.compile(r"(\d+\.\d+(?:\.\d+)?)")
_EARLIER = re.compile(r"\d[\d.]*/(?=\d)")  # of 0.7.2/0.7.3
_UNKNOWN_CARD = re.compile(
    r"not stated|not named|not seen|class gpu|^\d+ gb (gpu|card)|npu|unified-memory gpu|budget", re.IGNORECASE
)

# first match wins; None keeps what the checkpoint's own config says
_QUANTS: tuple[tuple[str, str | None], ...] = (
    (r"gguf (\S+)", r"\1"), (r"gptq.*int8", "gptq-int8"), (r"gptq", "gptq"), (r"auto-?round", "auto-round"), (r"awq", "awq"),
    (r"aqlm", "aqlm"), (r"mxfp4", "mxfp4"), (r"nvfp4", "nvfp4"), (r"nf4 double", "nf4-dq"), (r"nf4", "nf4"),
    (r"bitsandbytes", "nf4-dq"), (r"w8a8|int8 \(compressed", "int8"), (r"fp8 block|fp8 \(block", "fp8-block"),
    (r"fp8 \(compressed-tensors", "fp8-channel"), (r"fp8", "fp8"), (r"int8", "w8a16"), (r"marlin int4|int4|w4a16", "w4a16"),
)  # fmt: skip
_FOUR_BITS = r"gptq|awq|auto-?round|nvfp4|w4a16|int4"
# what transformers makes of a plain checkpoint that is asked for in few bits: bitsandbytes (load_in_4bit, load_in_8bit)
_LOADED_AS = {"int4": "fp4", "int8": "llm.int8"}
# the last vLLM whose default was the V0 engine, for rows that name the engine and no version
LAST_V0 = "0.7.3"
_KV_TYPES = ("fp8_e4m3", "fp8_e5m2", "fp8", "nvfp4", "int8_per_token_head", "int4_per_token_head", "int8")
_FULL_TYPES = ("bfloat16", "float16", "float32")

_FLAGS = {
    "vllm": (
        "gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens", "enforce_eager", "block_size",
        "enable_prefix_caching", "engine_core", "mamba_ssm_cache_dtype", "mamba_cache_dtype", "swap_space", "max_loras",
        "moe_backend", "data_parallel_size", "decode_context_parallel_size", "cpu_offload_gb", "num_gpu_blocks_override",
        "disable_hybrid_kv_cache_manager", "attention_backend", "flashinfer_sampler", "runner", "skip_mm_profiling",
        "max_cudagraph_capture_size",
    ),
    "sglang": (
        "mem_fraction_static", "max_running_requests", "cuda_graph_max_bs", "max_total_tokens", "max_mamba_cache_size",
        "chunked_prefill_size", "moe_runner_backend", "dp_size", "enable_dp_attention", "swa_full_tokens_ratio", "page_size",
        "disable_cuda_graph", "disable_radix_cache", "mamba_full_memory_ratio", "disable_piecewise_cuda_graph",
    ),
    "tensorrt_llm": ("tokens_per_block", "max_batch_size", "max_num_tokens"),
    "transformers": ("prefill_chunk_size",),
    "lmdeploy": ("cache_max_entry_count", "cache_block_seq_len", "quant_policy", "max_batch_size", "max_prefill_token_num"),
}  # fmt: skip
_TEXTS = frozenset({
    "engine_core", "runner", "mamba_ssm_cache_dtype", "mamba_cache_dtype", "moe_backend", "moe_runner_backend",
    "attention_backend",
})  # fmt: skip
_SWITCHES = frozenset({
    "enforce_eager", "enable_prefix_caching", "disable_hybrid_kv_cache_manager", "enable_dp_attention", "disable_cuda_graph",
    "disable_radix_cache", "flashinfer_sampler", "skip_mm_profiling", "disable_piecewise_cuda_graph",
})  # fmt: skip
_FRACTIONS = frozenset({
    "gpu_memory_utilization", "mem_fraction_static", "free_gpu_memory_fraction", "swap_space", "cpu_offload_gb",
    "swa_full_tokens_ratio", "mamba_full_memory_ratio", "cache_max_entry_count",
})  # fmt: skip
_RENAMED = {"kv_cache_free_gpu_mem_fraction": "free_gpu_memory_fraction", "free_gpu_memory_fraction": "free_gpu_memory_fraction"}
_VERSIONED = ("vllm", "sglang", "tensorrt-llm", "transformers", "lmdeploy")
# the transformers of the days when these loaders were measured; their own versions mean nothing to its rules
_LOADED_BY = {"autoawq": "4.35.0", "exllama": "4.35.0", "gptq-for-llama": "4.35.0"}
# the same for pages that name no version, by their date
_ERAS = (("deepseek-ai/DeepSeek-LLM", "4.35.0"), ("QwenLM/Qwen/", "4.32.0"), ("Baichuan2", "4.33.0"), ("THUDM/GLM-4", "4.51.0"))
_ATTENTION = {"flash_attention_2": "flash_attention_2", "sdpa": "sdpa", "eager": "eager"}


def model_names(row: Row) -> list[str]:
    """Names to try, best first: the id without its bracketed remark, then a remark that is itself an id."""
    text = row["model_id"].split("|")[0]
    remarks = _REMARK.findall(text)
    bare = _REMARK.sub("", text).strip()
    joined = re.sub(r"^(\S+) (\S.*)$", lambda m: f"{m[1]}/{m[2].replace(' ', '-')}", bare) if "/" not in bare else bare
    return [joined, *(remark for remark in remarks if "/" in remark)]


def card(row: Row) -> Accelerator | None:
    """The card, or one of the visible size where only that is told; None when neither is."""
    text = row["gpu"] or ""
    if not _UNKNOWN_CARD.search(text):
        try:
            return find_accelerator(text)
        except VramcastError:
            pass
    total = visible_bytes(row)
    return find_accelerator(f"{total / GiB:.2f}GiB") if total else None


def visible_bytes(row: Row) -> int | None:
    """Memory the card shows, where the row says so: what a user reads off nvidia-smi or torch before starting."""
    total = row["settings"].get("gpu_total_gib")
    if total is None:
        match = _VISIBLE.search(row["gpu"] or "")
        total = float(match[1]) if match else None
    return round(float(total) * GiB) if total else None


def version(row: Row) -> str | None:
    """The engine's version, of two with a stroke between them the later; None when the row tells none: the newest rules."""
    match = _VERSION.search(_EARLIER.sub("", str(row.get("engine_version") or "")))
    if match is None and row["settings"].get("engine_core") == "V0":
        return LAST_V0
    if match or row["engine"] != "transformers":
        return match[1] if match and row["engine"] in _VERSIONED else _LOADED_BY.get(row["engine"])
    return next((number for page, number in _ERAS if page in row["source"]), None)


def context(row: Row, model: Model) -> int | None:
    """The longest sequence allowed, at most what the model addresses."""
    settings = row["settings"]
    asked = count(settings.get("max_model_len") or settings.get("context_length") or settings.get("seq_len"))
    asked = asked or count(settings.get("cache_len_preallocated"))
    return min(asked, model.positions or asked) if asked else None


def prompt(row: Row) -> int | None:
    """Tokens of the prompt."""
    settings = row["settings"]
    if settings.get("phase") == "weights loaded":
        return 1
    return count(settings.get("input_len") or settings.get("prefill_len") or settings.get("seq_len"))


def output(row: Row) -> int | None:
    """Tokens generated."""
    if row["settings"].get("phase") == "weights loaded":
        return 1
    return count(row["settings"].get("output_len") or row["settings"].get("decode_len"))


def count(value: Any) -> int | None:
    """A whole number, or None for anything else ("model default")."""
    if isinstance(value, bool) or value is None:
        return None
    match = re.search(r"\d+", str(value))
    return int(match[0]) if match and int(match[0]) else None


def dtype(row: Row, model: Model) -> str | None:
    """The type of what is not quantised, when it is one and not "fp16/bf16"."""
    name = row.get("dtype") or ""
    if name not in _FULL_TYPES and "16" in name and not model.dtype.endswith("16"):
        return "bfloat16"
    return name if name in _FULL_TYPES and name != model.dtype else None


def kv_dtype(row: Row, model: Model) -> str | None:
    """The cache's type, None for the model's own. A checkpoint of Model Optimizer whose config is not at hand has it in fp8."""
    text = str(row.get("kv_dtype") or "").lower()
    named = next((name for name in _KV_TYPES if text.startswith(name)), None)
    by_modelopt = "nvfp4" in (words := str(row.get("quant")).lower()) and "modelopt" in words
    untold = not (model.quantization or {}).keys() & {"exclude_modules", "ignore", "kv_cache_quant_algo", "kv_cache_scheme"}
    return "fp8" if named is None and text in ("", "auto") and by_modelopt and untold else named


def quant(row: Row, model: Model) -> str | None:
    """The weights' scheme: None keeps the checkpoint's own, which is better known than the row's words for it."""
    words = f"{row.get('quant') or ''} {' '.join(_REMARK.findall(row['model_id']))}".lower()
    if row.get("quant") is None and "nvfp4" not in words and "int4" not in words:
        return None
    if model.quantization and "runtime" not in words and "online" not in words and not _in_fewer_bits(words, model):
        return None
    if row["engine"] == "transformers" and words.strip() in _LOADED_AS:
        return _LOADED_AS[words.strip()]
    found = ((re.search(pattern, words), scheme) for pattern, scheme in _QUANTS)
    return next((match.expand(scheme) if scheme else None for match, scheme in found if match), None)


def _in_fewer_bits(words: str, model: Model) -> bool:
    """Whether the words name somebody's 4-bit copy of a model whose makers publish it in fp8."""
    in_fp8 = (model.quantization or {}).get("quant_method") == "fp8"
    return in_fp8 and "fp8" not in words and re.search(_FOUR_BITS, words) is not None


def with_group(row: Row, model: Model) -> Model:
    """The model with the group size its row's words give ("gptq int4 g32"), where its own config has none."""
    match = re.match(r"(gptq|awq) int(\d) g(\d+)", row.get("quant") or "")
    if match is None or model.quantization:
        return model
    config = {"quant_method": match[1], "bits": int(match[2]), "group_size": int(match[3]), "zero_point": True}
    return msgspec.structs.replace(model, quantization=config)


def options(row: Row, engine: str) -> dict[str, Any]:
    """The engine's flags that the row shows."""
    settings = row["settings"]
    found = {name: _typed(name, settings[name]) for name in _FLAGS[engine] if name in settings}
    if engine == "tensorrt_llm":
        found |= {ours: _typed(ours, settings[theirs]) for theirs, ours in _RENAMED.items() if theirs in settings}
    found |= _BY_ENGINE[engine](row) if engine in _BY_ENGINE else {}
    return {name: value for name, value in found.items() if value is not None}


def _vllm(row: Row) -> dict[str, Any]:
    settings = row["settings"]
    words = str(settings.get("speculative") or "").lower()
    drafted = re.search(r"n=(\d+)", words)
    return {
        "gpu_total_bytes": visible_bytes(row),
        "enable_lora": True if settings.get("enable_lora") else None,
        "max_lora_rank": settings.get("max_lora_rank"),
        "enable_expert_parallel": True if settings.get("expert_parallel") or settings.get("ep") else None,
        "num_speculative_tokens": int(drafted[1]) if drafted else count(settings.get("mtp_draft_tokens")),
        "speculative_method": "mtp" if "mtp" in words or settings.get("mtp_draft_tokens") else None,
        "language_model_only": True if settings.get("vision") == "off" or _no_items(settings) else None,
        "entry": "offline" if settings.get("mode") in _OFFLINE else None,
        **_named(settings, {"swap_space_gib": "swap_space", "dp": "data_parallel_size", "dcp": "decode_context_parallel_size"}),
        **(unsloth.options(row, _number(row)) if unsloth.started_by_unsloth(row) else {}),
    }


_OFFLINE = ("LLM()", "vllm bench latency", "vllm bench throughput")  # the LLM class, whose batches are larger than the server's


def _no_items(settings: Row) -> bool:
    """Whether images and videos are limited to none, so that no tower runs (config/model.py: "running in text-only mode")."""
    limits = dict(re.findall(r"(\w+) (\d+)", str(settings.get("limit_mm_per_prompt") or "")))
    return {"image", "video"} <= limits.keys() and set(limits.values()) == {"0"}


def _number(row: Row) -> tuple[int, ...]:
    return tuple(int(part) for part in (version(row) or "0").split("."))


def _named(settings: Row, names: dict[str, str]) -> dict[str, Any]:
    """Settings under a flag's other names."""
    return {flag: _typed(flag, settings[word]) for word, flag in names.items() if word in settings and flag not in settings}


def _sglang(row: Row) -> dict[str, Any]:
    sizes = [int(size) for size in re.findall(r"\d+", str(row["settings"].get("cuda_graph_bs") or ""))]
    listed = {"cuda_graph_max_bs": max(sizes)} if sizes and "cuda_graph_max_bs" not in row["settings"] else {}
    return {"gpu_total_bytes": visible_bytes(row), **listed, **_named(row["settings"], {"dp": "dp_size"})}


def _trt(row: Row) -> dict[str, Any]:
    """``available_gib``: what was free for the cache, of which the engine takes its fraction."""
    available = row["settings"].get("available_gib")
    free = round(float(available) * GiB) if available else None
    return {"gpu_total_bytes": visible_bytes(row), "free_gpu_bytes": free}


def expert_ranks(row: Row, engine: str) -> int:
    """Expert-parallel ranks where the engine has a size for them; vLLM's flag is an option."""
    asked = count(row["settings"].get("ep")) or 1
    return asked if engine in ("sglang", "tensorrt_llm") else 1


def _torch(row: Row) -> dict[str, Any]:
    loader = {"autoawq": "autoawq", "exllama": "exllama", "gptq-for-llama": "gptq_for_llama"}.get(row["engine"])
    settings = row["settings"]
    return {
        "attn_implementation": _ATTENTION.get(str(settings.get("attn"))),
        "loader": loader,
        "device_map": "auto" if (row.get("n_gpus") or 1) > 1 else None,
    }


_BY_ENGINE = {"vllm": _vllm, "sglang": _sglang, "tensorrt_llm": _trt, "transformers": _torch}


def _typed(name: str, value: Any) -> Any:
    """A setting in the type its flag has; None for words that say nothing ("default")."""
    if name in _TEXTS:
        return str(value) if value else None
    if isinstance(value, bool):
        return value if name in _SWITCHES else None
    number = re.search(r"\d+(?:\.\d+)?", str(value))
    if number is None:
        return None
    return float(number[0]) if name in _FRACTIONS else int(float(number[0]))
