"""Triton's ``config.pbtxt`` for TensorRT-LLM and vLLM, and the ``model.json`` that its vLLM backend reads."""

import re

from vramcast.reading.serving.launch import Launch, LaunchContext

NAME = "Triton config.pbtxt"
_BACKEND = re.compile(r"^[ \t]*(?:backend|platform)\s*:\s*\"([\w.-]{1,60})\"", re.M)
_PAIR = re.compile(
    r"parameters\s*[:{]?\s*\{?\s*key\s*:\s*\"([\w.-]{1,80})\"\s*,?\s*value\s*:?\s*\{\s*string_value\s*:\s*\"([^\"]{0,400})\"",
    re.S,
)
_BATCH = re.compile(r"^[ \t]*max_batch_size\s*:\s*(\d{1,6})", re.M)
_FLAGS = {
    "kv_cache_free_gpu_mem_fraction": "free-gpu-memory-fraction", "max_tokens_in_paged_kv_cache": "max-tokens",
    "max_num_sequences": "max-num-sequences", "max_attention_window_size": "max-attention-window-size",
    "kv_cache_host_memory_bytes": "kv-cache-host-memory-bytes", "max_beam_width": "max-beam-width",
    "tensor_parallel_size": "tensor-parallel-size", "max_num_tokens": "max-num-tokens",
}  # fmt: skip
_MODEL = ("gpt_model_path", "encoder_model_path", "model", "REPO_ID")
_IDLE = tuple(  # how the names begin of parameters that change neither memory nor speed
    """
    decoupled batching batch_scheduler gpt_model_type tokenizer exclude_input log stats executor gpu_device_ids participant
    normalize_log enable_kv_cache_reuse enable_chunked_context force_cpu add_special skip_special guided multi_block xgrammar
    cancellation sink_token max_queue prompt_embedding num_nodes recv_poll cross_kv
    """.split()  # noqa: SIM905
)


def is_triton(text: str) -> bool:
    """Whether a text is a model configuration of Triton's."""
    return _BACKEND.search(text) is not None and ("input" in text or "instance_group" in text or "max_batch_size" in text)


def read(text: str, held: LaunchContext) -> tuple[Launch, ...]:
    """The engine and its parameters; the model is the folder of a built engine, or left to ask for. () for other backends."""
    backend = (_BACKEND.search(text) or ["", ""])[1]
    if backend not in ("tensorrtllm", "vllm", "python"):
        return ()
    values = {name: value.strip() for name, value in _PAIR.findall(text)}
    if backend == "python" and not ({"gpt_model_path", *_FLAGS} & values.keys()):
        return ()
    flags = [f"--{_FLAGS[name]}={value}" for name, value in values.items() if name in _FLAGS and value]
    batch = _BATCH.search(text)
    flags += [f"--max-batch-size={batch[1]}"] if batch and batch[1] != "0" and backend == "tensorrtllm" else []
    unread = [n for n, v in values.items() if v and n not in _FLAGS and n not in _MODEL and not n.lower().startswith(_IDLE)]
    return (
        Launch(
            engine="vllm" if backend == "vllm" else "tensorrt_llm",
            model=next((values[name] for name in _MODEL if values.get(name)), ""),
            flags=tuple(flags),
            where=held.where,
            idle=tuple(n for n in values if n not in _FLAGS and n not in _MODEL and n not in unread),
            unread=tuple(unread),
        ),
    )
