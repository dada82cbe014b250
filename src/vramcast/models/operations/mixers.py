"""What runs between the matrix products: attention, recurrent state updates, pointwise kernels, exchanges between ranks."""

from typing import Any

import msgspec

from vramcast.models.layers import (
    Attention,
    GatedDeltaNet,
    Indexer,
    LatentAttention,
    LinearAttention,
    Mamba1,
    Mamba2,
    Rwkv,
    ShortConv,
    smaller,
)
from vramcast.models.operations.products import Batch


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
            return smaller(whole, whole % self.attention.chunk + new)
        return smaller(whole, self.reach + new - 1) if self.reach else whole

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
        near = smaller(past + new, mixer.window + new - 1) if mixer.window else 0
        if mixer.window and not mixer.compression:
            return near
        far = (past + new) / rate
        return near + (smaller(far, mixer.indexer.top_k * new) if mixer.indexer else far)

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


Recurrent = Mamba1 | Mamba2 | GatedDeltaNet | LinearAttention | ShortConv | Rwkv


class Recurrence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="recurrence"):
    """A recurrent mixer proper: convolution and state update of one layer; its projections are products of their own.

    ``share``: the rank's fraction of the heads. ``state_bytes``: of one state element. ``chunk``: tokens scanned at once.
    """

    name: str
    part: str
    mixer: Recurrent
    share: float = 1.0
    state_bytes: float = 4.0
    chunk: int = 64
    count: int = 1
    element: float = 2.0
    passes: float = 1.0

    def _token_flops(self) -> float:
        """Of one token, step by step: the state is decayed, written and read."""
        per_state = {GatedDeltaNet: 8, Mamba2: 6, Mamba1: 9, LinearAttention: 5, Rwkv: 8, ShortConv: 0}[type(self.mixer)]
        window = self.mixer.conv_elements * 2
        return (per_state * self.mixer.state_elements + window) * self.share

    def _scan_flops(self) -> float:
        """Of one token in a chunked scan: scores inside the chunk, and the state carried between chunks."""
        mixer, chunk = self.mixer, self.chunk
        if isinstance(mixer, GatedDeltaNet):
            inner = mixer.value_heads * (chunk * (mixer.key_dim + mixer.value_dim) + 3 * mixer.key_dim * mixer.value_dim)
            return 2 * inner * self.share
        if isinstance(mixer, Mamba2):
            inside = mixer.groups * chunk * mixer.state + mixer.heads * chunk * mixer.head_dim
            return (inside + 4 * mixer.state_elements) * self.share
        if isinstance(mixer, LinearAttention):
            return (2 * mixer.heads * chunk * mixer.head_dim + 4 * mixer.state_elements) * self.share
        return self._token_flops()

    def flops(self, batch: Batch) -> Any:
        """Step by step for decodes, by chunks for prefills."""
        return (batch.decode_rows * self._token_flops() + batch.prefill_rows * self._scan_flops()) * self.passes

    @property
    def sequence_bytes(self) -> float:
        """State and convolution window of one sequence on this rank."""
        return (self.mixer.state_elements * self.state_bytes + self.mixer.conv_elements * self.element) * self.share

    @property
    def token_bytes(self) -> float:
        """Inputs and outputs of one token."""
        mixer = self.mixer
        if isinstance(mixer, GatedDeltaNet | Mamba2):
            wide = mixer.conv_width + (mixer.value_heads * mixer.value_dim if isinstance(mixer, GatedDeltaNet) else mixer.inner)
        elif isinstance(mixer, LinearAttention | Rwkv):
            wide = 4 * mixer.heads * mixer.head_dim
        else:
            wide = 3 * (mixer.inner if isinstance(mixer, Mamba1) else mixer.width)
        return wide * self.element * self.share

    def read_bytes(self, batch: Batch) -> Any:
        """The state of every sequence, and each token's inputs."""
        return ((batch.decodes + batch.prefills) * self.sequence_bytes + batch.tokens * self.token_bytes) * self.passes

    def write_bytes(self, batch: Batch) -> Any:
        """The state again, and a third of what a token brings as its output."""
        return (batch.decodes + batch.prefills) * self.sequence_bytes + batch.tokens * self.token_bytes / 3


class Pointwise(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="pointwise"):
    """Norms, rotary positions, activations, residual sums, routing: kernels that only stream rows.

    ``kernels``: launches a layer needs. ``read``, ``write``: elements of one row. ``rows``: tokens or sampled.
    """

    name: str
    part: str
    read: float
    write: float
    kernels: float = 1
    rows: str = "tokens"
    count: int = 1
    element: float = 2.0
    flops_per_element: float = 4.0

    def rows_of(self, batch: Batch) -> Any:
        """Rows that stream through."""
        return batch.sampled if self.rows == "sampled" else batch.tokens

    def flops(self, batch: Batch) -> Any:
        """A few for each element; never counted in model FLOPs."""
        return self.rows_of(batch) * self.read * self.flops_per_element

    def read_bytes(self, batch: Batch) -> Any:
        """Rows in."""
        return self.rows_of(batch) * self.read * self.element

    def write_bytes(self, batch: Batch) -> Any:
        """Rows out."""
        return self.rows_of(batch) * self.write * self.element


class Exchange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="exchange"):
    """Rows that ranks exchange: ``collective`` is all_reduce, all_gather, reduce_scatter, all_to_all or send.

    ``wide``: elements of one row; ``world``: ranks that take part. ``active`` copies of a row leave in an expert all-to-all.
    """

    name: str
    collective: str
    wide: int
    world: int
    part: str = "communication"
    rows: str = "tokens"
    count: int = 1
    element: float = 2.0
    active: float = 1.0

    def rows_of(self, batch: Batch) -> Any:
        """Rows of one rank."""
        return batch.sampled if self.rows == "sampled" else batch.tokens

    def moved_bytes(self, batch: Batch) -> Any:
        """The message: bytes of one rank's rows."""
        return self.rows_of(batch) * self.wide * self.element * self.active

    def flops(self, batch: Batch) -> Any:
        """None to speak of."""
        return 0 * batch.tokens

    def read_bytes(self, batch: Batch) -> Any:
        """The message leaves."""
        return self.moved_bytes(batch)

    def write_bytes(self, batch: Batch) -> Any:
        """And arrives."""
        return self.moved_bytes(batch)
