"""What transformers' Cache classes hold of one stage: keys and values, latents or decompressed heads, windows, states.

Source: transformers cache_utils.py (DynamicLayer, DynamicSlidingWindowLayer, DynamicIndexedLayer, LinearAttentionLayer) and
the ``past_key_values.update`` call of each modeling file, at the versions that ``versions`` names.
"""

from collections.abc import Iterator

import msgspec

from vramcast.models.inventory import Mixer, Model, Tower
from vramcast.models.layers import LatentAttention
from vramcast.models.sharding import Stage
from vramcast.quantity import Number, minimum
from vramcast.serving.engines.base import Version, at
from vramcast.serving.engines.transformers import versions
from vramcast.serving.layers import CacheLayer, cache_layer

_FLOAT32_BYTES = 4


class CacheStorage(msgspec.Struct, frozen=True, kw_only=True):
    """How a version holds a cache of ``element`` bytes, in a model whose activations take ``activation`` bytes."""

    version: Version
    element: float
    activation: float

    def token_bytes(self, stage: Stage) -> float:
        """Bytes that one token adds to the layers that grow without end, and to windows that are not yet full."""
        return sum(count * self._token_elements(mixer) for mixer, count in _mixers(stage)) * self.element

    def cache_bytes(self, stage: Stage, tokens: Number, *, prefilled: bool = False) -> Number:
        """Keys and values of a sequence of ``tokens``.

        A window is a view of the concatenation it was cut from: after the prompt (``prefilled``) that is the whole prompt, and
        from the first decoded token on the window and that token's own row.
        """
        keeps_window = at(self.version, versions.SLIDING_CACHE) and not prefilled
        elements: Number = 0
        for mixer, count in _mixers(stage):
            reach = cache_layer(mixer, 1).reach_tokens if keeps_window else 0
            elements += count * (minimum(tokens, reach) if reach else tokens) * self._token_elements(mixer)
        return elements * self.element

    def cross_bytes(self, stage: Stage, model: Model, prompt: Number) -> Number:
        """Keys and values of what an encoder read, kept by each layer that attends to it (EncoderDecoderCache).

        An ear reads the whole of its table of positions, padded (Whisper's 30 seconds), a text encoder the prompt.
        """
        read = sum(_read_tokens(tower, prompt) for tower in model.towers)
        return read * sum(count * block.cross.cache_elements for block, count in stage.blocks if block.cross) * self.element

    def state_bytes(self, stage: Stage) -> float:
        """Convolution windows, kept a whole kernel wide, and recurrent states of one sequence."""
        recurrent = _FLOAT32_BYTES if at(self.version, versions.FLOAT32_STATE) else self.activation
        kept = [(cache_layer(mixer, 1), count) for mixer, count in _mixers(stage)]
        return sum(count * (_window_elements(c) * self.activation + c.state_elements * recurrent) for c, count in kept)

    def _token_elements(self, mixer: Mixer) -> int:
        if isinstance(mixer, LatentAttention):
            return self._latent_elements(mixer)
        return cache_layer(mixer, 1).token_elements

    def _latent_elements(self, mixer: LatentAttention) -> int:
        table = versions.INDEXED_LATENT_CACHE if mixer.indexer else versions.LATENT_CACHE
        index = mixer.indexer.head_dim if mixer.indexer else 0
        if at(self.version, table) or mixer.window:
            return mixer.cache_elements + index
        return mixer.heads * (mixer.head_dim + mixer.value_dim) + index


def _mixers(stage: Stage) -> Iterator[tuple[Mixer, int]]:
    for block, count in stage.blocks:
        if not block.shares_cache:
            yield from ((mixer, count) for mixer in block.mixers)


def _read_tokens(tower: Tower, prompt: Number) -> Number:
    if tower.kind == "audio":
        return int(tower.facts.get("positions", 0))
    return prompt if tower.kind == "encoder" else 0


def _window_elements(layer: CacheLayer) -> int:
    return layer.conv_elements + layer.conv_step_elements
