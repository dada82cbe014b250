"""What every layer's graph is built with: the batch, the generation's rules, the weights of the layer at hand.

``GraphRules`` are the choices in which generations of llama.cpp (and ik_llama.cpp) differ and that change the compute buffer.
"""

from collections.abc import Mapping

import msgspec

from vramcast.errors import UnmodelledError
from vramcast.serving.engines.llama_cpp.cache import row_bytes
from vramcast.serving.engines.llama_cpp.graph import F16, F32, I32, I64, Graph, Node


class GraphRules(msgspec.Struct, frozen=True, kw_only=True):
    """How one generation builds its graphs; the values of each are in ``generations.py``."""

    gated_unit: bool = True
    """SwiGLU is one operation with a result of its own (ik_llama.cpp's ggml_fused_mul_unary too); before, SiLU and the product
    worked in place."""
    half_mask: bool = True
    """With flash attention the mask is an f16 input; before, an f32 input converted on the device."""
    every_output: bool = False
    """The worst case returns logits for the whole micro batch; later versions, one row per sequence."""
    embedding_input: bool = True
    """Token and vector inputs are both reserved."""
    fused_norm: bool = False
    """RMS norm and its weight are one operation (ik_llama.cpp)."""
    fused_experts: bool = False
    """Up, gate and activation of experts are one operation (ik_llama.cpp, ``-fmoe``)."""
    mask_padding: int = 1
    """Tokens of the mask are padded to this."""
    one_buffer: bool = False
    """Before the scheduler (pull 4766, b1842) the whole graph, its inputs included, was planned in one buffer."""
    skips_rows: bool = True
    """The last layer drops tokens whose logits nobody wants before its feed-forward."""
    key_last: bool = True
    """Keys are computed after values, so that their rotation can write into the cache."""
    set_rows: bool = True
    """The cache is written by row indices that are inputs; before, by a copy into a view."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """The worst case a server reserves for: tokens of one micro batch, cells they attend to, rows of logits (``outputs``).

    ``window_cells``: of sliding layers, 0 = as the others. ``sequences`` share ``streams`` of the cache: one where it is unified.
    ``latent_mode``, ``latent_expanded``, ``attention_limit_mib``: see latent_graph.py. ``key_bits``, ``value_bits``: ggml types
    of the cache.
    """

    tokens: int
    outputs: int
    cells: int
    window_cells: int = 0
    sequences: int = 1
    streams: int = 1
    flash: bool = True
    cache_on_device: bool = True
    latent_mode: int = 0
    latent_expanded: bool = False
    attention_limit_mib: int = 0
    key_bits: str = "f16"
    value_bits: str = "f16"


_MADE_FROM = {
    "attn_k_b.weight": "attn_kv_b.weight",
    "attn_v_b.weight": "attn_kv_b.weight",
    "attn_kv_b.weight": "attn_k_b.weight",
}
"""Halves of DeepSeek's up-projection that a file may lack are made at load from the other form, beside it."""


class Weights:
    """The weights of one layer, each a leaf of the graph in the buffer it was loaded to."""

    def __init__(self, graph: Graph, stored: Mapping[str, tuple[int, int]], cache: int) -> None:
        self._graph, self._stored = graph, stored
        self._made: dict[str, Node] = {}
        self.cache = graph.cache(cache)
        self.state = graph.cache(cache)

    def get(self, name: str) -> Node | None:
        """The weight of that name, or None when the layer has none."""
        return self[name] if name in self._stored else None

    def __contains__(self, name: str) -> bool:
        return name in self._stored

    def __getitem__(self, name: str) -> Node:
        node = self._made.get(name)
        if node is None:
            found = self._stored.get(name) or self._stored.get(_MADE_FROM.get(name, ""))
            if found is None:
                raise UnmodelledError(
                    f"llama.cpp's graph of a layer without {name} is not known: ask vllm or transformers instead"
                )
            size, place = found
            node = self._made[name] = self._graph.weight(size, place, name)
        return node


class Builder:
    """A graph under construction: shared inputs, and the operations from which layers are made."""

    def __init__(self, batch: Batch, graph_rules: GraphRules, hidden: int, cpu: int) -> None:
        self.graph, self.batch, self.graph_rules, self.hidden, self.cpu = Graph(), batch, graph_rules, hidden, cpu
        self._masks: dict[int, Node] = {}
        self._inputs: dict[str, Node] = {}

    def matmul(self, weight: Node, x: Node, width: int, *more: int) -> Node:
        """``weight`` times ``x``: ``width`` outputs per token."""
        return self.graph.op("matmul", (width, *more) if more else (width, self.rows(x)), weight, x)

    def rows(self, x: Node) -> int:
        """Tokens in a (width, tokens) tensor."""
        return int(x.layout[0][1]) if isinstance(x.layout, tuple) and len(x.layout[0]) > 1 else self.batch.tokens

    def norm(self, x: Node, weight: Node | None) -> Node:
        """RMS norm (or layer norm) and its weight."""
        if self.graph_rules.fused_norm and weight is not None:
            return self.graph.like("fused_norm", x, weight, name="norm")
        normed = self.graph.like("rms_norm", x, name="norm")
        return normed if weight is None else self.graph.like("mul", normed, weight)

    def add(self, x: Node, y: Node) -> Node:
        """Element-wise sum, of the first's layout."""
        return self.graph.like("add", x, y)

    def biased(self, weights: Weights, name: str, x: Node) -> Node:
        """``x`` plus the bias of that name when the layer has one."""
        return self.add(x, weights[name]) if name in weights else x

    def input(self, name: str, *shape: int, width: int = F32) -> Node:
        """The input of that name, made once."""
        if name not in self._inputs:
            self._inputs[name] = self.graph.input(name, *shape, width=width)
        return self._inputs[name]

    def positions(self, per_token: int = 1) -> Node:
        """One position per token (four for models with spatial positions)."""
        return self.input("positions", self.batch.tokens * per_token, width=I32)

    def mask(self, window: bool) -> Node:
        """The attention mask over the cells of this kind of layer, in the type its kernel reads."""
        cells = self.batch.window_cells if window and self.batch.window_cells else self.batch.cells
        key = cells if cells == self.batch.cells and not window else -cells
        if key not in self._masks:
            self._masks[key] = self._new_mask(cells, "window mask" if window else "mask")
        return self._masks[key]

    def _new_mask(self, cells: int, name: str) -> Node:
        rows = -(-self.batch.tokens // self.graph_rules.mask_padding) * self.graph_rules.mask_padding
        half = self.batch.flash and self.graph_rules.half_mask
        mask = self.input(name, cells, rows, width=F16 if half else F32)
        return self.graph.op("cast", (cells, rows), mask, width=F16) if self.batch.flash and not half else mask

    def store(self, weights: Weights, value: Node, kind: str) -> None:
        """Write new keys, values or latents into the layer's cache."""
        target = self.graph.view(weights.cache, 1)
        written = self.graph.write(value, target)
        written.root = weights.cache
        if self.graph_rules.set_rows:
            written.srcs.append(self.input(f"{kind} rows", self.batch.tokens, width=I64))
        self.graph.expand(written)

    def stored(self, weights: Weights, keys: int, values: int, *, window: bool) -> tuple[Node, Node]:
        """Keys and values of all cells as attention reads them: the size matters where they are copied to another device."""
        batch = self.batch
        cells = (batch.window_cells if window and batch.window_cells else batch.cells) * batch.streams
        seen = self.graph.view(weights.cache, 1), self.graph.view(weights.cache, 1)
        for node, kind, elements in zip(seen, (batch.key_bits, batch.value_bits), (keys, values), strict=True):
            node.size = cells * row_bytes(kind, elements)
        return seen

    def output_rows(self) -> Node:
        """Which tokens' logits are wanted."""
        return self.input("output rows", self.batch.outputs, width=I32)
