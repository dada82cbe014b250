"""vLLM's rules by the version they hold from: defaults, and which form of each rule was in force.

Read from the releases 0.4.1 to 0.33.0: vllm/config, vllm/engine/arg_utils.py, vllm/v1/worker/gpu_worker.py and
vllm/v1/worker/gpu_model_runner.py; the constants marked "logs" are what start-up logs of those releases print.
"""

from math import hypot

from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import Term
from vramcast.quantity import Number, maximum, where
from vramcast.serving.engines.base import GB10, Fitted, Table, Version, at
from vramcast.units import GiB

VERSIONS = ("0.4.1", "0.5.4", "0.6.4", "0.7.3", "0.8.5", "0.9.2", "0.10.2", "0.11.0", "0.13.0", "0.16.0", "0.17.1", "0.19.1",
            "0.21.0", "0.25.1", "0.29.0", "0.33.0")  # fmt: skip

# the last stage but one takes what does not divide (distributed/utils.py get_pp_indices), before it the last stage
MIDDLE_SPLIT: Table[bool] = (((0,), False), ((0, 7), True))
# V0 prefills prompts beyond 32k in chunks
CHUNKS_LONG_PROMPTS: Table[bool] = (((0,), False), ((0, 5), True))
# a step is never longer than all sequences at their longest (engine/arg_utils.py)
CAPS_STEP: Table[bool] = (((0,), False), ((0, 9), True))
UTILIZATION: Table[float] = (((0,), 0.90), ((0, 21), 0.92))
# cards of 70 GiB have batches and sequences of their own, and from 0.29 those of 160 GiB too (engine/arg_utils.py)
LARGE_BATCHES: Table[bool] = (((0,), False), ((0, 8, 5), True))
HUGE_BATCHES: Table[bool] = (((0,), False), ((0, 29), True))
LARGE_SEQUENCES: Table[int] = (((0,), 256), ((0, 9, 2), 1024))
# V1 became the default engine in 0.8 and the only one in 0.11
ENGINE_CORE: Table[str] = (((0,), "V0"), ((0, 8), "V1"))
# CUDA graph memory is subtracted from the budget (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS on)
SUBTRACTS_GRAPHS: Table[bool] = (((0,), False), ((0, 21), True))
# the context counts as used: V1 read the device before it took a baseline
COUNTS_CONTEXT: Table[bool] = (((0,), True), ((0, 9), False))
# sliding-window layers get their own, shorter block tables (hybrid KV cache manager)
HYBRID_MANAGER: Table[bool] = (((0,), False), ((0, 9, 2), True))
# the group size is the largest bucket's when it is below this multiple of the smallest
GROUP_STRETCH: Table[float] = (((0,), 1.25), ((0, 29), 1.5))
# batches in flight that a sliding window must hold at once
BATCHES_IN_FLIGHT: Table[int] = (((0,), 1), ((0, 25), 2))
# "GPU KV cache size" printed as concurrency times length rather than blocks over groups
PRINTS_EFFECTIVE_TOKENS: Table[bool] = (((0,), False), ((0, 21), True))
# top-k/top-p by a Triton pivot search instead of a full sort of the logits
SAMPLER: Table[str] = (((0,), "sort"), ((0, 17), "pivot"))
# FlashInfer's sampler unless VLLM_USE_FLASHINFER_SAMPLER=0 (vllm-project/vllm#40376)
FLASHINFER_SAMPLER: Table[bool] = (((0,), False), ((0, 21), True))
# the fused-MoE workspace stays allocated after the forward (v1/worker/workspace.py)
KEEPS_MOE_WORKSPACE: Table[bool] = (((0,), False), ((0, 12), True))
# latent attention kept its projections multiplied out in 16 bits: query with key, value with output (attention/backends/mla)
ABSORBS_LATENT: Table[bool] = (((0,), False), ((0, 7, 1), True), ((0, 8), False))
# a latent is cached rather than the keys and values of all heads; at first under weights in 16 bits or fp8 alone (config.py
# use_mla: "MLA is not supported with %s quantization", which 0.7.2 still prints, vllm-project/vllm#13085)
CACHES_LATENT: Table[bool] = (((0,), False), ((0, 7, 1), True))
CACHES_LATENT_OF_QUANTIZED: Table[bool] = (((0,), False), ((0, 7, 3), True))
# classes with latents that no release caches as such (transformers_utils/model_arch_config_convertor.py, is_deepseek_mla)
CACHED_AS_HEADS = frozenset({"minicpm3"})
# LoRA slots are allocated while weights are counted; before, V0 made them afterwards, and its budget never saw them
# (worker/model_runner.py load_model: the line "Loading model weights took" stands before create_lora_manager)
LORA_IN_WEIGHTS: Table[bool] = (((0,), False), ((0, 7, 3), True))
# tables of multimodal rotary sections are four times as long, for video (rotary_embedding.py MRotaryEmbedding, with Qwen2.5-VL)
LONG_SECTIONS: Table[bool] = (((0,), False), ((0, 7, 2), True))
# encoders keep no keys and values (vllm-project/vllm#21270); before, V0 gave them a pool as if they generated
ENCODERS_UNCACHED: Table[bool] = (((0,), False), ((0, 10, 1), True))
# tokens per chunk of the fused-MoE kernels, 0 = no chunks
MOE_CHUNK: Table[int] = (((0,), 65536), ((0, 14), 16384), ((0, 18), 0))

# the second model runner: for the rest of the dense models, for quantised ones, at last for all; at first it reserved nothing
# for its graphs (config/vllm.py use_v2_model_runner; vllm-project/vllm#43458, #44443, #53183, #53306)
SECOND_RUNS_DENSE: Table[bool] = (((0,), False), ((0, 25), True))
SECOND_RUNS_QUANTIZED: Table[bool] = (((0,), False), ((0, 24), True))
SECOND_RUNS_ALL: Table[bool] = (((0,), False), ((0, 29), True))
SECOND_RESERVES_GRAPHS: Table[bool] = (((0,), False), ((0, 29), True))
# what is used is read off the device after the profile run; before, what torch held before it and no weight was in no budget
# (utils/mem_utils.py memory_profiling, total_consumed; vllm-project/vllm#37111)
COUNTS_ALL_USED: Table[bool] = (((0,), False), ((0, 27), True))
# the second runner copied logits to fp32 whatever is asked, since for requests that need it; 0.33 profiles such requests
# (v1/worker/gpu/sample/sampler.py, v1/worker/gpu/model_runner.py _dummy_sampler_run; vllm-project/vllm#57926)
SECOND_SAMPLER: Table[str] = (((0,), "in_place"), ((0, 26), "as_they_are"), ((0, 33), "in_place"))
# a latent token is padded to this many elements (attention/backends/mla/common.py)
LATENT_MULTIPLE: Table[int] = (((0,), 128), ((0, 8), 1))
# recurrent states are kept at block ends where prefixes are cached (mamba_cache_mode "align"); hybrids do so by default later
ALIGNS_STATES: Table[bool] = (((0,), False), ((0, 14), True))
CACHES_HYBRID_PREFIXES: Table[bool] = (((0,), False), ((0, 25), True))
# input and output embeddings had slots of their own until adapters with extra vocabulary were dropped, in the models that name
# them (``embedding_modules`` of vllm/model_executor/models/llama.py, mixtral.py, granite.py...; qwen2.py and qwen3.py name none)
EMBEDDING_SLOTS: Table[bool] = (((0,), True), ((0, 12), False))
# pixels are cast to the model's type where they are made; before, they stay fp32 (vllm-project/vllm#18862)
CASTS_PIXELS: Table[bool] = (((0,), False), ((0, 9, 1), True))
# the first runner's dummy sampler works on random states of the sampled rows, beside those rows themselves
DRAWS_STATES: Table[bool] = (((0,), False), ((0, 9), True))
# whose "max seq len" the refusal names
WHOSE: Table[str] = (((0,), "models's"), ((0, 25), "model's"))

# what V1 captures: the ladder of V1 rather than V0's; sizes above 256 are 8 apart, then 16; whole decode graphs besides; sizes up
# to twice the sequences rather than 512 whatever they are; 1024 on Blackwell data-centre cards; V0 stopped at 256 (config/vllm.py
# _set_cudagraph_sizes, config.py cuda_graph_sizes, worker/model_runner.py _BATCH_SIZES_TO_CAPTURE)
V1_SIZES: Table[bool] = (((0,), False), ((0, 8), True))
WIDE_STEP: Table[int] = (((0,), 8), ((0, 11), 16))
WHOLE_GRAPHS: Table[bool] = (((0,), False), ((0, 11), True))
# models with recurrent states had them a release earlier (model_executor/models/config.py MambaModelConfig)
WHOLE_GRAPHS_OF_STATES: Table[bool] = (((0,), False), ((0, 10, 2), True))
SIZES_BY_SEQUENCES: Table[bool] = (((0,), False), ((0, 10), True))
LARGEST_ON_BLACKWELL: Table[int] = (((0,), 512), ((0, 29), 1024))
LARGEST_OF_V0: Table[int | None] = (((0,), 256), ((0, 6), None))
# attention over a cache in fp8 is FlashInfer's where FlashAttention-3 does not run (platforms/cuda.py _get_backend_priorities,
# attention/backends/fa_utils.py flash_attn_supports_fp8), and its kernels are warmed before the capture where all layers are its
# (model_executor/warmup/kernel_warmup.py)
FLASHINFER_READS_FP8: Table[bool] = (((0,), False), ((0, 12), True))
WARMS_FLASHINFER: Table[bool] = (((0,), False), ((0, 11), True))
# adapters' kernels are launched while capturing by V0, and again by V1
CAPTURES_LORA: Table[bool] = (((0,), False), ((0, 11), True))

_OLD = "a log of that release"
_GRAPHS_BEFORE, _GRAPHS = "graphs in start-up logs of 0.6.4 to 0.10.2", "graphs in start-up logs of 0.11 to 0.19"
_LOGS_19 = "start-up logs of 0.18 and 0.19 on H100, L4 and RTX cards"
# the graphs' private pool, and what each captured size adds to it, MiB
POOL_MIB: Table[Fitted] = (
    ((0,), Fitted(150, 7, _GRAPHS_BEFORE)), ((0, 11), Fitted(64, 46, _GRAPHS)),
)  # fmt: skip
SIZE_MIB: Table[Fitted] = (
    ((0,), Fitted(4.7, 7, _GRAPHS_BEFORE)), ((0, 11), Fitted(1.9, 46, _GRAPHS)),
)  # fmt: skip

# memory outside torch that appears during the profile run on one card, GiB: libraries loaded lazily. Before 0.6.4 free memory was
# read off the device, so that the allocator's unused segments count as well; 0.6.4 took all that torch did not allocate, the
# context with it (vllm/worker/worker.py)
NON_TORCH: Table[Fitted] = (
    ((0,), Fitted(0.60, 1, _OLD)),
    ((0, 6, 4), Fitted(0.51, 1, _OLD)),
    ((0, 6, 5), Fitted(0.21, 2, "vllm-project/vllm#12126 and a log of 0.6.5")),
    ((0, 7), Fitted(0.05, 7, "start-up logs of 0.7 to 0.9")),
    ((0, 10), Fitted(0.07, 2, "start-up logs of 0.10.2")),
    ((0, 11), Fitted(0.13, 8, "start-up logs of 0.11 to 0.17")),
    ((0, 18), Fitted(0.25, 24, _LOGS_19)),
)
# the same with tensor parallelism: collectives' buffers as well, which are larger over NVLink from 0.18 on (symmetric memory of
# Hopper and data-centre Blackwell, distributed/device_communicators/symm_mem.py); cards joined by PCIe alone: the smaller
NON_TORCH_TP: Table[Fitted] = (
    ((0,), Fitted(0.25, 1, _OLD)),
    ((0, 6, 5), Fitted(0.39, 1, "vllm-project/vllm#11251")),
    ((0, 7), Fitted(0.25, 2, "start-up logs of 0.7 to 0.9")),
    ((0, 11), Fitted(0.54, 2, "start-up logs of 0.11 to 0.17")),
    ((0, 18), Fitted(2.10, 16, _LOGS_19)),
)
NON_TORCH_TP_PCIE: Table[Fitted] = NON_TORCH_TP[:-1]
# pipeline ranks without tensor parallelism
NON_TORCH_PP: Table[Fitted] = (((0,), Fitted(0.07, 2, "start-up logs of 0.19 in a pipeline")),)
# a DGX Spark's free memory is what its system has left (utils/mem_utils.py MemorySnapshot: psutil's available): the process's own
# growth counts too, GiB, and a share of the weights. Both are fitted and no mechanism is known for the share: 1 to 73 GiB of
# weights took 2.0 to 8.2 GiB, one of 56 GiB 16; four starts of DeepSeek-V4-Flash were nearer without it
HOST = Fitted(2.3, 11, "starts of 0.11 to 0.29 on a DGX Spark with 1 to 73 GiB of weights")
HOST_SHARE = 0.05


def utilization(version: Version) -> float:
    """Default of --gpu-memory-utilization."""
    return at(version, UTILIZATION)


def batched_tokens(version: Version, core: str, card: Accelerator | None, *, server: bool, context: Number) -> Number:
    """Default of --max-num-batched-tokens (arg_utils.py; the tiers look at the card's memory and exclude the A100)."""
    if core == "V0":
        long = at(version, CHUNKS_LONG_PROMPTS) and context > 32768
        return where(long, 2048, maximum(context, 2048))
    if large(card) and at(version, LARGE_BATCHES):
        huge = card is not None and card.visible_bytes >= 160 * GiB and at(version, HUGE_BATCHES)
        return 16384 if huge or not server else 8192
    return 2048 if server else 8192


def sequences(version: Version, card: Accelerator | None) -> int:
    """Default of --max-num-seqs."""
    return at(version, LARGE_SEQUENCES) if large(card) else 256


def large(card: Accelerator | None) -> bool:
    """Whether the card is in the tier of at least 70 GiB; the A100 and the GB10 are kept out by name."""
    return card is not None and card.visible_bytes >= 70 * GiB and "a100" not in card.id.lower() and card.capability != GB10


def non_torch_term(version: Version, card: Accelerator | None, *, tp: int, pp: int, weights: int = 0) -> Term:
    """Memory outside torch that the profile run adds: libraries and collectives, and on a DGX Spark the process's own growth."""
    fitted = _libraries(version, card, tp=tp, pp=pp)
    size, slack = round(fitted.value * GiB), fitted.slack(fitted.value * GiB)
    why = f"{fitted.value:g} GiB of libraries and collectives outside torch at tp={tp} pp={pp}: {fitted.why}"
    if card is not None and card.capability == GB10:
        host = HOST.value * GiB + HOST_SHARE * weights
        size, slack = size + round(host), hypot(slack, HOST.slack(host))
        why += f"; {HOST.value:g} GiB and {HOST_SHARE:.0%} of the weights for the process in the same memory: {HOST.why}"
    return Term(name="communication", bytes=size, why=why, source="vLLM start-up logs, by release", slack=slack)


def _libraries(version: Version, card: Accelerator | None, *, tp: int, pp: int) -> Fitted:
    if tp > 1:
        linked = card is None or (card.link_bytes_per_s > 0 and (card.capability or (0, 0)) >= (9, 0))
        return at(version, NON_TORCH_TP if linked else NON_TORCH_TP_PCIE)
    return at(version, NON_TORCH_PP if pp > 1 else NON_TORCH)
