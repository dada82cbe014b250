"""Attention proper: scores and weighted values over a cache, latent or not, and the indexer that picks keys."""

from typing import Any

import msgspec

from vramcast.models import pairs
from vramcast.models.attention import Attention, Indexer, LatentAttention
from vramcast.models.operations.batch import Batch


class Scores(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="scores"):
    """Attention proper: scores, softmax and weighted values of one layer; projections are products of their own.

    ``heads``, ``kv_heads``: the rank's. ``kv_bytes``: of one cached element. ``layers``: the kind it comes from.
    """

    name: str
    part: str
    attention: Attention
    heads: int
    kv_heads: int
    kv_bytes: float = 2.0
    count: int = 1
    element: float = 2.0
    passes: float = 1.0

    @property
    def reach(self) -> int:
        """Keys a query can see at most, 0 = all: its window, or what the indexer picks."""
        indexer = self.attention.indexer
        return self.attention.window or (indexer.top_k if indexer else 0)

    def _pair_flops(self, queries: Any, past: Any) -> Any:
        width = self.attention.head_dim + self.attention.values
        return 2 * self.heads * width * self.attention.pairs(queries, past) * self.passes

    def decode_flops(self, batch: Batch) -> Any:
        """FLOPs of the decoding sequences."""
        return batch.decodes * self._pair_flops(batch.decode_tokens, batch.decode_past)

    def prefill_flops(self, batch: Batch) -> Any:
        """FLOPs of the prefilling sequences."""
        return batch.prefills * self._pair_flops(batch.prefill_tokens, batch.prefill_past)

    def flops(self, batch: Batch) -> Any:
        """Two for each query, key pair in sight, head and key or value element."""
        return self.decode_flops(batch) + self.prefill_flops(batch)

    def keys(self, new: Any, past: Any) -> Any:
        """Keys one sequence must read: all in reach of any of its new tokens."""
        whole = past + new
        if self.attention.chunk:
            return pairs.smaller(whole, whole % self.attention.chunk + new)
        return pairs.smaller(whole, self.reach + new - 1) if self.reach else whole

    def decode_keys(self, batch: Batch) -> Any:
        """Mean keys that one decoding sequence reads."""
        return self.keys(batch.decode_tokens, batch.decode_past)

    def prefill_keys(self, batch: Batch) -> Any:
        """Keys that one prefilling sequence reads."""
        return self.keys(batch.prefill_tokens, batch.prefill_past)

    @property
    def token_bytes(self) -> float:
        """Cache bytes of one key and value on this rank."""
        return self.kv_heads * (self.attention.head_dim + self.attention.values) * self.kv_bytes

    def cache_bytes(self, batch: Batch) -> Any:
        """Cache bytes of decoding sequences, each key and value once."""
        return batch.decodes * self.decode_keys(batch) * self.token_bytes

    def read_bytes(self, batch: Batch) -> Any:
        """Queries, and every key and value in sight once."""
        queries = batch.tokens * self.heads * self.attention.head_dim * self.element
        cached = batch.decodes * self.decode_keys(batch) + batch.prefills * self.prefill_keys(batch)
        return (queries + cached * self.token_bytes) * self.passes

    def write_bytes(self, batch: Batch) -> Any:
        """One output row per query."""
        return batch.tokens * self.heads * self.attention.values * self.element


class LatentScores(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="latent"):
    """Latent attention proper: absorbed for decodes (queries carried into the latent space), decompressed for prefills.

    ``absorbs_prefill``: prefills are absorbed too, as sparse kernels do. The latent cache is whole on every tensor-parallel rank.
    """

    name: str
    part: str
    attention: LatentAttention
    heads: int
    kv_bytes: float = 2.0
    count: int = 1
    element: float = 2.0
    absorbs_prefill: bool = False
    passes: float = 1.0

    def _pair_flops(self, queries: Any, past: Any, *, absorbed: bool) -> Any:
        mixer = self.attention
        width = 2 * mixer.kv_rank + mixer.rope_dim if absorbed else mixer.head_dim + mixer.value_dim
        return 2 * self.heads * width * mixer.pairs(queries, past) * self.passes

    def decode_flops(self, batch: Batch) -> Any:
        """FLOPs of the decoding sequences."""
        return batch.decodes * self._pair_flops(batch.decode_tokens, batch.decode_past, absorbed=True)

    def prefill_flops(self, batch: Batch) -> Any:
        """FLOPs of the prefilling sequences."""
        return batch.prefills * self._pair_flops(batch.prefill_tokens, batch.prefill_past, absorbed=self.absorbs_prefill)

    def flops(self, batch: Batch) -> Any:
        """Pairs times heads * (2 * latent + rope) multiply-adds where absorbed, heads * (key + value width) where not."""
        return self.decode_flops(batch) + self.prefill_flops(batch)

    def keys(self, new: Any, past: Any) -> Any:
        """Latent entries one sequence reads: all, those of its window, or those that the indexer picks."""
        mixer = self.attention
        rate = mixer.compression or 1
        near = pairs.smaller(past + new, mixer.window + new - 1) if mixer.window else 0
        if mixer.window and not mixer.compression:
            return near
        far = (past + new) / rate
        return near + (pairs.smaller(far, mixer.indexer.top_k * new) if mixer.indexer else far)

    def decode_keys(self, batch: Batch) -> Any:
        """Mean entries that one decoding sequence reads."""
        return self.keys(batch.decode_tokens, batch.decode_past)

    def prefill_keys(self, batch: Batch) -> Any:
        """Entries that one prefilling sequence reads."""
        return self.keys(batch.prefill_tokens, batch.prefill_past)

    @property
    def token_bytes(self) -> float:
        """Latent cache bytes of one token, equal on every rank."""
        return self.attention.cache_elements * self.kv_bytes

    def cache_bytes(self, batch: Batch) -> Any:
        """Latent bytes of decoding sequences."""
        return batch.decodes * self.decode_keys(batch) * self.token_bytes

    def read_bytes(self, batch: Batch) -> Any:
        """Queries, latents of decodes, and decompressed keys and values of prefills."""
        mixer = self.attention
        absorbed = batch.decode_rows * self.heads * (mixer.kv_rank + mixer.rope_dim) * self.element
        entry = self.token_bytes if self.absorbs_prefill else self.heads * (mixer.head_dim + mixer.value_dim) * self.element
        prefill = batch.prefill_rows * self.heads * mixer.head_dim * self.element
        return (absorbed + self.cache_bytes(batch) + prefill + batch.prefills * self.prefill_keys(batch) * entry) * self.passes

    def write_bytes(self, batch: Batch) -> Any:
        """One output row per query, in the latent space where absorbed."""
        wide = self.attention.kv_rank if self.absorbs_prefill else self.attention.value_dim
        return (batch.decode_rows * self.attention.kv_rank + batch.prefill_rows * wide) * self.heads * self.element


class Indexing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="indexing"):
    """The sparse indexer: every query scores every cached index key, then the best are kept. Index keys are stored in 8 bits."""

    name: str
    part: str
    indexer: Indexer
    rate: int = 1
    key_bytes: float = 1.0
    count: int = 1

    def flops(self, batch: Batch) -> Any:
        """2 * heads * head_dim for each query and index key."""
        decode = batch.decodes * self.indexer.score_flops(batch.decode_tokens, batch.decode_past, rate=self.rate)
        return decode + batch.prefills * self.indexer.score_flops(batch.prefill_tokens, batch.prefill_past, rate=self.rate)

    def read_bytes(self, batch: Batch) -> Any:
        """Index keys of the whole context of every sequence."""
        decode = batch.decodes * (batch.decode_past + batch.decode_tokens)
        prefill = batch.prefills * (batch.prefill_past + batch.prefill_tokens)
        return (decode + prefill) / self.rate * self.indexer.head_dim * self.key_bytes

    def write_bytes(self, batch: Batch) -> Any:
        """An fp32 score for each pair and the chosen places."""
        return 4 * self.flops(batch) / (2 * self.indexer.heads * self.indexer.head_dim)
