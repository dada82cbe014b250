"""What llama.cpp reserves for computing: the worst-case graph of a laid-out model, as straight lines of the cells it attends to.

``llama_context`` reserves the graph of one full micro batch (src/llama-context.cpp, ``sched_reserve``). Only the number of cells
changes with the context, so each allocation on paper is kept as a line with the range of cells over which it holds.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from vramcast.models.inventory import Block, by_identity
from vramcast.models.layers import Attention, Experts
from vramcast.quantity import Number, is_array, minimum, where
from vramcast.serving.engines.llama_cpp.affine import Span, line
from vramcast.serving.engines.llama_cpp.building import Batch, GraphRules
from vramcast.serving.engines.llama_cpp.compute import Layer, compute_buffers, thinned
from vramcast.serving.engines.llama_cpp.loading import PlacedModel
from vramcast.serving.engines.llama_cpp.scheduler import Schedule
from vramcast.serving.engines.llama_cpp.settings import LlamaSettings

_EXPERTS_BATCH = 32
"""Tokens per expert chosen from which a batch is worth moving to the GPU (ggml-cuda.cu, ``offload_op``)."""
_MOST_PIECES = 64


class Piece(NamedTuple):
    """From ``low`` to ``high`` each backend's buffer is a constant and a slope."""

    low: int
    high: int
    lines: list[tuple[int, int]]


class Pieces:
    """Bytes of each backend's buffer as lines of n, each with its range; a line is worked out when an n outside all is asked."""

    __slots__ = ("_found", "allocate")

    def __init__(self, allocate: Callable[[int], list[int]]) -> None:
        """``allocate``: bytes of each backend's buffer for a number n, plain or standing for a range."""
        self.allocate = allocate
        self._found: list[Piece] = []

    def at(self, n: Number) -> list[Number]:
        """Bytes of each backend's buffer at n, or at every n of an array."""
        if not is_array(n):
            return [constant + slope * n for constant, slope in self._around(n).lines]
        sizes: list[Number] = []
        left = n >= 0
        while left.any():
            piece = self._around(n[left.argmax()].item())
            here = left & (n >= piece.low) & (n <= piece.high)
            sizes = sizes or [n * 0 for _ in piece.lines]
            for size, (constant, slope) in zip(sizes, piece.lines, strict=True):
                size[here] = constant + slope * n[here]
            left &= ~here
        return sizes

    def _around(self, n: int) -> "Piece":
        return next((piece for piece in self._found if piece.low <= n <= piece.high), None) or self._new(n)

    def _new(self, n: int) -> "Piece":
        span = Span(n)
        lines = [line(size) for size in self.allocate(span.variable())]
        piece = Piece(span.low, span.high, lines)
        self._found = [piece, *self._found[: _MOST_PIECES - 1]]
        return piece


def compute_bytes(placed: PlacedModel, settings: LlamaSettings) -> list[Number]:
    """Bytes of each device's compute buffer, the host's last."""
    cache = settings.cache
    n = cache.stream_cells // cache.padding + 0 * (cache.context + cache.sequences)
    if not is_array(n):
        return _pieces_of(placed, settings).at(n)
    sizes = [n * 0 for _ in range(settings.placement.host + 1)]
    for places in _alike(placed, settings, len(n)):
        own = msgspec.structs.replace(settings, cache=cache.at(places[0]))
        for size, found in zip(sizes, _pieces_of(placed, own).at(n[places]), strict=True):
            size[places] = found
    return sizes


def _alike(placed: PlacedModel, settings: LlamaSettings, count: int) -> list[list[int]]:
    """The places of an array's elements whose graphs differ in nothing but the cells."""
    cache, found = settings.cache, dict[tuple[int, ...], list[int]]()
    windows = _windows([block for block, _, _ in placed.caches], settings)
    shapes = (minimum(cache.context, settings.micro_batch), cache.sequences, where(windows == cache.stream_cells, -1, windows))
    lists = (value.tolist() if is_array(value) else [value] * count for value in shapes)
    for place, shape in enumerate(zip(*lists, strict=True)):
        found.setdefault(shape, []).append(place)
    return list(found.values())


def _windows(blocks: list[Block], settings: LlamaSettings) -> Number:
    """Cells of one stream's sliding layers, 0 where no layer slides or none has a cache of its own."""
    reach = max((m.window or m.chunk for b in blocks for m in b.mixers if isinstance(m, Attention)), default=0)
    if not reach or not settings.generation.window_caches:
        return 0
    return settings.cache.window_cells(reach) // (1 if settings.cache.unified else settings.cache.sequences)


def _pieces_of(placed: PlacedModel, settings: LlamaSettings) -> Pieces:
    blocks = [block for block, _, _ in placed.caches]
    batch, everywhere = _batch(blocks, settings)
    schedule = _schedule(blocks, settings, placed)
    return _pieces(placed, batch, _graph_rules_of(settings), schedule, unit=settings.cache.padding, everywhere=everywhere)


def _what_decides(
    placed: PlacedModel, batch: Batch, graph_rules: GraphRules, schedule: Schedule, *, unit: int, everywhere: bool
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """What the graph is made of: where a run of equal layers ends is not, so that most splits over cards share one."""
    kept = [*thinned(placed.layers, schedule.backends - 1)]
    marks = tuple([(layer.cache, mark) for layer, mark in kept])
    outer = tuple(placed.outer.items())
    blocks = [layer.block for layer, _ in kept]
    return (placed.model, *blocks), (marks, outer, len(placed.layers), batch, graph_rules, schedule, unit, everywhere)


@by_identity(most=512, decides=_what_decides)
def _pieces(
    placed: PlacedModel, batch: Batch, graph_rules: GraphRules, schedule: Schedule, *, unit: int, everywhere: bool
) -> Pieces:
    """``unit``: what cells are a multiple of; ``everywhere``: windows reach over all of them."""
    layers, outer, own = placed.layers, placed.outer, schedule
    if graph_rules.one_buffer:
        layers = tuple(Layer(x.block, {n: (size, 0) for n, (size, _) in x.stored.items()}, 0) for x in layers)
        outer = {n: (size, 0) for n, (size, _) in outer.items()}
        own = Schedule(backends=1, offload=False)

    def allocate(n: int) -> list[int]:
        cells = n * unit
        whole = msgspec.structs.replace(batch, cells=cells, window_cells=cells if everywhere else batch.window_cells)
        sizes = compute_buffers(placed.model, layers, outer, batch=whole, graph_rules=graph_rules, schedule=own)
        return [*sizes, *[0] * (schedule.backends - len(sizes))]

    return Pieces(allocate)


def _graph_rules_of(settings: LlamaSettings) -> GraphRules:
    graph_rules = settings.generation.graph_rules
    if graph_rules.fused_experts and not settings.fused_experts:
        return msgspec.structs.replace(graph_rules, fused_experts=False)
    return graph_rules


def _batch(blocks: list[Block], settings: LlamaSettings) -> tuple[Batch, bool]:
    """The micro batch, its cells left open, and whether windows reach over all of them."""
    cache = settings.cache
    tokens = min(cache.context, settings.micro_batch)
    windows = _windows(blocks, settings)
    everywhere = windows == cache.stream_cells
    batch = Batch(
        tokens=tokens,
        outputs=tokens if settings.generation.graph_rules.every_output else cache.sequences,
        cells=0,
        window_cells=0 if everywhere else windows,
        sequences=cache.sequences,
        streams=1 if cache.unified else cache.sequences,
        flash=settings.flash,
        cache_on_device=not settings.cache_on_host,
        latent_mode=settings.latent_mode,
        latent_expanded=cache.latent == "expanded",
        attention_limit_mib=settings.attention_limit_mib,
        key_bits=cache.key_type,
        value_bits=cache.value_type,
    )
    return batch, everywhere


def _schedule(blocks: list[Block], settings: LlamaSettings, placed: PlacedModel) -> Schedule:
    gpus, layers = settings.placement.gpus, settings.placement.layers
    everything = all(device < gpus for device in layers)
    pipelined = gpus > 1 and everything and settings.mode == "layer" and not settings.cache_on_host
    pipelined = pipelined and not settings.overridden
    moves = settings.op_offload and gpus > 0
    return Schedule(
        backends=gpus + 1,
        offload=moves and settings.micro_batch >= _EXPERTS_BATCH,
        offload_experts=moves and placed.computable and _worth_moving(blocks, settings),
        copies=settings.copies if pipelined else 1,
        gathers=settings.gathers,
    )


def _worth_moving(blocks: list[Block], settings: LlamaSettings) -> bool:
    """ik_llama.cpp moves a batch of experts only when each would see over 32 tokens; llama.cpp any batch of 32."""
    experts = [b.feedforward for b in blocks if isinstance(b.feedforward, Experts)]
    if not settings.generation.fork or not experts:
        return settings.micro_batch >= _EXPERTS_BATCH
    return settings.micro_batch * experts[0].active > _EXPERTS_BATCH * experts[0].routed
