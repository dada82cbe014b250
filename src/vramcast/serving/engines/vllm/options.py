"""vLLM's flags that decide memory."""

from vramcast.serving.engines.base import Option

_ARGS = "vllm/engine/arg_utils.py"

OPTIONS = (
    Option(name="gpu_memory_utilization", kind="float", most=1, about="share of the card the engine claims", source=_ARGS),
    Option(name="kv_cache_memory_bytes", kind="bytes", about="cache size that replaces the budget", source=_ARGS),
    Option(name="max_num_seqs", kind="int", about="sequences decoded at once; rows of the sampler's profile run", source=_ARGS),
    Option(name="max_num_batched_tokens", kind="count", about="tokens of one step; length of the profile run", source=_ARGS),
    Option(name="block_size", kind="int", about="tokens per cache block", source=_ARGS),
    Option(name="enforce_eager", kind="bool", about="no CUDA graphs", source=_ARGS),
    Option(name="enable_prefix_caching", kind="bool", about="keeps states at block ends in hybrid models", source=_ARGS),
    Option(name="enable_expert_parallel", kind="bool", about="experts spread over ranks instead of cut", source=_ARGS),
    Option(name="data_parallel_size", kind="int", about="replicas that share experts", source=_ARGS),
    Option(name="num_gpu_blocks_override", kind="int", about="number of cache blocks whatever the budget", source=_ARGS),
    Option(name="disable_hybrid_kv_cache_manager", kind="bool", about="sliding layers pay the full length", source=_ARGS),
    Option(name="mamba_cache_dtype", kind="text", about="type of convolution states", source=_ARGS),
    Option(name="mamba_ssm_cache_dtype", kind="text", about="type of recurrent states", source=_ARGS),
    Option(name="num_speculative_tokens", kind="int", about="tokens drafted per step", source="vllm/config/speculative.py"),
    Option(name="speculative_method", kind="text", about="mtp, eagle or a draft model", source="vllm/config/speculative.py"),
    Option(name="speculative_model", kind="text", about="the draft model", source="vllm/config/speculative.py"),
    Option(name="enable_lora", kind="bool", about="LoRA slots are allocated at load", source="vllm/config/lora.py"),
    Option(name="max_loras", kind="int", about="LoRA slots", source="vllm/config/lora.py"),
    Option(name="max_lora_rank", kind="int", about="rank of each LoRA slot", source="vllm/config/lora.py"),
    Option(name="cpu_offload_gb", kind="float", about="GiB of weights kept in host memory per rank", source=_ARGS),
    Option(name="swap_space", kind="float", about="GiB of host memory for swapped blocks (V0)", source=_ARGS),
    Option(name="language_model_only", kind="bool", about="vision and audio towers are not loaded nor profiled", source=_ARGS),
    Option(name="attention_backend", kind="text", about="attention kernels, such as flash_attn or flashinfer", source=_ARGS),
    Option(name="flashinfer_sampler", kind="bool", about="FlashInfer samples", source="VLLM_USE_FLASHINFER_SAMPLER"),
    Option(name="expandable_segments", kind="bool", about="torch's segments grow", source="PYTORCH_CUDA_ALLOC_CONF"),
    Option(name="engine_core", kind="text", about="V0 or V1", choices=("V0", "V1"), source="VLLM_USE_V1"),
    Option(name="entry", kind="text", about="server or offline LLM class, whose batches differ", choices=("server", "offline")),
    Option(name="gpu_total_bytes", kind="bytes", about="memory the card shows, when it differs from the catalogue's"),
)  # fmt: skip
