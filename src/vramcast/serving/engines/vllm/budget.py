"""What vLLM leaves for the cache: a share of the card less everything that is there or was seen in the profile run.

Sources: vllm/worker/worker.py (V0), vllm/v1/worker/gpu_worker.py determine_available_memory, vllm/utils/mem_utils.py.
"""

import msgspec

from vramcast.quantity import Number, ceiling
from vramcast.serving.engines.versions import at
from vramcast.serving.engines.vllm import versions
from vramcast.serving.engines.vllm.fixed import Fixed
from vramcast.serving.engines.vllm.runner import reserves_graphs
from vramcast.serving.engines.vllm.settings import Settings
from vramcast.units import gib


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """``requested_bytes``: utilization times the card; ``pool_bytes``: what is left for the cache (negative when nothing is).

    ``used``: what was taken off, by name; None where the pool was given.
    """

    requested_bytes: Number
    pool_bytes: Number
    settings: Settings
    used: dict[str, Number] | None = None

    @property
    def why(self) -> str:
        """The subtraction with its numbers."""
        if self.used is None:
            return "kv_cache_memory_bytes as asked"
        less = ", ".join(f"{name} {gib(size)}" for name, size in self.used.items())
        share = f"{self.settings.utilization:g} x {gib(self.settings.total_bytes)} of the card"
        return f"{share} = {gib(self.requested_bytes)}, less {less}"


def budget_of(settings: Settings, fixed: Fixed) -> Budget:
    """The budget of one rank: total * utilization - weights - peak - libraries, and - graphs since 0.21."""
    requested = ceiling(settings.total_bytes * settings.utilization)
    if settings.pool_override is not None:
        return Budget(requested_bytes=requested, pool_bytes=settings.pool_override, settings=settings)
    used = {"weights": fixed.weights.bytes, "peak": fixed.peak_bytes, "libraries": fixed.communication.bytes}
    if subtracts_graphs(settings):
        used["graphs"] = fixed.graphs.bytes
    if settings.core == "V1" and at(settings.version, versions.COUNTS_CONTEXT):
        used["context"] = fixed.context.bytes
    return Budget(requested_bytes=requested, pool_bytes=requested - sum(used.values()), settings=settings, used=used)


def subtracts_graphs(settings: Settings) -> bool:
    """Whether the memory of CUDA graphs is taken off the budget before they are captured."""
    return at(settings.version, versions.SUBTRACTS_GRAPHS) and reserves_graphs(settings.version, second=settings.second_runner)
