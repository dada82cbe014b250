"""One llama.cpp process on paper: what each device holds of weights, cache, state and compute buffer."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from vramcast.models.attention import Attention
from vramcast.models.feedforward import Experts
from vramcast.models.inventory import Block, Model
from vramcast.serving.engines.llama_cpp.building import Batch, Habits
from vramcast.serving.engines.llama_cpp.cache import CacheRules, layer_bytes, state_bytes
from vramcast.serving.engines.llama_cpp.compute import Layer, compute_buffers
from vramcast.serving.engines.llama_cpp.generations import Generation
from vramcast.serving.engines.llama_cpp.placement import Placement
from vramcast.serving.engines.llama_cpp.scheduler import PIPELINE_COPIES, Schedule
from vramcast.serving.engines.llama_cpp.stored import Part

_ALIGNMENT = 128
_REPACKED = re.compile(r"_r\d+$")
_REPACKED_ON_GPU = re.compile(r"iq(1_[sm]|\d_ks?)_r4$")
"""Interleaved types are for the CPU; ik_llama.cpp has CUDA kernels for these alone (its pulls 461 and 492)."""
_EXPERTS_BATCH = 32
"""Tokens per expert chosen from which a batch is worth moving to the GPU (ggml-cuda.cu, ``offload_op``)."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides memory, resolved."""

    generation: Generation
    cache: CacheRules
    placement: Placement
    micro_batch: int = 512
    flash: bool = True
    cache_on_host: bool = False
    op_offload: bool = True
    latent_mode: int = 0
    attention_limit_mib: int = 0
    fused_experts: bool = True
    repacked: bool = False
    mode: str = "layer"
    overridden: bool = False
    copies: int = PIPELINE_COPIES
    gathers: bool = False


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes by device, the host last."""

    weights: tuple[int, ...]
    cache: tuple[int, ...]
    state: tuple[int, ...]
    compute: tuple[int, ...]
    output_bytes: int
    file_bytes: int

    def device(self, index: int) -> int:
        """Everything one device holds, its context apart."""
        return self.weights[index] + self.cache[index] + self.state[index] + self.compute[index]


class Laid(msgspec.Struct, frozen=True, kw_only=True):
    """A model's tensors on their devices: what does not change with the context."""

    model: Model
    layers: tuple[Layer, ...]
    outer: dict[str, tuple[int, int]]
    weights: tuple[int, ...]
    file_bytes: int
    computable: bool = True
    """Whether a GPU knows the types of the experts, so that they can be moved there for a batch."""


def lay_out(model: Model, parts: list[Part], settings: Settings) -> Laid:
    """Every tensor of the file where the placement puts it, every layer's cache beside its weights or on the host."""
    placement, blocks = settings.placement, model.layer_list()
    stored: list[dict[str, tuple[int, int]]] = [{} for _ in blocks]
    outer: dict[str, tuple[int, int]] = {}
    for part in parts:
        target = (part.bytes, placement.device(part.name, part.layer))
        if part.layer is None:
            outer[part.name] = target
        elif part.layer < len(stored):
            stored[part.layer][part.name.split(".", 2)[2]] = target
    if "output.weight" not in outer and "token_embd.weight" in outer:
        outer["output.weight"] = (outer["token_embd.weight"][0], placement.layers[-1])
    homes = [placement.host] * len(blocks) if settings.cache_on_host else placement.layers[:-1]
    return Laid(
        model=model,
        layers=tuple(Layer(b, s, home) for b, s, home in zip(blocks, stored, homes, strict=True)),
        outer=outer,
        weights=weight_bytes(parts, placement),
        file_bytes=sum(p.bytes for p in parts),
        computable=all(_on_gpu(p.kind, settings.repacked) for p in parts if "_exps." in p.name),
    )


def _on_gpu(kind: str, repacked: bool) -> bool:
    """Whether a GPU has kernels for experts of that type, interleaved at load or in the file."""
    loaded = kind if not repacked or _REPACKED.search(kind) else f"{kind}_r4"
    return not _REPACKED.search(loaded) or bool(_REPACKED_ON_GPU.search(loaded))


def plan_of(laid: Laid, settings: Settings) -> Plan:
    """What a process with these settings allocates."""
    host = settings.placement.host
    return Plan(
        weights=laid.weights,
        cache=_summed(host, ((x.cache, layer_bytes(x.block, settings.cache)) for x in laid.layers)),
        state=_summed(host, ((x.cache, state_bytes(x.block, settings.cache)) for x in laid.layers)),
        compute=tuple(_compute(laid, settings)),
        output_bytes=laid.model.vocab * 4 * settings.cache.sequences,
        file_bytes=laid.file_bytes,
    )


def weight_bytes(parts: list[Part], placement: Placement) -> tuple[int, ...]:
    """Model buffers by device, the host last."""
    return _summed(placement.host, ((device, size) for device, _, size in held_tensors(parts, placement)))


def held_tensors(parts: Iterable[Part], placement: Placement) -> Iterator[tuple[int, Part, int]]:
    """Device, tensor and aligned bytes, rows padded on GPUs; a tied embedding is held on the host and again as the output."""
    parts, out = list(parts), placement.layers[-1]
    for part in parts:
        device = placement.device(part.name, part.layer)
        yield device, part, _held(part, device == placement.host)
    if out != placement.host and all(p.name != "output.weight" for p in parts):
        yield from ((out, part, _held(part, host=False)) for part in parts if part.name == "token_embd.weight")


def _held(part: Part, host: bool) -> int:
    size = part.bytes if host else part.bytes + part.padding_bytes
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _summed(host: int, pairs: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    totals: dict[int, int] = defaultdict(int)
    for device, size in pairs:
        totals[device] += size
    return tuple(totals[i] for i in range(host + 1))


def _compute(laid: Laid, settings: Settings) -> list[int]:
    blocks, habits = [x.block for x in laid.layers], _habits(settings)
    batch = _batch(blocks, settings)
    if not habits.one_buffer:
        schedule = _schedule(blocks, settings, computable=laid.computable)
        return compute_buffers(laid.model, laid.layers, laid.outer, batch=batch, habits=habits, schedule=schedule)
    here = [Layer(x.block, {n: (size, 0) for n, (size, _) in x.stored.items()}, 0) for x in laid.layers]
    outer = {n: (size, 0) for n, (size, _) in laid.outer.items()}
    alone = Schedule(backends=1, offload=False)
    whole = compute_buffers(laid.model, here, outer, batch=batch, habits=habits, schedule=alone)
    return [*whole, *[0] * settings.placement.gpus]


def _habits(settings: Settings) -> Habits:
    habits = settings.generation.habits
    fused = habits.fused_experts and settings.fused_experts
    return msgspec.structs.replace(habits, fused_experts=fused)


def _batch(blocks: list[Block], settings: Settings) -> Batch:
    cache = settings.cache
    tokens = min(cache.context, settings.micro_batch)
    reach = max((m.window or m.chunk for b in blocks for m in b.mixers if isinstance(m, Attention)), default=0)
    streams = 1 if cache.unified else cache.sequences
    windows = cache.window_cells(reach) // streams if reach else 0
    return Batch(
        tokens=tokens,
        outputs=tokens if settings.generation.habits.every_output else cache.sequences,
        cells=cache.stream_cells,
        window_cells=windows if settings.generation.window_caches else 0,
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


def _schedule(blocks: list[Block], settings: Settings, *, computable: bool) -> Schedule:
    gpus, layers = settings.placement.gpus, settings.placement.layers
    everything = all(device < gpus for device in layers)
    pipelined = gpus > 1 and everything and settings.mode == "layer" and not settings.cache_on_host
    pipelined = pipelined and not settings.overridden
    moves = settings.op_offload and gpus > 0
    return Schedule(
        backends=gpus + 1,
        offload=moves and settings.micro_batch >= _EXPERTS_BATCH,
        offload_experts=moves and computable and _worth_moving(blocks, settings),
        copies=settings.copies if pipelined else 1,
        gathers=settings.gathers,
    )


def _worth_moving(blocks: list[Block], settings: Settings) -> bool:
    """ik_llama.cpp moves a batch of experts only when each would see over 32 tokens; llama.cpp any batch of 32."""
    experts = [b.feedforward for b in blocks if isinstance(b.feedforward, Experts)]
    if not settings.generation.fork or not experts:
        return settings.micro_batch >= _EXPERTS_BATCH
    return settings.micro_batch * experts[0].active > _EXPERTS_BATCH * experts[0].routed
