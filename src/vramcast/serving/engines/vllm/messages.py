"""The errors vLLM prints when its cache cannot hold one request, with the numbers it would print.

Sources: vllm/v1/core/kv_cache_utils.py check_enough_kv_cache_memory, vllm/worker/worker.py raise_if_cache_size_invalid.
"""

from vramcast.serving.engines.versions import Version, at
from vramcast.serving.engines.vllm import versions
from vramcast.units import GiB

NO_BLOCKS = "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."


def cache_error(
    version: Version, core: str, *, context: int, needed_bytes: int, pool_bytes: int, tokens: int, longest: int
) -> str:
    """The engine's refusal, or an empty string when one request of ``context`` tokens fits."""
    if pool_bytes <= 0:
        return NO_BLOCKS
    if core == "V0":
        return _v0(context, tokens) if tokens < context else ""
    return _v1(version, context, needed_bytes, pool_bytes, longest) if needed_bytes > pool_bytes else ""


def _v0(context: int, tokens: int) -> str:
    return (
        f"The model's max seq len ({context}) is larger than the maximum number of tokens that can be stored in KV cache "
        f"({tokens}). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
    )


def _v1(version: Version, context: int, needed_bytes: int, pool_bytes: int, longest: int) -> str:
    whose = at(version, versions.WHOSE)
    estimate = f" Based on the available memory, the estimated maximum model length is {longest}." if longest > 0 else ""
    return (
        f"To serve at least one request with the {whose} max seq len ({context}), ({needed_bytes / GiB:.2f} GiB KV cache is "
        f"needed, which is larger than the available KV cache memory ({pool_bytes / GiB:.2f} GiB).{estimate} "
        "Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
    )
