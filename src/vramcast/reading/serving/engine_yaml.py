"""An engine's own configuration file: ``vllm serve --config``, SGLang's, TensorRT-LLM's extra options; each key is a flag."""

from collections.abc import Mapping
from typing import Any

from vramcast.reading.serving.flags import parsed_flags, words_of_flags
from vramcast.reading.serving.launch import Launch, LaunchContext

NAME = "engine configuration"
# Keys that only an engine's own configuration has.
OWN_KEYS = {
    "vllm": {
        "max_model_len", "gpu_memory_utilization", "tensor_parallel_size", "max_num_seqs", "served_model_name", "enforce_eager",
        "max_num_batched_tokens", "kv_cache_dtype",
    },
    "sglang": {"mem_fraction_static", "context_length", "chunked_prefill_size", "tp_size", "max_running_requests", "model_path"},
    "tensorrt_llm": {
        "kv_cache_config", "cuda_graph_config", "max_num_tokens", "max_batch_size", "enable_attention_dp", "moe_config",
        "enable_chunked_prefill", "print_iter_log", "use_cuda_graph", "pytorch_backend_config", "speculative_config",
    },
}  # fmt: skip
_FOREIGN = {"learning_rate", "services", "apiVersion", "micro_batch_size", "per_device_train_batch_size", "model_name_or_path"}
_MODEL = ("model", "model_path", "model_tag", "model_name", "model_id")


def read(document: Any, held: LaunchContext) -> tuple[Launch, ...]:
    """The launch of an engine's own file; () for any other mapping."""
    if not isinstance(document, dict):
        return ()
    plain = {str(key).replace("-", "_"): value for key, value in document.items()}
    scores = {engine: len(keys & set(plain)) for engine, keys in OWN_KEYS.items()}
    engine = max(scores, key=lambda name: scores[name])
    if not scores[engine] or _FOREIGN & set(plain):
        return ()
    model = next((plain[key] for key in _MODEL if isinstance(plain.get(key), str)), "")
    rest = {key: value for key, value in plain.items() if key not in _MODEL}
    words = words_of_flags(parsed_flags(engine, flags_of_mapping(rest)).flags)
    return (Launch(engine=engine, model=model, flags=words, where=held.where),)


def flags_of_mapping(mapping: Mapping[Any, Any], prefix: str = "") -> list[str]:
    """Keys and values as flags: nested ones with dots, lists with spaces between, switches as on and off."""
    import json

    words: list[str] = []
    for key, value in list(mapping.items())[:2_000]:
        name = f"{prefix}{str(key).replace('_', '-')}"
        if isinstance(value, Mapping):
            jsons = name.replace(".", "-") in (
                "speculative-config",
                "compilation-config",
                "limit-mm-per-prompt",
                "attention-config",
            )
            words += [f"--{name}={json.dumps(value, default=str)}"] if jsons and value else flags_of_mapping(value, f"{name}.")
        elif isinstance(value, bool):
            words.append(f"--{name}={'true' if value else 'false'}")
        elif isinstance(value, list):
            words.append(f"--{name}={' '.join(str(item) for item in value if not isinstance(item, (dict, list)))}")
        elif value is not None:
            words.append(f"--{name}={value}")
    return words
