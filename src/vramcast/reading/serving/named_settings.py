"""Settings that are named after an engine's arguments: ``MAX_MODEL_LEN=8192`` of an .env file, ``vllm_max_model_len: 8192``.

Names count by their last words, whatever stands before them (``PROFILE_``, ``VLLM_``, ``default_``): the words before most of
them
are the file's own prefix. The engine is the one that has two or more of the names as its own.
"""

import re
from collections import Counter
from collections.abc import Mapping

from vramcast.reading.serving.engine_yaml import OWN_KEYS, flags_of_mapping
from vramcast.reading.serving.environment import engine_of_environment, read_environment_file
from vramcast.reading.serving.flags import parsed_flags, words_of_flags
from vramcast.reading.serving.launch import Launch, LaunchContext, visible_devices

NAME = "file of settings"
# Names that alone one engine has, beside those of its own configuration file.
_OWN = {
    "vllm": OWN_KEYS["vllm"] - {"tensor_parallel_size"} | {"max_model_length", "gpu_mem_util", "gpu_memory_util",
    "num_gpu_blocks_override",
            "gpu_util", "max_len", "gpu_memory", "swap_space", "enable_prefix_caching", "gpu_mem", "max_num_batched_tokens",
            "max_seqs"},
    "sglang": OWN_KEYS["sglang"] - {"model_path", "tp_size"} | {"mem_fraction", "cuda_graph_max_bs", "context_len"},
    "llama_cpp": {"ctx_size", "n_gpu_layers", "gpu_layers", "ngl", "n_ctx", "cache_type_k", "cache_type_v", "n_cpu_moe",
    "ubatch_size",
                  "context_size", "ctx"},
}  # fmt: skip
# What an engine calls a setting that people shorten or rename.
_SAME = {
    "max_model_length": "max_model_len", "gpu_mem_util": "gpu_memory_utilization", "gpu_memory_util": "gpu_memory_utilization",
    "gpu_util": "gpu_memory_utilization", "gpu_mem": "gpu_memory_utilization", "gpu_memory": "gpu_memory_utilization",
    "gpu_memory_fraction": "gpu_memory_utilization", "max_len": "max_model_len", "max_seqs": "max_num_seqs",
    "tp": "tensor_parallel_size", "tp_size": "tensor_parallel_size", "tensor_parallel": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "pp_size": "pipeline_parallel_size", "dp": "data_parallel_size", "dp_size": "data_parallel_size", "quant": "quantization",
    "mem_fraction": "mem_fraction_static", "context_len": "context_length", "kv_dtype": "kv_cache_dtype",
    "kv_cache": "kv_cache_dtype",
    "max_batched_tokens": "max_num_batched_tokens",
}  # fmt: skip
_LLAMA = {"ngl": "n_gpu_layers", "gpu_layers": "n_gpu_layers", "n_ctx": "ctx_size", "context_size": "ctx_size", "ctx": "ctx_size",
          "parallel": "n_parallel", "ctk": "cache_type_k", "ctv": "cache_type_v", "context_length": "ctx_size"}  # fmt: skip
# Names that several engines share: they say nothing of the engine, and are read once it is known.
_SHARED = frozenset(
    """
    dtype quantization tensor_parallel_size pipeline_parallel_size data_parallel_size kv_cache_dtype block_size enforce_eager
    enable_chunked_prefill max_num_seqs max_num_batched_tokens enable_expert_parallel speculative_config cpu_offload_gb
    enable_lora max_loras max_lora_rank limit_mm_per_prompt batch_size ubatch_size parallel flash_attn threads n_predict
    kv_cache_memory_bytes attention_backend n_parallel split_mode tensor_split max_running_requests chunked_prefill_size page_size
    """.split()  # noqa: SIM905
) | frozenset(_SAME)
_MODELS = ("model", "model_id", "model_name", "model_path", "hf_model", "hf_model_id", "model_repo", "base_model",
"model_file", "gguf_model",
           "model_name_or_path", "llm_model", "hf_repo", "model_dir", "vllm_model", "gguf", "serve_model",
           "default_model")  # fmt: skip
_HUB_NAMES = re.compile(
    r"(?:\w+_)?(?:model_hf|hf_model|model_repo|hf_repo|model_hf_id|hf_model_id)"
)  # of names, before a folder's
_FEWEST = 2
_TRAINS = re.compile(
    r"(?:^|_)(?:learning_rate|lr|micro_batch_size|per_device_train_batch_size|num_train_epochs|lora_r|lora_rank|epochs)$"
)
_LINES = re.compile(r"\s*(?:export\s+|set\s+)?[A-Za-z_][\w.]*\s*\+?=")


def is_settings(text: str) -> bool:
    """Whether a text is nothing but ``NAME=value`` lines, comments and heads of sections."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("#", ";", "["))]
    return bool(lines) and all(_LINES.match(line) for line in lines)


def read(text: str, held: LaunchContext) -> tuple[Launch, ...]:
    """The server that a file of variables describes by names of an engine's arguments; () where it describes none."""
    variables = {**read_environment_file(text), **held.variables}
    found = settings_of(variables)
    if found is None or engine_of_environment(variables):
        return ()
    engine, settings, model = found
    flags = words_of_flags(parsed_flags(engine, flags_of_mapping({k: _switch(v) for k, v in settings.items()})).flags)
    shown = visible_devices(variables)
    return (Launch(engine=engine, model=model, flags=flags, where=held.where, gpus=len(shown), devices=shown),)


def _switch(value: str) -> object:
    """``1`` of a switch stays a number for its flag to take; words of yes and no are switches."""
    return {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False}.get(str(value).lower(), value)


def settings_of(values: Mapping[str, object]) -> tuple[str, dict[str, str], str] | None:
    """Engine, its arguments by their own names, and the model that these names and values describe; None for no engine.

    Values that are empty, structures, or left to another variable are passed over, but for open ones, which stay open.
    """
    plain = {key: str(value) for key, value in values.items() if value not in (None, "") and not isinstance(value, dict | list)}
    named = {key: re.sub(r"[-.]", "_", re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", key)).lower() for key in plain}
    if any(_TRAINS.search(name) for name in named.values()):
        return None
    parts = {key: parted for key, name in named.items() if (parted := _parted(name))}
    votes = Counter(engine for prefix, rest in parts.values() for engine, own in _OWN.items() if rest in own)
    hints = Counter(engine for name in named.values() for engine in ("vllm", "sglang") if name.startswith(engine))
    if not votes:
        return None
    engine, count = max(votes.items(), key=lambda vote: (vote[1], hints[vote[0]]))
    prefixes = Counter(prefix for prefix, rest in parts.values() if rest in _OWN[engine])
    if count + (hints[engine] >= _FEWEST) < _FEWEST:  # names that begin with the engine's count as one
        return None
    own = set(prefixes)
    same = {**_SAME, **(_LLAMA if engine == "llama_cpp" else {})}
    known = _OWN[engine] | _SHARED
    settings = {same.get(rest, rest): plain[key] for key, (prefix, rest) in parts.items() if prefix in own and rest in known}
    model = next((plain[key] for key, name in named.items() if _HUB_NAMES.fullmatch(name) and "/" in plain[key]), "")
    model = model or next((plain[key] for wanted in _MODELS for key, name in named.items() if name == wanted), "")
    model = model or next((plain[key] for key, name in named.items() if any(name == f"{prefix}model" for prefix in own)), "")
    model = model or next(
        (plain[key] for key, name in named.items() if re.search(r"(?:^|_)model(?:_id|_name|_path|_repo)?$", name)), ""
    )
    return engine, settings, model


def _parted(name: str) -> tuple[str, str] | None:
    """A name as what stands before, with its underscore, and the longest end that is an engine's argument."""
    words = name.split("_")
    every = frozenset().union(*_OWN.values()) | _SHARED
    for start in range(len(words)):
        rest = "_".join(words[start:])
        if rest in every:
            return name[: len(name) - len(rest)], rest
    return None
