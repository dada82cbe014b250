"""Environment variables that engines read as flags, by engine; those that change nothing; and files of ``NAME=value`` lines.

Sources: vllm/envs.py (0.33), llama.cpp common/arg.cpp (every flag has LLAMA_ARG_NAME), ollama envconfig/config.go,
text-generation-launcher's main.rs (every flag has its name in capitals).
"""

import re
from collections.abc import Mapping

import msgspec

from vramcast.reading.serving.effects import chooses_kernels

_SHORT = 12  # a switch or a number: nothing that could be a secret
_LINE = re.compile(r"^\s*(?:export\s+|set\s+)?([A-Za-z_][\w.]{0,80})\s*=\s*(.*?)\s*$")
_LLAMA = {
    "LLAMA_ARG_CTX_SIZE": "ctx-size", "LLAMA_ARG_N_GPU_LAYERS": "n-gpu-layers", "LLAMA_ARG_N_PARALLEL": "n-parallel",
    "LLAMA_ARG_BATCH": "n-batch", "LLAMA_ARG_UBATCH": "n-ubatch", "LLAMA_ARG_FLASH_ATTN": "flash-attn",
    "LLAMA_ARG_CACHE_TYPE_K": "cache-type-k", "LLAMA_ARG_CACHE_TYPE_V": "cache-type-v", "LLAMA_ARG_SPLIT_MODE": "split-mode",
    "LLAMA_ARG_TENSOR_SPLIT": "tensor-split", "LLAMA_ARG_OVERRIDE_TENSOR": "override-tensor", "LLAMA_ARG_N_CPU_MOE": "n-cpu-moe",
    "LLAMA_ARG_CPU_MOE": "cpu-moe", "LLAMA_ARG_KV_UNIFIED": "kv-unified", "LLAMA_ARG_SWA_FULL": "swa-full",
    "LLAMA_ARG_MODEL": "model", "LLAMA_ARG_HF_REPO": "hf-repo", "LLAMA_ARG_FIT": "fit", "LLAMA_ARG_MMPROJ": "mmproj",
}  # fmt: skip
_OLLAMA = {
    "OLLAMA_CONTEXT_LENGTH": ("ctx-size",), "OLLAMA_NUM_PARALLEL": ("n-parallel",), "OLLAMA_FLASH_ATTENTION": ("flash-attn",),
    "OLLAMA_KV_CACHE_TYPE": ("cache-type-k", "cache-type-v"),
}  # fmt: skip
_TGI = (
    "MODEL_ID", "NUM_SHARD", "QUANTIZE", "DTYPE", "KV_CACHE_DTYPE", "MAX_INPUT_TOKENS", "MAX_INPUT_LENGTH", "MAX_TOTAL_TOKENS",
    "MAX_BATCH_PREFILL_TOKENS", "MAX_BATCH_TOTAL_TOKENS", "MAX_BATCH_SIZE", "CUDA_MEMORY_FRACTION", "SPECULATE", "CUDA_GRAPHS",
    "MAX_CONCURRENT_REQUESTS", "ROPE_SCALING",
)  # fmt: skip
_IDLE = re.compile(
    r"VLLM_(?:LOGGING|CONFIGURE|LOG|WORKER_MULTIPROC|API_KEY|HOST|PORT|CACHE_ROOT|CONFIG_ROOT|ENGINE_ITERATION|RPC|DO_NOT_TRACK|"
    r"USAGE|NO_USAGE|ALLOW|PLUGINS|SERVER_DEV|TARGET|HTTP|IMAGE|SKIP|TRACE|DEBUG|ENGINE_READY|RAY|USE_MODELSCOPE|NCCL|NIXL|KEEP|"
    r"EXECUTE|SLEEP|RANDOMIZE|MODEL_REDIRECT|ASSETS|S3|DISABLE_COMPILE_CACHE|DP_MASTER|INFERENCE_PORT|METRICS_PORT|SERVICE).*"
    r"|OLLAMA_(?:HOST|ORIGINS|MODELS|DEBUG|KEEP_ALIVE|LOAD_TIMEOUT|MAX_QUEUE|NOPRUNE|NOHISTORY|TMPDIR|AUTH|REMOTES|LLM_LIBRARY|"
    r"INTEL_GPU|MULTIUSER_CACHE|EDITOR|API_KEY|BASE_URL|NEW_ENGINE)|SGLANG_(?:LOG|HOST|PORT|HEALTH|TORCH_PROFILER|IS|BLOCK|TEST)"
    r".*"
    r"|LLAMA_ARG_(?:HOST|PORT|ALIAS|ENDPOINT|THREADS|NO_WEBUI|MLOCK|MMAP|JINJA|METRICS|THINK|TIMEOUT|API|CONT|LOG|CHAT|SSL).*"
)
_ENGINES = re.compile(r"(?:VLLM|SGLANG|SGL|LLAMA_ARG|OLLAMA|TRTLLM|TLLM|GGML|LMCACHE|LMDEPLOY)_\w+")


class Variables(msgspec.Struct, frozen=True, kw_only=True):
    """Flags that variables stand for (``--name=value``); names without effect, that choose kernels, that no rule reads."""

    flags: list[str] = []
    idle: list[str] = []
    speed: list[str] = []
    unread: list[str] = []


def variables_of_engine(engine: str, environment: Mapping[str, str]) -> Variables:
    """An environment's variables as an engine takes them."""
    flags: list[str] = []
    idle: list[str] = []
    speed: list[str] = []
    unread: list[str] = []
    for name, value in environment.items():
        found = _flags(engine, name, value)
        if found is not None:
            flags += found
        elif _IDLE.fullmatch(name):
            idle.append(name)
        elif _ENGINES.fullmatch(name) and _is_its_own(engine, name):
            kernels = chooses_kernels(name) and len(value) <= _SHORT
            (speed if kernels else unread).append(f"{name}={value}" if kernels else name)
    return Variables(flags=flags, idle=idle, speed=speed, unread=unread)


def engine_of_environment(environment: Mapping[str, str]) -> str:
    """The engine whose server alone reads variables that are set here; "" where none is, or of two engines."""
    found = {"ollama" if name in _OLLAMA else "llama_cpp" for name in environment if name in _OLLAMA or name in _LLAMA}
    return found.pop() if len(found) == 1 else ""


def variable_of(engine: str, flag: str) -> str:
    """The variable that stands for a flag, for the place that an answer names; "" for none."""
    if engine == "sglang":
        return _LONGER_SGLANG[0] if flag == "allow-longer-context" else ""
    tables = {"llama_cpp": {v: k for k, v in _LLAMA.items()}, "ollama": {n: k for k, names in _OLLAMA.items() for n in names}}
    if engine == "tgi":
        return flag.upper().replace("-", "_")
    vllm = {
        "engine-core": "VLLM_USE_V1",
        "attention-backend": "VLLM_ATTENTION_BACKEND",
        "expandable-segments": "PYTORCH_CUDA_ALLOC_CONF",
        "allow-longer-context": "VLLM_ALLOW_LONG_MAX_MODEL_LEN",
    }
    return tables.get(engine, vllm).get(flag, "")


def flag_of_variable(name: str) -> str:
    """The flag of llama-server that a variable of its own stands for, "" for none."""
    return _LLAMA.get(name, "")


def read_environment_file(text: str) -> dict[str, str]:
    """``NAME=value`` lines; quotes and ``export`` are taken off, comments skipped, other lines passed over."""
    found: dict[str, str] = {}
    for line in text.splitlines()[:5_000]:
        if (match := _LINE.match(line)) and not line.lstrip().startswith("#"):
            value = match[2]
            quoted = re.match(r"([\"'])(.*?)\1", value)
            found[match[1]] = quoted[2] if quoted else re.split(r"\s#", value)[0].strip()
    return found


_ON = ("1", "true", "yes", "on")
# srt/environ.py and, before it, configs/model_config.py
_LONGER_SGLANG = ("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "SGL_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN")


def _flags(engine: str, name: str, value: str) -> list[str] | None:
    if engine == "vllm":
        return _vllm(name, value)
    if engine in ("llama_cpp", "ik_llama_cpp") and name in _LLAMA:
        return [f"--{_LLAMA[name]}={value}"]
    if engine == "ollama" and name in _OLLAMA:
        return [f"--{flag}={value}" for flag in _OLLAMA[name]]
    if engine == "sglang" and name in _LONGER_SGLANG:
        return ["--allow-longer-context=on"] if value.lower() in _ON else []
    if engine == "tgi" and name in _TGI:
        return [f"--{name.lower().replace('_', '-')}={value}"]
    return None


def _vllm(name: str, value: str) -> list[str] | None:
    if name == "VLLM_USE_V1" and value in ("0", "1"):
        return [f"--engine-core=V{value}"]
    if name == "VLLM_ALLOW_LONG_MAX_MODEL_LEN":
        return ["--allow-longer-context=on"] if value.lower() in _ON else []
    if name == "VLLM_ATTENTION_BACKEND" and value:
        return [f"--attention-backend={value.lower()}"]
    if name == "VLLM_USE_FLASHINFER_SAMPLER" and value in ("0", "1"):
        return [f"--flashinfer-sampler={'on' if value == '1' else 'off'}"]
    if name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        return ["--expandable-segments=on"] if "expandable_segments:true" in value.lower().replace(" ", "") else []
    return None


def _is_its_own(engine: str, name: str) -> bool:
    prefixes = {
        "vllm": ("VLLM_", "LMCACHE_"), "sglang": ("SGLANG_", "SGL_"), "llama_cpp": ("LLAMA_ARG_", "GGML_"),
        "ollama": ("OLLAMA_", "GGML_"), "tensorrt_llm": ("TRTLLM_", "TLLM_"), "lmdeploy": ("LMDEPLOY_",),
    }  # fmt: skip
    return name.startswith(prefixes.get(engine, ()))
