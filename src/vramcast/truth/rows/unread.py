"""Words of inference rows that no rule reads: listed with the judgement, and its bar is then that of the unmeasured.

A row's setting is read (it became part of the question), quiet (it decides no byte: comments, or figures that the run printed of
itself), or unread. A setting that nobody has met before is unread: it may matter.
"""

from collections.abc import Iterable, Mapping
from typing import Any

_EVERY = frozenset({"max_model_len", "context_length", "seq_len", "input_len", "output_len", "batch_size", "gpu_total_gib"})
READ: Mapping[str, frozenset[str]] = {
    "vllm": _EVERY | {
        "gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens", "enforce_eager", "block_size", "engine_core",
        "enable_prefix_caching", "mamba_ssm_cache_dtype", "mamba_cache_dtype", "swap_space", "swap_space_gib", "enable_lora",
        "max_lora_rank", "max_loras", "expert_parallel", "ep", "speculative", "mtp_draft_tokens", "vision", "moe_backend",
        "data_parallel_size", "dp", "decode_context_parallel_size", "dcp", "cpu_offload_gb", "num_gpu_blocks_override",
        "disable_hybrid_kv_cache_manager", "attention_backend", "flashinfer_sampler", "runner", "limit_mm_per_prompt",
    },
    "sglang": _EVERY | {
        "mem_fraction_static", "max_running_requests", "cuda_graph_max_bs", "cuda_graph_bs", "max_total_tokens",
        "max_mamba_cache_size", "chunked_prefill_size", "ep", "dp", "dp_size", "enable_dp_attention", "moe_runner_backend",
        "swa_full_tokens_ratio", "page_size", "disable_cuda_graph", "disable_radix_cache", "mamba_full_memory_ratio",
    },
    "tensorrt_llm": _EVERY | {
        "kv_cache_free_gpu_mem_fraction", "free_gpu_memory_fraction", "tokens_per_block", "max_batch_size", "max_num_tokens",
        "available_gib", "block_size",
    },
    "transformers": _EVERY | {
        "attn", "multi_gpu", "split", "phase", "prefill_len", "decode_len", "cache_len_preallocated", "prefill_chunk_size",
    },
    "lmdeploy": _EVERY | {
        "cache_max_entry_count", "cache_block_seq_len", "quant_policy", "max_batch_size", "max_prefill_token_num",
    },
    "llama_cpp": _EVERY | {
        "n_ctx", "n_batch", "n_ubatch", "flash_attn", "n_gpu_layers_offloaded", "gguf_file", "gguf_file_type", "n_seq_max",
        "kv_unified", "override_tensor", "tensor_split", "split_mode", "run_time_repack", "mla", "attn_max_batch_mib",
        "fused_moe", "mtp_draft_n_max",
    },
}  # fmt: skip
QUIET = frozenset({
    "gpu_free_at_init_gib", "free_after_weights_gib", "cudagraphs", "encoder_profile", "kv_padding_layers",
    "attention_block_size", "env", "note", "cache_note", "mode", "model_type", "arch", "mtp",
})  # fmt: skip
_ENGINES = {"ik_llama_cpp": "llama_cpp", "ollama": "llama_cpp"}


def unread_words(engine: str, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Each setting of the row that nothing reads, as "name=value"; and a deciding one that its words call for and do not tell."""
    known = READ[_ENGINES.get(engine, engine)] | QUIET
    words = [f"{name}={str(value)[:40]}" for name, value in settings.items() if name not in known and value not in (None, "")]
    if (limit := str(settings.get("limit_mm_per_prompt"))).count("image 0") > limit.count("video 0"):
        words.append(f"limit_mm_per_prompt={limit}: videos are still encoded")
    if settings.get("enable_lora") and not settings.get("max_lora_rank"):
        words.append("max_lora_rank: not told")
    return tuple(words)


def novel(words: Iterable[str]) -> dict[str, str]:
    """What unread words say of the error bar: the run is of a kind that was not measured."""
    return {"novel": "yes"} if any(True for _ in words) else {}
