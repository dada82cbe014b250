"""vLLM's flags that decide memory."""

from vramcast.serving.engines.options import Option

_ARGS = "vllm/engine/arg_utils.py"
_DRAFTS = "vllm/config/speculative.py"
_BACKENDS = "vllm/v1/attention/backends/registry.py"

STATE_TYPES = ("auto", "float32", "float16", "bfloat16")
# config/speculative.py SpeculativeMethod; "..._mtp" are the model's own multi-token-prediction layers by older names
METHODS = (  # SpeculativeMethod of 0.33.0, and two of earlier releases (medusa, mlp_speculator)
    "mtp", "eagle", "eagle3", "ngram", "ngram_gpu", "medusa", "mlp_speculator", "draft_model", "suffix", "dflash", "dspark",
    "custom_class", "extract_hidden_states",
    "deepseek_mtp", "dots3_note_mtp", "mimo_mtp", "mimo_v2_mtp", "glm4_moe_mtp", "glm4_moe_lite_mtp", "glm_ocr_mtp", "ernie_mtp",
    "nemotron_h_mtp", "exaone_moe_mtp", "exaone4_5_mtp", "qwen3_next_mtp", "qwen4_exp_mtp", "qwen3_5_mtp", "longcat_flash_mtp",
    "bailing_hybrid_v3_mtp", "minimax_m3_mtp", "bailing_hybrid_mtp", "kimi_k3_mtp", "pangu_ultra_moe_mtp", "step3p5_mtp",
    "step5_mtp", "hy_v3_mtp", "hy_v4_mtp", "gemma4_mtp", "inkling_mtp", "glm5_next_mtp",
)  # fmt: skip
BACKENDS = (
    "auto", "flash_attn", "flash_attn_diffkv", "flash_attn_mla", "flashinfer", "flashinfer_mla", "flashinfer_mla_sparse",
    "flashmla", "flashmla_sparse", "cutlass_mla", "triton_attn", "triton_mla", "flex_attention", "tree_attn", "torch_sdpa",
    "xformers", "rocm_attn", "rocm_flash", "rocm_aiter_fa", "rocm_aiter_mla", "rocm_aiter_mla_sparse",
    "rocm_aiter_triton_mla", "rocm_aiter_unified_attn", "cpu_attn", "pallas", "ipex", "no_attention",
    "flash_attn_vllm_v1", "flashinfer_vllm_v1", "triton_attn_vllm_v1",
)  # fmt: skip
RUNNERS = ("auto", "generate", "pooling")
# --moe-backend (config/kernel.py MoEBackend)
EXPERT_KERNELS = (
    "auto", "triton", "triton_unfused", "deep_gemm", "cutlass", "flashinfer_trtllm", "flashinfer_trtllm_afp8",
    "flashinfer_cutlass", "flashinfer_cutlass_afp8", "flashinfer_cutedsl", "marlin", "humming", "aiter", "emulation", "ck", "xpu",
    "aiter_mega_moe", "aiter_triton_mxfp4_bf16", "aiter_triton_mxfp4_mxfp4", "b12x", "batched_triton", "deep_gemm_mega_moe",
    "flashinfer_b12x", "flashinfer_moe_ep_cutedsl", "flashinfer_moe_ep_mega_deep_gemm", "flydsl", "hpc", "rdna3",
)  # fmt: skip

OPTIONS = (
    Option(name="gpu_memory_utilization", kind="fraction", about="share of the card the engine claims", source=_ARGS),
    Option(name="kv_cache_memory_bytes", kind="bytes", about="cache size that replaces the budget", source=_ARGS),
    Option(name="max_num_seqs", kind="positive", about="sequences decoded at once; rows of the sampler's run", source=_ARGS),
    Option(name="max_num_batched_tokens", kind="count", about="tokens of one step; length of the profile run", source=_ARGS),
    Option(name="max_positions", kind="positive", about="positions of a longer rope", source=_ARGS),
    Option(name="allow_longer_context", kind="bool", about="beyond the positions", source="VLLM_ALLOW_LONG_MAX_MODEL_LEN"),
    Option(name="block_size", kind="positive", most=2**20, about="tokens per cache block", source=_ARGS),
    Option(name="enforce_eager", kind="bool", about="no CUDA graphs", source=_ARGS),
    Option(name="max_cudagraph_capture_size", kind="positive", most=10**4, about="largest batch captured", source=_ARGS),
    Option(name="enable_prefix_caching", kind="bool", about="keeps states at block ends in hybrid models", source=_ARGS),
    Option(name="enable_expert_parallel", kind="bool", about="experts spread over ranks instead of cut", source=_ARGS),
    Option(name="data_parallel_size", kind="positive", about="replicas that share experts", source=_ARGS),
    Option(name="decode_context_parallel_size", kind="positive", about="ranks that share a sequence's cache", source=_ARGS),
    Option(name="num_gpu_blocks_override", kind="positive", about="number of cache blocks whatever the budget", source=_ARGS),
    Option(name="disable_hybrid_kv_cache_manager", kind="bool", about="sliding layers pay the full length", source=_ARGS),
    Option(name="mamba_cache_dtype", kind="text", choices=STATE_TYPES, about="type of convolution states", source=_ARGS),
    Option(name="mamba_ssm_cache_dtype", kind="text", choices=STATE_TYPES, about="type of recurrent states", source=_ARGS),
    Option(name="num_speculative_tokens", kind="int", most=10**4, about="tokens drafted per step", source=_DRAFTS),
    Option(name="speculative_method", kind="text", choices=METHODS, about="mtp, eagle or a draft model", source=_DRAFTS),
    Option(name="speculative_model", kind="text", about="the draft model", source=_DRAFTS),
    Option(name="enable_lora", kind="bool", about="LoRA slots are allocated at load", source="vllm/config/lora.py"),
    Option(name="max_loras", kind="positive", most=10**4, about="LoRA slots", source="vllm/config/lora.py"),
    Option(name="max_lora_rank", kind="positive", most=4096, about="rank of each LoRA slot", source="vllm/config/lora.py"),
    Option(name="cpu_offload_gb", kind="float", about="GiB of weights kept in host memory per rank", source=_ARGS),
    Option(name="swap_space", kind="float", about="GiB of host memory for swapped blocks (V0)", source=_ARGS),
    Option(name="language_model_only", kind="bool", about="vision and audio towers are not loaded nor profiled", source=_ARGS),
    Option(name="skip_mm_profiling", kind="bool", about="towers are loaded, not profiled", source="vllm/config/multimodal.py"),
    Option(name="runner", kind="text", choices=RUNNERS, about="pooling: no sampler, no whole decode graphs", source=_ARGS),
    Option(name="attention_backend", kind="text", choices=BACKENDS, about="attention kernels", source=_BACKENDS),
    Option(name="moe_backend", kind="text", choices=EXPERT_KERNELS, about="kernels of routed experts", source=_ARGS),
    Option(name="flashinfer_sampler", kind="bool", about="FlashInfer samples", source="VLLM_USE_FLASHINFER_SAMPLER"),
    Option(name="expandable_segments", kind="bool", about="torch's segments grow", source="PYTORCH_CUDA_ALLOC_CONF"),
    Option(name="engine_core", kind="text", about="V0 or V1", choices=("V0", "V1"), source="VLLM_USE_V1"),
    Option(name="entry", kind="text", about="server or offline LLM class, whose batches differ", choices=("server", "offline")),
    Option(name="gpu_total_bytes", kind="bytes", least=1, about="memory the card shows, when it differs from the catalogue's"),
)  # fmt: skip
