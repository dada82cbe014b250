"""One llama.cpp process on paper: what each device holds of weights, cache, state and compute buffer."""

import msgspec

from vramcast.quantity import Number
from vramcast.serving.engines.llama_cpp.cache import layer_bytes, state_bytes
from vramcast.serving.engines.llama_cpp.loading import Laid, summed
from vramcast.serving.engines.llama_cpp.reserve import compute_bytes
from vramcast.serving.engines.llama_cpp.settings import LlamaSettings


class DevicePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes by device, the host last."""

    weights: tuple[int, ...]
    cache: tuple[Number, ...]
    state: tuple[Number, ...]
    compute: tuple[Number, ...]
    output_bytes: Number
    file_bytes: int

    def device(self, index: int) -> Number:
        """Everything one device holds, its context apart."""
        return self.weights[index] + self.cache[index] + self.state[index] + self.compute[index]


def plan_of(laid: Laid, settings: LlamaSettings) -> DevicePlan:
    """What a process with these settings allocates."""
    host = settings.placement.host
    return DevicePlan(
        weights=laid.weights,
        cache=summed(host, ((home, count * layer_bytes(block, settings.cache)) for block, home, count in laid.caches)),
        state=summed(host, ((home, count * state_bytes(block, settings.cache)) for block, home, count in laid.caches)),
        compute=tuple(compute_bytes(laid, settings)),
        output_bytes=laid.model.vocab * 4 * settings.cache.sequences,
        file_bytes=laid.file_bytes,
    )
