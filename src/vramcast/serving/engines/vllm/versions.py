"""vLLM's rules by the version they hold from: defaults, and which form of each rule was in force.

Read from the releases 0.4.1 to 0.33.0: vllm/config, vllm/engine/arg_utils.py, vllm/v1/worker/gpu_worker.py and
vllm/v1/worker/gpu_model_runner.py; the constants marked "logs" are what start-up logs of those releases print.
"""

from vramcast.hardware.accelerator import Accelerator
from vramcast.quantity import Number, maximum, where
from vramcast.serving.engines.versions import Table, Version, at
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
ABSORBS_LATENT: Table[bool] = (((0,), False), ((0, 7), True), ((0, 8), False))
# LoRA slots are allocated while weights are counted; before, V0 made them afterwards, and its budget never saw them
# (worker/model_runner.py load_model: the line "Loading model weights took" stands before create_lora_manager)
LORA_IN_WEIGHTS: Table[bool] = (((0,), False), ((0, 7, 3), True))
# tokens per chunk of the fused-MoE kernels, 0 = no chunks
MOE_CHUNK: Table[int] = (((0,), 65536), ((0, 14), 16384), ((0, 21), 0))

# memory outside torch that appears during the profile run on one card: libraries loaded lazily (logs). Before 0.6.4 free memory
# was read off the device, so that the allocator's unused segments count as well; 0.6.4 took all that torch did not allocate, the
# context with it (vllm/worker/worker.py); 0.6.5 and 0.6.6 as printed in vllm-project/vllm#10511
NON_TORCH: Table[float] = (((0,), 0.60), ((0, 6, 4), 0.51), ((0, 6, 5), 1.79), ((0, 7), 0.05), ((0, 10), 0.07), ((0, 11), 0.13),
                           ((0, 18), 0.25))  # fmt: skip
# the same with tensor parallelism on Hopper and after: NVLink collectives' buffers as well (logs)
NON_TORCH_TP: Table[float] = (((0,), 0.25), ((0, 6, 5), 3.58), ((0, 7), 0.25), ((0, 11), 0.54), ((0, 18), 2.10))
# the release before which collectives took the same on every card
NVLINK_BUFFERS = (0, 17)
# pipeline ranks without tensor parallelism
NON_TORCH_PP: Table[float] = (((0,), 0.07),)
# a DGX Spark's free memory is the system's available memory (utils/mem_utils.py MemorySnapshot): the process's growth counts too,
# 0.8 to 5.7 GiB in five starts of 0.13 to 0.27
HOST = 2.5
GB10 = (12, 1)
READS_HOST = (0, 12)


def utilization(version: Version) -> float:
    """Default of --gpu-memory-utilization."""
    return at(version, UTILIZATION)


def batched_tokens(version: Version, core: str, card: Accelerator | None, *, server: bool, context: Number) -> Number:
    """Default of --max-num-batched-tokens (arg_utils.py; the tiers look at the card's memory and exclude the A100)."""
    if core == "V0":
        long = at(version, CHUNKS_LONG_PROMPTS) and context > 32768
        return where(long, 2048, maximum(context, 2048))
    if large(card) and version >= (0, 8, 5):
        return 16384 if not server or (version >= (0, 29) and card is not None and card.visible_bytes >= 160 * GiB) else 8192
    return 2048 if server else 8192


def sequences(version: Version, card: Accelerator | None) -> int:
    """Default of --max-num-seqs."""
    return 1024 if version >= (0, 9, 2) and large(card) else 256


def large(card: Accelerator | None) -> bool:
    """Whether the card is in the tier of at least 70 GiB; the A100 and the GB10 are kept out by name."""
    return card is not None and card.visible_bytes >= 70 * GiB and "a100" not in card.id.lower() and card.capability != GB10


def non_torch_bytes(version: Version, card: Accelerator | None, *, tp: int, pp: int) -> int:
    """Memory outside torch that the profile run adds."""
    return _libraries_bytes(version, card, tp=tp, pp=pp) + host_bytes(version, card)


def host_bytes(version: Version, card: Accelerator | None) -> int:
    """What the engine's own process takes of a DGX Spark's memory while it profiles, counted as the card's."""
    return round(HOST * GiB) if card is not None and card.capability == GB10 and version >= READS_HOST else 0


def _libraries_bytes(version: Version, card: Accelerator | None, *, tp: int, pp: int) -> int:
    hopper = card is None or (card.capability or (0, 0)) >= (9, 0)
    if tp > 1:
        return round(at(version if hopper else min(version, NVLINK_BUFFERS), NON_TORCH_TP) * GiB)
    return round(at(version, NON_TORCH_PP if pp > 1 else NON_TORCH) * GiB)
