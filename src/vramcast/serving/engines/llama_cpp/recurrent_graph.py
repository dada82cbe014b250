"""The graph of layers with a fixed state: Mamba 1 and 2, gated delta net, short convolution, linear attention, RWKV.

Sources: src/models/mamba-base.cpp, delta-net-base.cpp, lfm2.cpp, minimax-01.cpp and rwkv7-base.cpp. The scan and the delta rule
are one fused operation each, whose result carries the new state behind the layer's output.
"""

from collections.abc import Callable

from vramcast.models.inventory import Mixer
from vramcast.models.layers import GatedDeltaNet, LinearAttention, Mamba1, Mamba2, Rwkv, ShortConv
from vramcast.serving.engines.llama_cpp.building import Builder, Weights
from vramcast.serving.engines.llama_cpp.graph import Node


def recurrent(b: Builder, weights: Weights, kind: Mixer, x: Node) -> Node:
    """One recurrent layer up to its output projection."""
    return _KINDS[type(kind)](b, weights, kind, x)


def _some(weights: Weights, x: Node, *names: str) -> Node:
    """The first of these weights that the layer has; the input itself when it has none (nothing to read but the input)."""
    return next((weights[name] for name in names if name in weights), x)


def _convolved(b: Builder, weights: Weights, mixed: Node, width: int, window: int) -> Node:
    """Past inputs before the new ones, the last of them stored, then the convolution and its activation."""
    g, tokens = b.graph, b.batch.tokens
    past = g.op("get_rows", (window - 1, width, b.batch.sequences), weights.state)
    joined = g.op("concat", (tokens + window - 1, width), past, g.view(mixed, 1, strided=True))
    b.store(weights, g.view(joined, 1, strided=True), "state")
    return g.like("unary", g.op("ssm_conv", (width, tokens), joined, _some(weights, joined, "ssm_conv1d.weight")))


def _scanned(b: Builder, weights: Weights, width: int, state: int, *sources: Node) -> Node:
    """A fused scan over the tokens: its output, with the new state behind it."""
    g = b.graph
    whole = g.op("scan", (width * b.batch.tokens + state * b.batch.sequences,), weights.state, *sources)
    b.store(weights, g.view(whole, 1, strided=True), "state")
    return g.view(whole, width, b.batch.tokens)


def _out(b: Builder, weights: Weights, mixed: Node, x: Node) -> Node:
    return b.matmul(_some(weights, x, "ssm_out.weight", "attn_output.weight", "shortconv.out_proj.weight"), mixed, b.hidden)


def _mamba2(b: Builder, weights: Weights, kind: Mamba2, x: Node) -> Node:
    g, tokens = b.graph, b.batch.tokens
    wide = b.matmul(_some(weights, x, "ssm_in.weight"), x, kind.inner + kind.conv_width + kind.heads)
    mixed = _convolved(b, weights, wide, kind.conv_width, kind.conv)
    steps = g.op("cont", (kind.heads, tokens), g.view(wide, 1, strided=True))
    scanned = _scanned(b, weights, kind.inner, kind.state_elements, g.view(mixed, 1, strided=True), steps)
    skipped = g.op("mul", (kind.inner, tokens), g.view(mixed, 1, strided=True))
    gate = g.op("cont", (kind.inner, tokens), g.view(wide, 1, strided=True))
    return _out(b, weights, b.norm(g.op("glu", (kind.inner, tokens), gate, b.add(scanned, skipped)), None), x)


def _mamba1(b: Builder, weights: Weights, kind: Mamba1, x: Node) -> Node:
    g, tokens = b.graph, b.batch.tokens
    wide = b.matmul(_some(weights, x, "ssm_in.weight"), x, 2 * kind.inner)
    mixed = _convolved(b, weights, wide, kind.inner, kind.conv)
    small = b.matmul(_some(weights, x, "ssm_x.weight"), mixed, kind.dt_rank + 2 * kind.state)
    steps = b.matmul(_some(weights, x, "ssm_dt.weight"), g.view(small, 1, strided=True), kind.inner, tokens)
    scanned = _scanned(b, weights, kind.inner, kind.state_elements, mixed, steps, g.view(small, 1, strided=True))
    summed = b.add(scanned, g.op("mul", (kind.inner, tokens), mixed))
    gate = g.op("cont", (kind.inner, tokens), g.view(wide, 1, strided=True))
    return _out(b, weights, g.op("glu", (kind.inner, tokens), gate, summed), x)


def _delta(b: Builder, weights: Weights, kind: GatedDeltaNet, x: Node) -> Node:
    g, tokens = b.graph, b.batch.tokens
    width, keys = kind.value_heads * kind.value_dim, kind.key_heads * kind.key_dim
    wide = b.matmul(_some(weights, x, "attn_qkv.weight", "ssm_in.weight"), x, kind.conv_width)
    gate = b.matmul(_some(weights, x, "attn_gate.weight", "ssm_in.weight"), x, width)
    rates = b.matmul(_some(weights, x, "ssm_beta.weight", "ssm_ba.weight"), x, 2 * kind.value_heads)
    g.expand(wide, gate, rates)
    mixed = _convolved(b, weights, wide, kind.conv_width, kind.conv)
    query, key = (g.op("l2_norm", (keys, tokens), g.view(mixed, 1, strided=True)) for _ in range(2))
    values = g.view(mixed, 1, strided=True)
    scanned = _scanned(b, weights, width, kind.state_elements, query, key, values, rates)
    normed = b.norm(scanned, weights.get("ssm_norm.weight"))
    return _out(b, weights, g.like("mul", normed, g.like("unary", gate)), x)


def _short_conv(b: Builder, weights: Weights, kind: ShortConv, x: Node) -> Node:
    g, shape = b.graph, (kind.width, b.batch.tokens)
    wide = b.matmul(_some(weights, x, "shortconv.in_proj.weight", "ssm_in.weight"), x, 3 * kind.width)
    entered = g.op("mul", shape, g.view(wide, 1, strided=True), g.view(wide, 1, strided=True))
    mixed = _convolved(b, weights, entered, kind.width, kind.conv)
    return _out(b, weights, g.op("mul", shape, g.view(wide, 1, strided=True), mixed), x)


def _linear(b: Builder, weights: Weights, kind: LinearAttention, x: Node) -> Node:
    width = kind.heads * kind.head_dim
    wide = b.matmul(_some(weights, x, "attn_qkv.weight"), x, 3 * width)
    scanned = _scanned(b, weights, width, kind.state_elements, b.graph.like("unary", wide))
    gate = b.graph.like("unary", b.matmul(_some(weights, x, "attn_gate.weight", "attn_output_gate.weight"), x, width))
    return _out(b, weights, b.graph.like("mul", b.norm(scanned, None), gate), x)


def _rwkv(b: Builder, weights: Weights, kind: Rwkv, x: Node) -> Node:
    shifted = b.graph.op("concat", (kind.hidden, b.batch.tokens), weights.state, x)
    parts = [b.matmul(_some(weights, x, f"time_mix_{n}.weight"), shifted, kind.hidden) for n in ("receptance", "key", "value")]
    scanned = _scanned(b, weights, kind.hidden, kind.state_elements, *parts)
    return b.matmul(_some(weights, x, "time_mix_output.weight"), b.norm(scanned, None), kind.hidden)


_KINDS: dict[type, Callable[..., Node]] = {
    Mamba1: _mamba1,
    Mamba2: _mamba2,
    GatedDeltaNet: _delta,
    ShortConv: _short_conv,
    LinearAttention: _linear,
    Rwkv: _rwkv,
}
