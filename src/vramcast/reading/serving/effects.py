"""Flags that change memory or speed and that no rule here counts: what each changes, one table an engine.

Listed from vLLM 0.33.0's and SGLang 0.5.10's own parsers. The names of text-generation-launcher 3.3.6 (db931fcf, launcher/src),
LMDeploy 0.16.0 (1263d5cd8, cli/, messages.py), KTransformers (95009ea6), mlx-lm (d78bf58e, server.py,
generate.py), llama.cpp (00dc8057, tools/server/README.md) and
TensorRT-LLM (00046963 llmapi/llm_args.py TorchLlmArgs, commands/serve.py) were held against their sources; names of theirs that
those no longer have come from files people publish. A name that ends in * stands for all that begin so.
Their values are told in an answer beside what they change, so that nobody takes the figure for more than it is.
"""

import re

VERSIONS = {"vllm": "0.33.0", "sglang": "0.5.10", "llama_cpp": "00dc8057", "tensorrt_llm": "00046963", "tgi": "3.3.6",
            "lmdeploy": "0.16.0", "ktransformers": "95009ea6", "mlx": "d78bf58e"}  # fmt: skip
_DRAFT = "the draft's weights, cache and graphs"
_TOWER = "weights and activations of vision and audio towers"
_HOST = "host memory, and what moves between it and the card"
_EXPERTS = "copies of experts, and buffers of their exchange"
_KERNELS = "kernels and their workspaces"
_SPLIT = "what one server of a split deployment holds, and buffers of the transfer"
_GRAPHS = "captured graphs and their pool"
_WEIGHTS = "which weights are loaded, and in what format"
_BATCH = "tokens and requests of one step"
_CACHE = "the size and the layout of the cache"
_LAYOUT = "what each rank holds"

_TABLES: dict[str, dict[str, str]] = {
    "vllm": {
        _TOWER: "limit-mm-per-prompt* skip-mm-profiling mm-encoder* enable-mm-embeds video-pruning* mm-ipc* mm-processor-device",
        _HOST: "kv-offloading* offload* cpu-offload-params mm-processor-cache* mm-shm* max-cpu-loras kv-transfer-config* "
        "ec-transfer-config* ec-manager-config* engram-config*",
        _EXPERTS: "enable-eplb eplb-config* expert-placement-strategy all2all-backend enable-elastic-ep elastic* ubatch-size "
        "dbo-*",
        _KERNELS: "mamba-backend mamba-ssu-algorithm linear-backend gdn-* kda-* ir-op-priority kernel-config* attention-config* "
        "enable-flashinfer-autotune disable-custom-all-reduce monokernel sparse-indexer* use-fp64-gumbel disable-cascade-attn",
        _GRAPHS: "cudagraph-mode compilation-config* sleep-mode-offload-cudagraph",
        _WEIGHTS: "hf-overrides quantization-config model-class-overrides convert mm-device* "
        "model-loader-extra-config*",
        _BATCH: "max-num-scheduled-tokens max-num-active-seqs prompt-lookup* max-logprobs logprobs-mode disable-chunked-mm-input",
        _CACHE: "kv-cache-dtype-skip-layers kv-sharing-fast-prefill disable-sliding-window mamba-block-size mamba-cache-mode "
        "prefix-cache-retention-interval prefix-match-unit replayssm* use-replayssm "
        "mamba-cache-philox-rounds swa-bounded-replay calculate-kv-scales enable-mamba* cp-kv-cache* dcp-kv-cache*",
        _LAYOUT: "prefill-context-parallel-size dcp-* fully-sharded-loras lora-dtype lora-modules enable-hc-sp "
        "enable-mixed-moe-lora-format enable-moe-shared-loras lora-target-modules max-lora-cls-labels default-mm-loras "
        "sleep-mode-backend sleep-preserve-parameter-names enable-nccl-comm-suspend "
        "enable-batch-sharded-sampling enable-sleep-mode enable-cumem-allocator enable-prompt-embeds pooler-config* worker-cls "
        "additional-config* enable-tower-connector-lora specialize-active-lora",
        _DRAFT: "speculative-config* speculative-* diffusion-config*",
    },
    "sglang": {
        _DRAFT: "speculative-* enable-multi-layer-eagle",
        _HOST: "enable-hierarchical-cache hicache-* cpu-offload-gb offload-* enable-lmcache enable-hisparse hisparse-config kt-* "
        "disaggregation-decode-enable-offload-kvcache enable-weights-cpu-backup enable-draft-weights-cpu-backup",
        _SPLIT: "disaggregation-* num-reserved-decode-tokens encoder-only language-only encoder-*",
        _EXPERTS: "moe-a2a-backend deepep-* ep-num-redundant-experts ep-dispatch-algorithm init-expert-location enable-eplb "
        "eplb-* elastic-ep-backend enable-two-batch-overlap enable-single-batch-overlap moe-dense-tp-size "
        "disable-shared-experts-fusion",
        _KERNELS: "attention-backend prefill-attention-backend decode-attention-backend sampling-backend nsa-* fp8-gemm-backend "
        "fp4-gemm-backend mamba-backend linear-attn-* flashinfer-* enable-flashinfer* enable-aiter* disable-custom-all-reduce "
        "enable-mscclpp enable-torch-symm-mem enable-symm-mem triton-attention-* disable-flashinfer* enable-deepep-moe "
        "enable-fused* fp8-gemm-runner-backend enable-mla disable-mla enable-deterministic-inference",
        _GRAPHS: "*piecewise-cuda-graph* disable-cuda-graph-padding enable-cudagraph-gc cuda-graph-backend* enable-memory-saver",
        _WEIGHTS: "is-embedding modelopt-* torchao-config quantization-param-path json-model-override-args rl-quant-profile "
        "enable-multimodal model-loader-extra-config enable-fp32-lm-head",
        _BATCH: "max-queued-requests prefill-max-requests pp-max-micro-batch-size enable-dynamic-chunking max-prefill-tokens "
        "num-reserved* enable-prefill-delayer",
        _CACHE: "hybrid-kvcache-ratio disable-hybrid-swa-memory radix-eviction-policy mamba-scheduler-strategy "
        "mamba-track-interval enable-double-sparsity ds-* disable-chunked-prefix-cache",
        _LAYOUT: "attention-context-parallel-size moe-data-parallel-size enable-lora max-lora* max-loras* lora-* "
        "enable-dp-lm-head enable-attn-tp* enable-nsa-prefill* enable-prefill-context* enable-pdmux device",
        _TOWER: "mm-* keep-mm-feature-on-device limit-mm-data* enable-mm* enable-prefix-mm-cache enable-broadcast-mm*",
    },
    "llama_cpp": {
        _DRAFT: "model-draft spec-* draft-* -ngld n-gpu-layers-draft gpu-layers-draft ctx-size-draft -cd cache-type-k-draft "
        "-ctkd cache-type-v-draft -ctvd n-cpu-moe-draft cpu-moe-draft -cmoed hf-repo-draft -hfd device-draft -devd",
        _TOWER: "mmproj mmproj-* image-min-tokens image-max-tokens mtmd-batch-max-tokens -mm -mmu -mmdev",
        _WEIGHTS: "lora lora-* control-vector* override-kv check-tensors models-preset models-max models-autoload lazy-mode -lzm",
        _CACHE: "grp-attn-* keep kv-unified-per-slot",
        # server_prompt_cache and the checkpoints of a slot are vectors of the host (00dc8057, tools/server/server-task.h)
        _HOST: "cache-ram -cram ctx-checkpoints -ctxcp swa-checkpoints checkpoint-min-step -cms cache-idle-slots",
        _LAYOUT: "main-gpu -mg device rpc repack -nr host load-mode -lm direct-io -dio n-cpu-ffn -ncffn",
        _EXPERTS: "moe-cache-mib",
        _KERNELS: "op-offload* -fdn fused* graph-reuse -gr -smgs max-gpu -cuda cuda-params -vq backend-sampling -bs",
    },
    "tensorrt_llm": {
        _LAYOUT: "enable-attention-dp attention-dp-config* enable-lm-head-tp-in-adp context-parallel-size moe-cluster* "
        "gpus-per-node cp-size cp-config* cluster-size sleep-config* gms-config* dwdp-config*",
        _DRAFT: "speculative-config*",
        _EXPERTS: "moe-config* moe-backend moe-load-balancer",
        _GRAPHS: "cuda-graph-config* use-cuda-graph torch-compile-config* cuda-graph-* prefill-cuda-graph-backend "
        "prefill-capture-num-tokens enable-in-graph-sampling encoder-cuda-graph-config*",
        _TOWER: "mm-encoder-only disable-mm-encoder multimodal-config* encoder-max*",
        _SPLIT: "cache-transceiver-config* disaggregated*",
        _HOST: "kv-cache-config.host-cache-size kv-cache-config.secondary* kv-connector-config*",
        _CACHE: "kv-cache-config.max-attention-window sparse-attention-config* kv-cache-config.* mamba-*",
        _KERNELS: "allreduce-strategy attn-backend nvfp4-gemm-config* enable-autotuner backend gemm* autotuner* use-torch* "
        "use-cute-dsl* enable-mla-skip-correction enable-min-latency use-fine-grained-sync",
        _BATCH: "max-beam-width enable-chunked-prefill max-input-len scheduler-config* batch-wait*",
        _WEIGHTS: "quant-config* load-format* lora-config* pytorch-backend-config* build-config* checkpoint-format mx-config* "
        "force-dynamic-quantization encode-only",
    },
    "tgi": {
        _DRAFT: "speculate", _GRAPHS: "cuda-graphs disable-custom-kernels", _CACHE: "kv-cache-dtype rope-* prefix-caching",
        _WEIGHTS: "lora-adapters", _KERNELS: "attention sharded",
    },
    "lmdeploy": {
        _CACHE: "enable-prefix-caching rope-scaling-factor block-size kernel-block-size prefix-cache-*",
        _BATCH: "num-tokens-per-iter max-prefill-iters prefill-interval batch-size dummy-prefill",
        _GRAPHS: "cudagraph-capture-batch-sizes", _TOWER: "language-model-only vision-max-batch-size",
        _KERNELS: "communicator eager-mode device async", _DRAFT: "speculative-* spec-*",
        _WEIGHTS: "adapters hf-overrides model-format quant-dtype use-logn-attn", _SPLIT: "role migration-backend",
        _EXPERTS: "enable-microbatch enable-eplb dllm-*", _LAYOUT: "cp nnodes node-rank attn-tp-size",
    },
    "mlx": {
        _DRAFT: "draft-model num-draft-tokens", _BATCH: "decode-concurrency prompt-concurrency prefill-step-size max-tokens",
        _CACHE: "prompt-cache-size prompt-cache-bytes max-kv-size kv-bits kv-group-size quantized-kv-start",
        _LAYOUT: "pipeline", _WEIGHTS: "adapter-path",
    },
    "ktransformers": {
        _HOST: "kt-* cpu-infer gguf-path cpu-memory*", _LAYOUT: "optimize-config-path gpu-split* num-gpu-experts",
        _BATCH: "chunk-size max-batch-size", _CACHE: "cache-q4 page-size cache-8bit memory-gpu*",
        _KERNELS: "use-cuda-graph backend-type attn*",
    },
}  # fmt: skip
# Values under which a flag of the tables changes no card's memory. NIXL registers the cache where it lies, but for a buffer that
# kv_buffer_device moves to the host (vLLM 0.11, nixl_connector.py register_kv_caches); requests wait in the host's queue (SGLang
# 0.5.10, scheduler.py); TurboMind has no eager mode (LMDeploy 0.16.0, messages.py TurbomindEngineConfig).
_IDLE_VALUES: dict[str, tuple[tuple[str, str], ...]] = {
    "vllm": (
        ("kv-transfer-config", r'(?!.*kv_buffer_device)(?!.*Multi).*"kv_connector"\s*:\s*"NixlConnector".*'),
        ("kv-transfer-config.kv-connector", "NixlConnector"), ("kv-transfer-config.kv-role", r"\w+"),
    ),
    "sglang": (("device", "cuda"), ("max-queued-requests", r"\d+"), ("disaggregation-bootstrap-port", r"\d+")),
    "lmdeploy": (("eager-mode", ""),),
}  # fmt: skip
# Positions alone, not the cells of the cache: n_ctx is --ctx-size's (llama.cpp 00dc8057, common/common.cpp common_context_params)
_IDLE_VALUES |= dict.fromkeys(
    ("llama_cpp", "ik_llama_cpp", "ollama"),
    tuple((name, r"[\w.+-]*") for name in (
        "rope-scaling", "rope-scale", "rope-freq-base", "rope-freq-scale", "yarn-orig-ctx", "yarn-ext-factor",
        "yarn-attn-factor", "yarn-beta-slow", "yarn-beta-fast", "cache-prompt",
    )),
)  # fmt: skip
_TABLES["ik_llama_cpp"] = _TABLES["ollama"] = _TABLES["llama_cpp"]
# Variables of an environment that choose kernels and how ranks talk: speed, and workspaces that no rule counts.
KERNEL_VARIABLES = (
    "VLLM_USE_", "VLLM_ROCM_", "VLLM_FLASHINFER_", "VLLM_FLASH_ATTN_", "VLLM_MOE_", "VLLM_ALL2ALL_", "VLLM_DEEPEP_",
    "VLLM_FUSED_", "VLLM_DEEP_GEMM_", "VLLM_MXFP4_", "VLLM_NVFP4_", "VLLM_CPU_OMP", "VLLM_ENABLE_", "VLLM_DISABLE_",
    "VLLM_MARLIN_", "VLLM_TRITON_", "SGLANG_ENABLE_", "SGLANG_USE_", "SGLANG_DISABLE_", "SGLANG_SET_", "SGLANG_MOE_",
    "SGLANG_NSA_", "SGL_",
    "SGLANG_FLASHINFER_", "TRTLLM_", "TLLM_", "GGML_CUDA_", "SGLANG_CUTEDSL_", "SGLANG_DEEPEP_", "SGLANG_OPT_", "SGLANG_JIT_",
    "SGLANG_TBO_",
)  # fmt: skip


def effect_of(engine: str, flag: str) -> str:
    """What a flag changes that no rule counts, "" for one that the engine's table does not have; switched off, the same."""
    spoken = flag.removeprefix("no-")
    for effect, names in _TABLES.get(engine, {}).items():
        if any(_fits(spoken, name) for name in names.split()):
            return effect
    return ""


def leaves_memory(engine: str, flag: str, value: str) -> bool:
    """Whether a flag of the tables leaves a card's memory as it is, by its value: its source stands beside it."""
    plain = flag.removeprefix("no-")
    return any(plain == name and re.fullmatch(told, value, re.S) for name, told in _IDLE_VALUES.get(engine, ()))


def chooses_kernels(variable: str) -> bool:
    """Whether an environment's variable chooses kernels."""
    return variable.startswith(KERNEL_VARIABLES)


def _fits(flag: str, name: str) -> bool:
    if name.startswith("*"):
        return name.strip("*") in flag
    return flag.startswith(name[:-1]) if name.endswith("*") else flag == name
