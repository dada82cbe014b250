"""The graph of an attention layer: projections, rotation, cache, scores, output.

Source: src/llama-graph.cpp, build_attn and build_attn_mha.
"""

from vramcast.models.layers import Attention
from vramcast.serving.engines.llama_cpp.building import Builder, Weights
from vramcast.serving.engines.llama_cpp.graph import Node


def attention(b: Builder, weights: Weights, kind: Attention, x: Node, *, shared: bool = False) -> Node:
    """Grouped attention over the cache; ``shared`` layers read another layer's cache and write none."""
    query, gate = _query(b, weights, kind, x)
    if not shared:
        key, value = _key_value(b, weights, kind, x)
        b.graph.expand(query, *((value, key) if b.graph_rules.key_last else (key, value)))
        b.store(weights, key, "key")
        b.store(weights, value, "value")
    b.graph.expand(query)
    window = bool(kind.window or kind.chunk)
    stored = b.stored(weights, kind.kv_heads * kind.head_dim, kind.kv_heads * kind.values, window=window)
    mixed = scores(b, query, kind.heads, kind.values, stored, window=window)
    if gate is not None:
        mixed = b.graph.like("mul", mixed, b.graph.like("unary", gate))
    if "attn_output.weight" not in weights:
        return mixed
    return b.biased(weights, "attn_output.bias", b.matmul(weights["attn_output.weight"], mixed, b.hidden))


def scores(b: Builder, query: Node, heads: int, values: int, stored: tuple[Node, Node], *, window: bool) -> Node:
    """Attention of all heads over the cells, (heads * values, tokens); ``stored``: keys and values of the cache."""
    g, tokens = b.graph, b.batch.tokens
    turned = g.view(query, 1, strided=True)
    keys, kept = stored
    if b.batch.flash:
        mixed = g.op("flash_attention", (values, heads, tokens), turned, keys, kept, b.mask(window), name="attention")
        flat = g.view(mixed, heads * values, tokens)
    else:
        flat = _plain(b, turned, keys, kept, (heads, values), window=window)
    g.expand(flat)
    return flat


def _plain(b: Builder, query: Node, keys: Node, values: Node, shape: tuple[int, int], *, window: bool) -> Node:
    g, tokens, (heads, width) = b.graph, b.batch.tokens, shape
    mask = b.mask(window)
    cells = mask.layout[0][0] if isinstance(mask.layout, tuple) else b.batch.cells
    raw = g.op("matmul", (cells, tokens, heads), keys, query, name="scores")
    soft = g.like("softmax", raw, mask)
    mixed = g.op("matmul", (width, tokens, heads), values, soft)
    flat = g.op("cont", (heads * width, tokens), g.view(mixed, 1, strided=True))
    if not b.batch.cache_on_device:
        flat.home = b.cpu
    return flat


def _query(b: Builder, weights: Weights, kind: Attention, x: Node) -> tuple[Node, Node | None]:
    g, tokens = b.graph, b.batch.tokens
    if "attn_qkv.weight" in weights:
        return _rotated(b, weights, "q", kind, g.view(_fused(b, weights, kind, x), 1, strided=True)), None
    width = kind.heads * kind.head_dim * (2 if kind.gated else 1)
    query = b.biased(weights, "attn_q.bias", b.matmul(weights["attn_q.weight"], x, width))
    if not kind.gated:
        return _rotated(b, weights, "q", kind, g.view(query, kind.head_dim, kind.heads, tokens)), None
    gate = g.op("cont", (kind.heads * kind.head_dim, tokens), g.view(query, 1, strided=True))
    return _rotated(b, weights, "q", kind, g.view(query, 1, strided=True)), gate


def _key_value(b: Builder, weights: Weights, kind: Attention, x: Node) -> tuple[Node, Node]:
    g, tokens = b.graph, b.batch.tokens
    if "attn_qkv.weight" in weights:
        fused = _fused(b, weights, kind, x)
        return _rotated(b, weights, "k", kind, g.view(fused, 1, strided=True)), g.view(fused, 1, strided=True)
    key = b.biased(weights, "attn_k.bias", b.matmul(weights["attn_k.weight"], x, kind.kv_heads * kind.head_dim))
    value = key
    if "attn_v.weight" in weights:
        value = b.biased(weights, "attn_v.bias", b.matmul(weights["attn_v.weight"], x, kind.kv_heads * kind.values))
    key = _rotated(b, weights, "k", kind, g.view(key, kind.head_dim, kind.kv_heads, tokens))
    return key, g.view(value, kind.values, kind.kv_heads, tokens)


def _fused(b: Builder, weights: Weights, kind: Attention, x: Node) -> Node:
    known = next((n for n in b.graph.nodes[::-1] if n.srcs[:1] == [weights["attn_qkv.weight"]]), None)
    width = (kind.heads + kind.kv_heads) * kind.head_dim + kind.kv_heads * kind.values
    if known is None:
        known = b.matmul(weights["attn_qkv.weight"], x, width)
        b.graph.expand(known)
    return b.biased(weights, "attn_qkv.bias", known)


def _rotated(b: Builder, weights: Weights, which: str, kind: Attention, x: Node) -> Node:
    heads = kind.heads if which == "q" else kind.kv_heads
    shape = (kind.head_dim, heads, b.batch.tokens)
    if f"attn_{which}_norm.weight" in weights:
        normed = b.graph.op("fused_norm" if b.graph_rules.fused_norm else "rms_norm", shape, x)
        if isinstance(x.layout, tuple):
            normed.layout = x.layout
        x = normed if b.graph_rules.fused_norm else b.graph.like("mul", normed, weights[f"attn_{which}_norm.weight"])
    return b.graph.op("rope", shape, x, b.positions())
