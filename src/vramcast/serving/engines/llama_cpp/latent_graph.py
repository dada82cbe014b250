"""The graph of latent attention (DeepSeek): llama.cpp's absorbed form, and the modes 0 to 3 of ik_llama.cpp (``-mla``).

Mode 0 caches full keys and values; 1 works on the latent cache alone; 2 and 3 do so for single tokens but expand the cache to
keys and values for a prompt, by groups of heads so that the expansion stays below ``-amb`` MiB. Sources: src/models/deepseek2.cpp
of llama.cpp; src/graphs/build_deepseek2.cpp of ik_llama.cpp.
"""

from vramcast.models.layers import LatentAttention
from vramcast.serving.engines.llama_cpp.attention_graph import scores
from vramcast.serving.engines.llama_cpp.building import Builder, Weights
from vramcast.serving.engines.llama_cpp.graph import F16, F32, Node
from vramcast.units import MiB

_PROMPT = 128
"""Tokens from which ik_llama.cpp expands the cache rather than absorb the projections."""


def latent_attention(b: Builder, weights: Weights, kind: LatentAttention, x: Node) -> Node:
    """One layer's latent attention up to its output projection."""
    query = _query(b, weights, kind, x)
    compressed = b.matmul(weights["attn_kv_a_mqa.weight"], x, kind.cache_elements)
    turned = b.graph.op("rope", (kind.rope_dim, kind.heads, b.batch.tokens), _part(b, query), b.positions())
    key = b.graph.op("rope", (kind.rope_dim, 1, b.batch.tokens), _part(b, compressed), b.positions())
    latent = _latent(b, weights, kind, compressed)
    if b.batch.latent_mode == 0 and b.batch.latent_expanded:
        mixed = _expanded(b, weights, kind, (query, turned, key, latent))
    elif b.batch.latent_mode > 1 and b.batch.flash and b.batch.tokens >= _PROMPT:
        mixed = _by_heads(b, weights, kind, (query, turned, key, latent))
    else:
        mixed = _absorbed(b, weights, kind, (query, turned, key, latent))
    b.graph.expand(mixed)
    return b.matmul(weights["attn_output.weight"], mixed, b.hidden)


def _part(b: Builder, whole: Node) -> Node:
    return b.graph.view(whole, 1, strided=True)


def _query(b: Builder, weights: Weights, kind: LatentAttention, x: Node) -> Node:
    width = kind.heads * kind.head_dim
    if "attn_q_a.weight" not in weights:
        return b.matmul(weights["attn_q.weight"], x, width)
    low = b.matmul(weights["attn_q_a.weight"], x, kind.query_rank)
    return b.matmul(weights["attn_q_b.weight"], b.norm(low, weights["attn_q_a_norm.weight"]), width)


def _latent(b: Builder, weights: Weights, kind: LatentAttention, compressed: Node) -> Node:
    shape, weight = (kind.kv_rank, b.batch.tokens), weights["attn_kv_a_norm.weight"]
    if b.graph_rules.fused_norm:
        return b.graph.op("fused_norm", shape, _part(b, compressed), weight)
    return b.graph.like("mul", b.graph.op("rms_norm", shape, _part(b, compressed)), weight)


def _cache_latent(b: Builder, weights: Weights, kind: LatentAttention, key: Node, latent: Node) -> None:
    joined = b.graph.op("concat", (kind.cache_elements, b.batch.tokens), b.graph.view(key, 1, strided=True), latent)
    b.store(weights, joined, "key")


def _expanded(b: Builder, weights: Weights, kind: LatentAttention, parts: tuple[Node, Node, Node, Node]) -> Node:
    """Full keys and values are cached: mode 0 and llama.cpp before April 2025."""
    g, tokens, (query, turned, key, latent) = b.graph, b.batch.tokens, parts
    both = b.matmul(weights["attn_kv_b.weight"], latent, kind.heads * (kind.nope_dim + kind.value_dim))
    values = g.op("cont", (kind.value_dim * kind.heads, tokens), _part(b, both))
    queries = g.op("concat", (kind.head_dim, kind.heads, tokens), _part(b, query), turned)
    repeated = g.op("repeat", (kind.rope_dim, kind.heads, tokens), key)
    keys = g.op("concat", (kind.head_dim, kind.heads, tokens), _part(b, both), repeated)
    g.expand(queries, keys, values)
    b.store(weights, keys, "key")
    b.store(weights, values, "value")
    stored = b.stored(weights, kind.heads * kind.head_dim, kind.heads * kind.value_dim, window=False)
    return scores(b, queries, kind.heads, kind.value_dim, stored, window=False)


def _absorbed(b: Builder, weights: Weights, kind: LatentAttention, parts: tuple[Node, Node, Node, Node]) -> Node:
    """Queries are projected into the latent space; the cache serves as keys and values of one shared head."""
    g, tokens, (query, turned, key, latent) = b.graph, b.batch.tokens, parts
    _cache_latent(b, weights, kind, key, latent)
    low = g.op("matmul", (kind.kv_rank, tokens, kind.heads), weights["attn_k_b.weight"], _part(b, query))
    queries = g.op("concat", (kind.cache_elements, kind.heads, tokens), turned, _part(b, low))
    mixed = _latent_scores(b, weights, kind, _part(b, queries))
    raised = g.op("matmul", (kind.value_dim, tokens, kind.heads), weights["attn_v_b.weight"], _part(b, mixed))
    return g.op("cont", (kind.value_dim * kind.heads, tokens), _part(b, raised))


def _latent_scores(b: Builder, weights: Weights, kind: LatentAttention, queries: Node) -> Node:
    g, tokens, shape = b.graph, b.batch.tokens, (kind.kv_rank, kind.heads, b.batch.tokens)
    keys, values = b.stored(weights, kind.cache_elements, kind.kv_rank, window=False)
    if b.batch.flash and b.batch.latent_mode != 2:
        return g.op("flash_attention", shape, queries, keys, values, b.mask(window=False))
    cells = b.batch.cells
    heads = -(-kind.heads // _steps(kind, cells * tokens * kind.heads * F32, b.batch.attention_limit_mib))
    turned = g.op("cont", (cells, kind.kv_rank), values, width=F16)
    joined: Node | None = None
    for first in range(0, kind.heads, heads):
        count = min(heads, kind.heads - first)
        raw = g.op("matmul", (cells, tokens, count), keys, queries)
        part = g.op("matmul", (kind.kv_rank, tokens, count), turned, g.like("softmax", raw, b.mask(window=False)))
        size = (kind.kv_rank, tokens, count)
        joined = part if joined is None else g.op("concat", (*size[:2], size[2] + _heads(joined)), joined, part)
        g.expand(joined)
    assert joined is not None
    return joined


def _heads(node: Node) -> int:
    return int(node.layout[0][2]) if isinstance(node.layout, tuple) else 1


def _by_heads(b: Builder, weights: Weights, kind: LatentAttention, parts: tuple[Node, Node, Node, Node]) -> Node:
    """Keys and values of a group of heads at a time are made from the whole cache and attended to."""
    g, (query, turned, key, latent) = b.graph, parts
    _cache_latent(b, weights, kind, key, latent)
    group = heads_at_once(kind, b.batch.cells, b.batch.attention_limit_mib)
    cells, quantised = b.batch.cells, b.batch.key_bits != "f16"
    rope: Node = g.view(weights.cache, 1)
    rope = g.op("cast", (kind.rope_dim, cells), rope, width=F16) if quantised else rope
    repeated = g.op("repeat", (kind.rope_dim, cells, group), rope, width=F16)
    latents: Node = g.view(weights.cache, 1)
    queries = _part(b, g.op("concat", (kind.head_dim, kind.heads, b.batch.tokens), _part(b, query), turned))
    g.expand(queries)
    mixed: Node | None = None
    for _ in range(kind.heads // group):
        mixed = _one_group(b, weights, kind, (group, queries, latents, repeated, mixed))
    assert mixed is not None
    return mixed


def _one_group(b: Builder, weights: Weights, kind: LatentAttention, parts: tuple[int, Node, Node, Node, Node | None]) -> Node:
    g, cells, tokens = b.graph, b.batch.cells, b.batch.tokens
    group, queries, latents, repeated, before = parts
    both = g.op("matmul", ((kind.nope_dim + kind.value_dim) * group, cells), weights["attn_kv_b.weight"], latents)
    values = g.op("cast", (kind.value_dim, cells, group), _part(b, both), width=F16)
    keys = g.op("cast", (kind.nope_dim, cells, group), _part(b, both), width=F16)
    g.expand(keys, values)
    whole = g.op("concat", (kind.head_dim, cells, group), repeated, keys, width=F16)
    g.expand(whole)
    mixed = g.op("flash_attention", (kind.value_dim, group, tokens), _part(b, queries), whole, values, b.mask(window=False))
    flat = g.view(mixed, kind.value_dim * group, tokens)
    if before is None:
        return flat
    width = int(before.layout[0][0]) if isinstance(before.layout, tuple) else 0
    return g.op("concat", (width + kind.value_dim * group, tokens), before, flat)


def _steps(kind: LatentAttention, score_bytes: int, limit_mib: int) -> int:
    """In how many groups of heads the scores are computed so that they stay below ``limit_mib`` (0 = no limit)."""
    if limit_mib <= 0 or score_bytes // MiB <= limit_mib:
        return 1
    return min(-(-(score_bytes // MiB) // limit_mib), kind.heads)


def heads_at_once(kind: LatentAttention, cells: int, limit_mib: int) -> int:
    """How many heads are expanded together so that their f32 keys and values stay below ``limit_mib`` (0 = no limit)."""
    if limit_mib <= 0:
        return kind.heads
    whole_mib = kind.heads * (kind.nope_dim + kind.value_dim) * cells * F32 // MiB
    if whole_mib <= limit_mib:
        return kind.heads
    fits = (n for n in range(2, kind.heads) if kind.heads % n == 0 and whole_mib // n <= limit_mib)
    return kind.heads // next(fits, kind.heads)
