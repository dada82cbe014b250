"""SGLang's flags that decide memory."""

from vramcast.serving.engines.options import Option

_ARGS = "sglang/srt/server_args.py"

STATE_TYPES = ("float32", "bfloat16", "float16")
# --moe-runner-backend (server_args.py MOE_RUNNER_BACKEND_CHOICES)
EXPERT_KERNELS = (
    "auto", "deep_gemm", "triton", "triton_kernel", "flashinfer_trtllm", "flashinfer_trtllm_routed", "flashinfer_cutlass",
    "flashinfer_mxfp4", "flashinfer_cutedsl", "cutlass", "marlin", "aiter",
)  # fmt: skip

OPTIONS = (
    Option(name="mem_fraction_static", kind="fraction", about="share of free memory for weights and cache", source=_ARGS),
    Option(name="chunked_prefill_size", kind="positive", about="tokens of a prefill chunk", source=_ARGS),
    Option(name="max_running_requests", kind="positive", about="requests decoded at once", source=_ARGS),
    Option(name="max_total_tokens", kind="count", about="cache tokens, whatever the budget allows", source=_ARGS),
    Option(name="cuda_graph_max_bs", kind="positive", about="largest captured decode batch", source=_ARGS),
    Option(name="disable_cuda_graph", kind="bool", about="no CUDA graphs", source=_ARGS),
    Option(name="disable_piecewise_cuda_graph", kind="bool", about="no prefill pieces are captured", source=_ARGS),
    Option(name="disable_radix_cache", kind="bool", about="no prefix reuse: one state slot per request", source=_ARGS),
    Option(name="max_positions", kind="positive", about="positions of a longer rope", source=_ARGS),
    Option(name="allow_longer_context", kind="bool", about="beyond the positions", source="srt/environ.py"),
    Option(name="page_size", kind="positive", most=2**20, about="tokens per cache page", source=_ARGS),
    Option(name="swa_full_tokens_ratio", kind="float", most=1, about="tokens of the sliding pool over the full", source=_ARGS),
    Option(name="mamba_full_memory_ratio", kind="float", about="bytes of states over bytes of the cache", source=_ARGS),
    Option(name="max_mamba_cache_size", kind="positive", about="recurrent state slots", source=_ARGS),
    Option(name="mamba_ssm_dtype", kind="text", choices=STATE_TYPES, about="type of recurrent states", source=_ARGS),
    Option(name="enable_dp_attention", kind="bool", about="attention by data parallel ranks", source=_ARGS),
    Option(name="dp_size", kind="positive", about="data parallel ranks", source=_ARGS),
    Option(name="enable_expert_parallel", kind="bool", about="experts spread over ranks", source=_ARGS),
    Option(name="speculative_algorithm", kind="text", about="EAGLE, EAGLE3, NEXTN or another way of drafting", source=_ARGS),
    Option(
        name="speculative_draft_model_path",
        kind="text",
        about="the draft model",
        source=_ARGS,
        flags=("--speculative-draft-model",),
    ),
    Option(name="num_speculative_tokens", kind="int", most=10**4, about="tokens drafted per step", source=_ARGS),
    Option(
        name="kt_num_gpu_experts", kind="int", about="routed experts of a layer on the card, others on the host (KTransformers)",
        source="sglang/srt/layers/moe/kt_ep_wrapper.py",
    ),
    Option(name="moe_runner_backend", kind="text", choices=EXPERT_KERNELS, about="kernels of routed experts", source=_ARGS),
    Option(name="gpu_total_bytes", kind="bytes", least=1, about="memory the card shows, when it differs from the catalogue's"),
)  # fmt: skip
