"""Compute buffers: the worst-case graph of a model is built and allocated on paper, as llama.cpp's own reserve step does.

``llama_context`` builds the graph of one full micro batch and lets ggml plan its memory without allocating
(src/llama-context.cpp, ``sched_reserve``). Here a run of equal layers is built three times at most: a fourth finds the holes that
the third left. The types of a file alternate (Q4_K, Q6_K), so runs are short: where all layers compute the same, no kind is built
more often than four times before the last three (2,575 graphs of 13 models are equal; with windows or states some are not).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from vramcast.models.inventory import Block, Mixer, Model
from vramcast.models.layers import Attention, Dense, Experts, LatentAttention
from vramcast.serving.engines.llama_cpp.attention_graph import attention
from vramcast.serving.engines.llama_cpp.building import Batch, Builder, GraphRules, Weights
from vramcast.serving.engines.llama_cpp.feedforward_graph import experts, mlp
from vramcast.serving.engines.llama_cpp.graph import F32, I32, Node
from vramcast.serving.engines.llama_cpp.latent_graph import latent_attention
from vramcast.serving.engines.llama_cpp.recurrent_graph import recurrent
from vramcast.serving.engines.llama_cpp.scheduler import Schedule, buffer_bytes

Stored = Mapping[str, tuple[int, int]]
"""Tensor name within its layer -> (bytes, backend whose memory holds it)."""


class Layer(msgspec.Struct, frozen=True):
    """One layer: what it computes, its stored tensors, and the backend that keeps its cache."""

    block: Block
    stored: Stored
    cache: int


def compute_buffers(
    model: Model, layers: Sequence[Layer], outer: Stored, *, batch: Batch, graph_rules: GraphRules, schedule: Schedule
) -> list[int]:
    """Bytes of each backend's compute buffer, the host's last."""
    b = Builder(batch, graph_rules, model.hidden, schedule.backends - 1)
    outside = Weights(b.graph, outer, schedule.backends - 1)
    x = _embedded(b, outside)
    kept = [layer for layer, _ in thinned(layers, schedule.backends - 1)]
    narrow = _per_layer_width(layers)
    inputs = _per_layer_inputs(b, outside, x, narrow * len(layers))
    for index, layer in enumerate(kept):
        x = _layer(b, layer, x, last=index == len(kept) - 1)
        if inputs is not None and index < len(kept) - 1:
            x = _with_layer_input(b, Weights(b.graph, layer.stored, layer.cache), inputs, x, narrow)
    x = b.norm(x, outside.get("output_norm.weight"))
    head = outside["output.weight" if "output.weight" in outside else "token_embd.weight"]
    logits = b.graph.op("matmul", (model.vocab, b.batch.outputs), head, x, name="logits")
    logits.is_output = True
    b.graph.expand(logits)
    return buffer_bytes(b.graph, schedule)


def _embedded(b: Builder, outside: Weights) -> Node:
    tokens = b.input("tokens", b.batch.tokens, width=I32)
    if b.graph_rules.embedding_input:
        b.input("vectors", b.hidden, b.batch.tokens, width=F32)
    x = b.graph.op("get_rows", (b.hidden, b.batch.tokens), outside["token_embd.weight"], tokens)
    x.home = b.cpu
    b.graph.expand(x)
    return x


def _per_layer_width(layers: Sequence[Layer]) -> int:
    """Rows of the per-layer gate, 0 for models without one."""
    gates = (t for x in layers[:1] for t in x.block.tensors if t.name.startswith("per_layer_input_gate"))
    return next((t.shape[0] for t in gates), 0)


def _per_layer_inputs(b: Builder, outside: Weights, x: Node, width: int) -> Node | None:
    """Per-layer embeddings (Gemma 3n, Gemma 4 E), made once for the batch: ``width`` in total per token; None for other models.

    Source: src/models/gemma3n.cpp and gemma4.cpp, build_inp_per_layer and project_per_layer_inputs.
    """
    table = outside.get("per_layer_token_embd.weight")
    if table is None or not width:
        return None
    g, shape = b.graph, (width, b.batch.tokens)
    looked_up = g.op("get_rows", shape, table, b.input("tokens", b.batch.tokens))
    looked_up.home = b.cpu
    scaled = g.like("scale", looked_up)
    g.expand(scaled)
    projected = g.like("scale", b.matmul(outside["per_layer_model_proj.weight"], x, width))
    joined = g.like("scale", b.add(b.norm(projected, outside.get("per_layer_projection_norm.weight")), scaled))
    return g.op("cont", shape, g.view(joined, 1, strided=True))


def _with_layer_input(b: Builder, weights: Weights, inputs: Node, x: Node, width: int) -> Node:
    """The layer's output plus its own input, gated."""
    g = b.graph
    gate = g.like("unary", b.matmul(weights["inp_gate.weight"], x, width))
    chosen = g.like("mul", gate, g.view(inputs, 1, strided=True))
    return b.add(b.norm(b.matmul(weights["proj.weight"], chosen, b.hidden), weights.get("post_norm.weight")), x)


Mark = tuple[tuple[str, int, int], ...]


_MOST_OF_A_KIND, _LAST, _SAME = 4, 3, 1


def thinned(layers: Iterable[Layer], host: int) -> Iterator[tuple[Layer, Mark]]:
    """The layers that decide the buffers, each with what of its tensors does: few of each kind, and the last."""
    kept = [*_three_of_a_run(layers, host)]
    if len({id(layer.block) for layer, _ in kept}) > _SAME:
        yield from kept
        return
    seen: dict[tuple[int, int, Mark], int] = {}
    for place, (layer, mark) in enumerate(kept, start=1):
        kind = (id(layer.block), layer.cache, mark)
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= _MOST_OF_A_KIND or place > len(kept) - _LAST:
            yield layer, mark


def _three_of_a_run(layers: Iterable[Layer], host: int) -> Iterator[tuple[Layer, Mark]]:
    """At most three layers of each run of equal ones, each with what of its tensors decides the buffers.

    That is their names and places, and the sizes of those on the host alone: a weight is copied from there, not from a card.
    """
    run, before = 0, None
    for layer in layers:
        mark = tuple([(name, place, size if place == host else 0) for name, (size, place) in layer.stored.items()])
        run = run + 1 if before == (id(layer.block), layer.cache, mark) else 1
        before = (id(layer.block), layer.cache, mark)
        if run <= 3:
            yield layer, mark


def _layer(b: Builder, layer: Layer, x: Node, *, last: bool) -> Node:
    weights = Weights(b.graph, layer.stored, layer.cache)
    mixed = _mixed(b, weights, layer.block, x)
    if last and b.graph_rules.skips_rows:
        mixed, x = _last_rows(b, mixed), _last_rows(b, x)
    if "post_attention_norm.weight" in weights:
        mixed = b.norm(mixed, weights["post_attention_norm.weight"])
    x = b.add(mixed, x) if layer.block.mixers else x
    out = _fed(b, weights, layer.block, x)
    if out is None:
        return x
    if "post_ffw_norm.weight" in weights:
        out = b.norm(out, weights["post_ffw_norm.weight"])
    return b.add(out, x)


def _last_rows(b: Builder, x: Node) -> Node:
    return b.graph.op("get_rows", (b.hidden, b.batch.outputs), x, b.output_rows())


def _mixed(b: Builder, weights: Weights, block: Block, x: Node) -> Node:
    normed = b.norm(x, weights.get("attn_norm.weight"))
    mixed: Node | None = None
    for mixer in block.mixers:
        part = _one_mixer(b, weights, mixer, normed, shared=block.shares_cache)
        mixed = part if mixed is None else b.add(mixed, part)
    return normed if mixed is None else mixed


def _one_mixer(b: Builder, weights: Weights, mixer: Mixer, x: Node, *, shared: bool) -> Node:
    if isinstance(mixer, Attention):
        return attention(b, weights, mixer, x, shared=shared)
    if isinstance(mixer, LatentAttention):
        return latent_attention(b, weights, mixer, x)
    return recurrent(b, weights, mixer, x)


def _fed(b: Builder, weights: Weights, block: Block, x: Node) -> Node | None:
    if block.feedforward is None:
        return None
    normed = b.norm(x, weights.get("ffn_norm.weight"))
    if isinstance(block.feedforward, Experts):
        return experts(b, weights, block.feedforward, normed)
    assert isinstance(block.feedforward, Dense)
    return mlp(b, weights, block.feedforward, normed)
