"""KV cache and recurrent state: exact cells, types and bytes of each layer.

Cells: one stream of the whole context when unified, else one per sequence, each padded; sliding layers keep their window for
every sequence and one micro batch (src/llama-kv-cache-iswa.cpp). Latent attention keeps keys only once absorbed
(src/llama-kv-cache.cpp). Recurrent layers keep f32 rows, one per sequence and draft token (src/llama-memory-recurrent.cpp).
"""

import msgspec

from vramcast.errors import QuestionError
from vramcast.models.inventory import Block
from vramcast.models.layers import Attention, LatentAttention
from vramcast.models.quantization.formats import ggml_type
from vramcast.quantity import Number, element, maximum, minimum

_STATE_BYTES = 4


class CacheRules(msgspec.Struct, frozen=True, kw_only=True):
    """The question as the cache sees it.

    ``context``: tokens that all ``sequences`` share where the cache is ``unified``, and divide where it is not. ``full_windows``:
    sliding layers keep the whole context (--swa-full); ``window_caches``: the build has caches for windows. ``padding``: cells
    are a multiple of it. ``key_type``, ``value_type``: ggml types. ``draft_tokens``: each has a state of its own.
    """

    context: Number
    sequences: Number = 1
    unified: bool = True
    micro_batch: int = 512
    full_windows: bool = False
    window_caches: bool = True
    padding: int = 256
    key_type: str = "f16"
    value_type: str = "f16"
    latent: str = "absorbed"
    """Latent attention: "absorbed" (keys only), "expanded" (full heads), "transposed" (latent and its transpose, mode 1)."""
    indexer_keys: bool = True
    """Keys of a sparse indexer are kept beside the latent, in the keys' type."""
    draft_tokens: int = 0

    @property
    def cells(self) -> Number:
        """Cells of a full layer, all streams together."""
        if self.unified:
            return padded(self.context, self.padding)
        return padded(maximum(1, self.context // self.sequences), self.padding) * self.sequences

    @property
    def stream_cells(self) -> Number:
        """Cells that one sequence's tokens attend to."""
        return self.cells if self.unified else self.cells // self.sequences

    def window_cells(self, window: int) -> Number:
        """Cells of a sliding layer, all streams together."""
        if not self.window_caches or self.full_windows:
            return self.cells
        streams = 1 if self.unified else self.sequences
        wanted = window * (self.sequences if self.unified else 1) + self.micro_batch
        return padded(minimum(self.stream_cells, wanted), self.padding) * streams

    def at(self, index: int) -> "CacheRules":
        """The question of one element where context and sequences are arrays."""
        return msgspec.structs.replace(self, context=element(self.context, index), sequences=element(self.sequences, index))


def padded(count: Number, to: int) -> Number:
    """``count`` rounded up to a multiple of ``to``."""
    return -(-count // to) * to


def layer_bytes(block: Block, rules: CacheRules) -> Number:
    """KV cache of one layer, bytes; 0 for layers that share another's or have none."""
    if block.shares_cache:
        return 0
    return sum(_attention_bytes(mixer, rules) for mixer in block.mixers if isinstance(mixer, Attention | LatentAttention))


def _attention_bytes(mixer: Attention | LatentAttention, rules: CacheRules) -> Number:
    if isinstance(mixer, LatentAttention):
        return _latent_bytes(mixer, rules)
    reach = mixer.window or mixer.chunk
    cells = rules.window_cells(reach) if reach else rules.cells
    keys, values = mixer.kv_heads * mixer.head_dim, mixer.kv_heads * mixer.values
    return cells * (row_bytes(rules.key_type, keys) + row_bytes(rules.value_type, values))


def _latent_bytes(mixer: LatentAttention, rules: CacheRules) -> Number:
    if rules.latent == "expanded":
        keys, values = mixer.heads * mixer.head_dim, mixer.heads * mixer.value_dim
        return rules.cells * (row_bytes(rules.key_type, keys) + row_bytes(rules.value_type, values))
    kept = rules.cells * row_bytes(rules.key_type, mixer.cache_elements)
    if mixer.indexer and not mixer.compression and rules.indexer_keys:
        kept += rules.cells * row_bytes(rules.key_type, mixer.indexer.head_dim)
    return kept + (rules.cells * row_bytes(rules.value_type, mixer.kv_rank) if rules.latent == "transposed" else 0)


def row_bytes(kind: str, elements: int) -> int:
    """Bytes of a row of ``elements`` in that ggml type. Raises QuestionError when the row is not whole blocks."""
    found = ggml_type(kind)
    if elements % found.elements:
        raise QuestionError(f"cache type {kind} holds blocks of {found.elements}, but a row has {elements}: use f16 or q8_0")
    return elements // found.elements * found.bytes + found.row_bytes


def state_bytes(block: Block, rules: CacheRules) -> Number:
    """Recurrent state of one layer for every sequence (and its draft tokens), bytes: f32 whatever the cache types."""
    elements = sum(m.conv_elements + m.state_elements for m in block.mixers if not isinstance(m, Attention | LatentAttention))
    return elements * _STATE_BYTES * rules.sequences * (1 + rules.draft_tokens)
