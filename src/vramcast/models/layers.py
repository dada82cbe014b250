"""Layer kinds: attention (full, grouped, windowed, latent), feed-forward, and recurrent ones with a fixed state.

A kind is a small frozen value that answers questions in elements and FLOPs; engines and frameworks turn them into bytes.
Formulas take numbers or arrays: no branch on a value that may be an array. ``conv_elements`` and ``state_elements`` are what ONE
sequence keeps in ONE recurrent layer, before any engine's padding or data type.

``causal``, ``windowed`` and ``chunked`` count the (query, key) pairs that attention scores when ``queries`` new tokens follow
``past`` cached ones: what its FLOPs and bytes follow.
"""

from typing import Any

import msgspec


def smaller(a: Any, b: Any) -> Any:
    """The smaller of two numbers, or of two arrays element by element."""
    return (a + b - abs(a - b)) / 2


def everything(queries: Any, past: Any) -> Any:
    """Without a mask, each query meets each key: q * (past + q)."""
    return queries * (past + queries)


def causal(queries: Any, past: Any) -> Any:
    """Each query meets the past and itself and those before it: q * past + q * (q + 1) / 2."""
    return queries * past + queries * (queries + 1) / 2


def windowed(queries: Any, past: Any, window: int) -> Any:
    """As ``causal`` until a query has ``window`` keys in sight, ``window`` keys for each after that."""
    growing = smaller(window - smaller(past, window), queries)
    return causal(growing, past) + (queries - growing) * window


def chunked(queries: Any, past: Any, chunk: int) -> Any:
    """Each query meets the keys of its own chunk up to itself: the sum of (position mod chunk) + 1."""
    return _chunk_sum(past + queries, chunk) - _chunk_sum(past, chunk)


def _chunk_sum(tokens: Any, chunk: int) -> Any:
    rest = tokens % chunk
    return tokens // chunk * (chunk * (chunk + 1) / 2) + rest * (rest + 1) / 2


class Indexer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """DeepSeek sparse attention's lightning indexer: keeps one key of ``head_dim`` per token, picks ``top_k`` tokens."""

    heads: int
    head_dim: int
    top_k: int

    def score_flops(self, queries: Any, past: Any, *, rate: int = 1) -> Any:
        """FLOPs of scoring every cached entry, one for ``rate`` tokens: 2 * heads * head_dim for each pair."""
        return 2 * self.heads * self.head_dim * causal(queries, past) / rate


class Attention(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="attention"):
    """Multi-head, grouped or multi-query attention.

    ``window``: a token sees that many tokens (itself included), 0 = all. ``chunk``: it sees only its own chunk of that
    length, 0 = all.
    ``value_dim``: width of a value head (0 = ``head_dim``). ``gated``: the query projection also yields an output gate
    (Qwen3-Next).
    ``qk_norm``: queries and keys are normed. ``sinks``: a learned score per head that no token owns (gpt-oss). ``softcap``:
    scores are squashed by a tanh (Gemma 2). ``rope_dim``: rotated features of a head, -1 = all of them, 0 = none.
    ``indexer``: a token attends only to those that the indexer picks; all are cached (MiniMax-M3).
    ``value_is_key``: values are the keys, one tensor is computed but engines may still store both (Gemma-4 global layers).
    """

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int = 0
    window: int = 0
    chunk: int = 0
    causal: bool = True
    gated: bool = False
    qk_norm: bool = False
    sinks: bool = False
    softcap: bool = False
    value_is_key: bool = False
    rope_dim: int = -1
    indexer: Indexer | None = None

    @property
    def values(self) -> int:
        """Width of one value head."""
        return self.value_dim or self.head_dim

    @property
    def cache_elements(self) -> int:
        """Elements of KV cache one token adds in this layer: kv_heads * (key width + value width)."""
        return self.kv_heads * (self.head_dim + self.values)

    def pairs(self, queries: Any, past: Any = 0) -> Any:
        """(Query, key) pairs scored when ``queries`` tokens follow ``past`` cached ones; numbers or arrays."""
        if not self.causal:
            return everything(queries, past)
        if self.chunk:
            return chunked(queries, past, self.chunk)
        window = self.window or (self.indexer.top_k if self.indexer else 0)
        return windowed(queries, past, window) if window else causal(queries, past)

    def score_flops(self, queries: Any, past: Any = 0) -> Any:
        """Forward FLOPs of scores and weighted values, projections excluded: 2 * heads * (key + value width) for each pair.

        A multiply-add is two operations and the softmax is not counted (PaLM, arXiv 2204.02311, appendix B, with the causal
        half counted once).
        """
        indexing = self.indexer.score_flops(queries, past) if self.indexer else 0
        return 2 * self.heads * (self.head_dim + self.values) * self.pairs(queries, past) + indexing


class LatentAttention(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="latent"):
    """Multi-head latent attention (DeepSeek-V2 and after): caches one compressed vector and one rotary key per token.

    ``query_rank`` and ``kv_rank``: widths of the compressed queries (0 = queries are projected directly) and of the compressed
    keys and values. ``nope_dim`` and ``rope_dim``: features of a query or key head without and with positions; the rotated part
    of the key is one for all heads. ``value_dim``: width of a value head. ``indexer``: a token attends only to those it picks.
    ``window``, ``compression``: DeepSeek-V4's sliding layers, and those that keep one entry for so many tokens.
    """

    heads: int
    query_rank: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    indexer: Indexer | None = None
    window: int = 0
    compression: int = 0

    @property
    def cache_elements(self) -> int:
        """Elements of latent cache one token adds: kv_lora_rank + rope_dim (arXiv 2405.04434, section 2.1)."""
        return self.kv_rank + self.rope_dim

    @property
    def head_dim(self) -> int:
        """Width of a query or key head once decompressed."""
        return self.nope_dim + self.rope_dim

    def pairs(self, queries: Any, past: Any = 0) -> Any:
        """(Query, entry) pairs scored: those in the window and, with compression, one entry for so many tokens."""
        near = windowed(queries, past, self.window) if self.window else 0
        if self.window and not self.compression:
            return near
        rate = self.compression or 1
        if self.indexer:
            return near + windowed(queries, past, self.indexer.top_k * rate) / rate
        return near + causal(queries, past) / rate

    def score_flops(self, queries: Any, past: Any = 0, *, absorbed: bool = False) -> Any:
        """Forward FLOPs of scores and weighted values, projections excluded.

        Decompressed (prefill): heads * (nope + rope + value) multiply-adds for each pair. ``absorbed`` (decode): queries are
        carried into the latent space, heads * (2 * kv_rank + rope) multiply-adds (arXiv 2405.04434, section 2.1.2).
        """
        width = 2 * self.kv_rank + self.rope_dim if absorbed else self.head_dim + self.value_dim
        indexing = self.indexer.score_flops(queries, past, rate=self.compression or 1) if self.indexer else 0
        return 2 * self.heads * width * self.pairs(queries, past) + indexing


class Dense(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="dense"):
    """An MLP. ``gated``: two up projections multiplied (SwiGLU, GeGLU); ``activation`` as the config names it."""

    intermediate: int
    gated: bool = True
    activation: str = "silu"

    def flops(self, hidden: int) -> int:
        """Forward FLOPs of one token: two for each weight of its two or three matrices."""
        return 2 * (3 if self.gated else 2) * hidden * self.intermediate


class Experts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="experts"):
    """A mixture: ``active`` of ``routed`` experts of width ``intermediate`` per token, beside ``shared`` always-on width.

    ``shared_intermediate`` is the total width of the shared experts, 0 when there are none. ``latent``: experts work in a
    space of that width instead of the hidden size (Nemotron-3 latent MoE), 0 = hidden.
    """

    routed: int
    active: int
    intermediate: int
    shared_intermediate: int = 0
    gated: bool = True
    activation: str = "silu"
    latent: int = 0

    def flops(self, hidden: int) -> int:
        """Forward FLOPs of one token: its chosen experts, the shared ones and the router."""
        matrices = 3 if self.gated else 2
        chosen = self.active * self.intermediate * (self.latent or hidden)
        return 2 * (matrices * (chosen + self.shared_intermediate * hidden) + self.routed * hidden)


class Mamba1(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="mamba1"):
    """Selective state space, Mamba 1 (arXiv 2312.00752): conv window over ``inner`` channels and inner x state floats."""

    inner: int
    state: int
    conv: int
    dt_rank: int

    @property
    def conv_elements(self) -> int:
        """Convolution window: (kernel - 1) past inputs of each channel."""
        return (self.conv - 1) * self.inner

    @property
    def state_elements(self) -> int:
        """The recurrent state: inner * state."""
        return self.inner * self.state


class Mamba2(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="mamba2"):
    """State space duality, Mamba 2 (arXiv 2405.21060): ``heads`` of ``head_dim`` x ``state``, B and C in ``groups``.

    ``chunk``: tokens that are scanned at once.
    """

    heads: int
    head_dim: int
    groups: int
    state: int
    conv: int
    chunk: int = 256

    @property
    def inner(self) -> int:
        """Channels: heads * head_dim."""
        return self.heads * self.head_dim

    @property
    def conv_width(self) -> int:
        """Channels that pass the convolution: x, B and C."""
        return self.inner + 2 * self.groups * self.state

    @property
    def conv_elements(self) -> int:
        """Convolution window: (kernel - 1) past inputs of each of its channels."""
        return (self.conv - 1) * self.conv_width

    @property
    def state_elements(self) -> int:
        """The recurrent state: heads * head_dim * state."""
        return self.inner * self.state


class GatedDeltaNet(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="delta"):
    """Gated delta rule (Qwen3-Next, Qwen3.5; arXiv 2412.06464): a key_dim x value_dim matrix per value head."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv: int

    @property
    def conv_width(self) -> int:
        """Channels that pass the convolution: queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def conv_elements(self) -> int:
        """Convolution window: (kernel - 1) past inputs of each channel."""
        return (self.conv - 1) * self.conv_width

    @property
    def state_elements(self) -> int:
        """The recurrent state: value_heads * key_dim * value_dim."""
        return self.value_heads * self.key_dim * self.value_dim


class LinearAttention(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="linear"):
    """Lightning attention (MiniMax-01; arXiv 2401.04658): a head_dim x head_dim matrix per head, no convolution."""

    heads: int
    head_dim: int

    conv_elements = 0

    @property
    def state_elements(self) -> int:
        """The recurrent state: heads * head_dim^2."""
        return self.heads * self.head_dim**2


class ShortConv(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="conv"):
    """Gated short convolution (LFM2): only a window of past inputs."""

    width: int
    conv: int

    state_elements = 0

    @property
    def conv_elements(self) -> int:
        """Convolution window: (kernel - 1) past inputs of each channel."""
        return (self.conv - 1) * self.width


class Rwkv(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="rwkv"):
    """RWKV time mixing: a head_dim x head_dim matrix per head and two shifted inputs."""

    heads: int
    head_dim: int
    hidden: int

    @property
    def conv_elements(self) -> int:
        """The two token-shift vectors."""
        return 2 * self.hidden

    @property
    def state_elements(self) -> int:
        """The recurrent state: heads * head_dim^2."""
        return self.heads * self.head_dim**2
