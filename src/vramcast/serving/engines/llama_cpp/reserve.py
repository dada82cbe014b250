"""What llama.cpp reserves for computing: the worst-case graph of a laid-out model, as straight lines of the cells it attends to.

``llama_context`` reserves the graph of one full micro batch (src/llama-context.cpp, ``sched_reserve``). Only the number of cells
changes with the context, so each allocation on paper is kept as a line with the range of cells over which it holds.
"""

from collections.abc import Callable

import msgspec

from vramcast.memo import by_identity
from vramcast.models.attention import Attention
from vramcast.models.feedforward import Experts
from vramcast.models.inventory import Block
from vramcast.serving.engines.llama_cpp.affine import Span, line
from vramcast.serving.engines.llama_cpp.building import Batch, Habits
from vramcast.serving.engines.llama_cpp.compute import Layer, compute_buffers
from vramcast.serving.engines.llama_cpp.loading import Laid
from vramcast.serving.engines.llama_cpp.scheduler import Schedule
from vramcast.serving.engines.llama_cpp.settings import LlamaSettings

_EXPERTS_BATCH = 32
"""Tokens per expert chosen from which a batch is worth moving to the GPU (ggml-cuda.cu, ``offload_op``)."""
_MOST_PIECES = 64


class Pieces:
    """Bytes of each backend's buffer as lines of n, each with its range; a line is worked out when an n outside all is asked."""

    __slots__ = ("_found", "allocate")

    def __init__(self, allocate: Callable[[int], list[int]]) -> None:
        """``allocate``: bytes of each backend's buffer for a number n, plain or standing for a range."""
        self.allocate = allocate
        self._found: list[tuple[int, int, list[tuple[int, int]]]] = []

    def at(self, n: int) -> list[int]:
        """Bytes of each backend's buffer at n."""
        lines = next((lines for low, high, lines in self._found if low <= n <= high), None) or self._new(n)
        return [constant + slope * n for constant, slope in lines]

    def _new(self, n: int) -> list[tuple[int, int]]:
        span = Span(n)
        lines = [line(size) for size in self.allocate(span.variable())]
        self._found = [(span.low, span.high, lines), *self._found[: _MOST_PIECES - 1]]
        return lines


def compute_bytes(laid: Laid, settings: LlamaSettings) -> list[int]:
    """Bytes of each device's compute buffer, the host's last."""
    blocks, cache = [block for block, _, _ in laid.caches], settings.cache
    batch, everywhere = _batch(blocks, settings)
    schedule = _schedule(blocks, settings, laid)
    pieces = _pieces(laid, batch, _habits(settings), schedule, unit=cache.padding, everywhere=everywhere)
    return pieces.at(cache.stream_cells // cache.padding)


@by_identity(most=512)
def _pieces(laid: Laid, batch: Batch, habits: Habits, schedule: Schedule, *, unit: int, everywhere: bool) -> Pieces:
    """``unit``: what cells are a multiple of; ``everywhere``: windows reach over all of them."""
    layers, outer, own = laid.layers, laid.outer, schedule
    if habits.one_buffer:
        layers = tuple(Layer(x.block, {n: (size, 0) for n, (size, _) in x.stored.items()}, 0) for x in layers)
        outer = {n: (size, 0) for n, (size, _) in outer.items()}
        own = Schedule(backends=1, offload=False)

    def allocate(n: int) -> list[int]:
        cells = n * unit
        whole = msgspec.structs.replace(batch, cells=cells, window_cells=cells if everywhere else batch.window_cells)
        sizes = compute_buffers(laid.model, layers, outer, batch=whole, habits=habits, schedule=own)
        return [*sizes, *[0] * (schedule.backends - len(sizes))]

    return Pieces(allocate)


def _habits(settings: LlamaSettings) -> Habits:
    habits = settings.generation.habits
    if habits.fused_experts and not settings.fused_experts:
        return msgspec.structs.replace(habits, fused_experts=False)
    return habits


def _batch(blocks: list[Block], settings: LlamaSettings) -> tuple[Batch, bool]:
    """The micro batch, its cells left open, and whether windows reach over all of them."""
    cache = settings.cache
    tokens = min(cache.context, settings.micro_batch)
    reach = max((m.window or m.chunk for b in blocks for m in b.mixers if isinstance(m, Attention)), default=0)
    streams = 1 if cache.unified else cache.sequences
    windows = cache.window_cells(reach) // streams if reach and settings.generation.window_caches else 0
    everywhere = windows == cache.stream_cells
    batch = Batch(
        tokens=tokens,
        outputs=tokens if settings.generation.habits.every_output else cache.sequences,
        cells=0,
        window_cells=0 if everywhere else windows,
        sequences=cache.sequences,
        streams=streams,
        flash=settings.flash,
        cache_on_device=not settings.cache_on_host,
        latent_mode=settings.latent_mode,
        latent_expanded=cache.latent == "expanded",
        attention_limit_mib=settings.attention_limit_mib,
        key_bits=cache.key_type,
        value_bits=cache.value_type,
    )
    return batch, everywhere


def _schedule(blocks: list[Block], settings: LlamaSettings, laid: Laid) -> Schedule:
    gpus, layers = settings.placement.gpus, settings.placement.layers
    everything = all(device < gpus for device in layers)
    pipelined = gpus > 1 and everything and settings.mode == "layer" and not settings.cache_on_host
    pipelined = pipelined and not settings.overridden
    moves = settings.op_offload and gpus > 0
    return Schedule(
        backends=gpus + 1,
        offload=moves and settings.micro_batch >= _EXPERTS_BATCH,
        offload_experts=moves and laid.computable and _worth_moving(blocks, settings),
        copies=settings.copies if pipelined else 1,
        gathers=settings.gathers,
    )


def _worth_moving(blocks: list[Block], settings: LlamaSettings) -> bool:
    """ik_llama.cpp moves a batch of experts only when each would see over 32 tokens; llama.cpp any batch of 32."""
    experts = [b.feedforward for b in blocks if isinstance(b.feedforward, Experts)]
    if not settings.generation.fork or not experts:
        return settings.micro_batch >= _EXPERTS_BATCH
    return settings.micro_batch * experts[0].active > _EXPERTS_BATCH * experts[0].routed
