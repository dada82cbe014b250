"""SGLang's pools: one for full layers, a second for sliding layers where the architecture has it, and slots for states.

Source: sglang/srt/mem_cache/kv_cache_configurator.py (~2990), configs/model_config.py (which architectures split).
"""

from collections.abc import Iterable

import msgspec

from vramcast.quantity import Number, floored, maximum, minimum, whole
from vramcast.serving.layers import CacheLayer


class Cells(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of one token in the full and in the sliding pool, of a state slot, and the ratio of their tokens (0 = one pool)."""

    full: float
    sliding: float
    slot: float
    ratio: float

    def token_bytes(self) -> float:
        """Bytes of pool that one token of the full pool brings along."""
        return self.full + self.ratio * self.sliding


class Pools(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of the full and the sliding pool, state slots, and their bytes."""

    tokens: Number
    sliding_tokens: Number
    slots: Number
    cache_bytes: Number
    state_bytes: Number


class Types(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes per element: cache (scales included), indexer key per element, convolution window, recurrent state."""

    kv: float
    conv: float
    state: float
    latent_token: float = 0
    index_scale: float = 0


def cells_of(layers: Iterable[tuple[CacheLayer, int]], types: Types, ratio: float) -> Cells:
    """What one token and one request take over all layers of a rank."""
    full = sliding = slot = 0.0
    for layer, count in layers:
        size = count * token_bytes(layer, types)
        apart = ratio and layer.kind in ("sliding", "chunked")
        full, sliding = (full, sliding + size) if apart else (full + size, sliding)
        slot += count * (layer.conv_elements * types.conv + layer.state_elements * types.state)
    return Cells(full=full, sliding=sliding, slot=slot, ratio=ratio if sliding else 0)


def token_bytes(layer: CacheLayer, types: Types) -> float:
    """Bytes one token adds in one layer: keys and values, or a latent with its indexer key (132 B: 128 of fp8 and a scale)."""
    if layer.kind == "latent":
        latent = types.latent_token or layer.token_elements * types.kv
        return latent + (layer.index_elements + types.index_scale if layer.index_elements else 0)
    return layer.token_elements * types.kv


def divide(budget_bytes: Number, cells: Cells, *, page: Number, slots: Number | None, cap: Number | None, share: Number) -> Pools:
    """Tokens and slots a budget holds. ``slots``: asked number of state slots; ``cap``: asked number of tokens.

    States have one slot more than the budget was asked for: requests that are padding write to it (mem_cache/memory_pool.py).
    """
    held: Number = 0
    if cells.slot:
        held = floored(maximum(0.0, budget_bytes) * share / (1 + share) / cells.slot) if slots is None else slots
    room = maximum(0.0, budget_bytes - held * cells.slot)
    tokens = floored(room / cells.token_bytes()) // page * page if cells.token_bytes() else 0
    tokens = tokens if cap is None else minimum(tokens, cap)
    sliding = floored(tokens * cells.ratio) // page * page if cells.ratio else 0
    return Pools(
        tokens=tokens,
        sliding_tokens=sliding,
        slots=held,
        cache_bytes=whole(tokens * cells.full + sliding * cells.sliding),
        state_bytes=whole((held + 1) * cells.slot) if cells.slot else 0,
    )
