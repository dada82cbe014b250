"""Where every tensor of the file lies once it is loaded, and each layer's cache: what the context cannot change.

The model buffer of a device is a term, opened by part of the model: elements, their types, bytes.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from vramcast.ledger import Term
from vramcast.models.inventory import Block, Model, by_identity
from vramcast.quantity import Number
from vramcast.serving.engines.llama_cpp.compute import Layer
from vramcast.serving.engines.llama_cpp.placement import Placement
from vramcast.serving.engines.llama_cpp.stored import Part

_ALIGNMENT = 128
_REPACKED = re.compile(r"_r\d+$")
_REPACKED_ON_GPU = re.compile(r"iq(1_[sm]|\d_ks?)_r4$")
"""Interleaved types are for the CPU; ik_llama.cpp has CUDA kernels for these alone (its pulls 461 and 492)."""

# first match by what the file calls its tensors (gguf constants.py); what none names is attention
_PARTS = (
    ("token_embd", "embedding"), ("per_layer", "embedding"), ("_exps", "experts"), ("ffn_gate_inp", "experts"), ("norm", "norms"),
    ("ffn_", "feed_forward"), ("ssm_", "recurrent"), ("shortconv", "recurrent"), ("time_mix", "recurrent"),
)  # fmt: skip


class PlacedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model's tensors on their devices: what does not change with the context.

    ``caches``: each kind of layer, the device of its cache, and how many layers of that kind keep theirs there.
    """

    model: Model
    layers: tuple[Layer, ...]
    caches: tuple[tuple[Block, int, int], ...]
    outer: dict[str, tuple[int, int]]
    weights: tuple[int, ...]
    file_bytes: int
    computable: bool
    """Whether a GPU knows the types of the experts, so that they can be moved there for a batch."""


@by_identity(2)
def place_model(
    model: Model, parts: tuple[Part, ...], placement: Placement, *, cache_on_host: bool = False, repacked: bool = False
) -> PlacedModel:
    """Every tensor of the file where the placement puts it, every layer's cache beside its weights or on the host."""
    blocks = model.layer_list()
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
    homes = [placement.host] * len(blocks) if cache_on_host else placement.layers[:-1]
    return PlacedModel(
        model=model,
        layers=tuple(Layer(b, s, home) for b, s, home in zip(blocks, stored, homes, strict=True)),
        caches=_grouped(blocks, homes),
        outer=outer,
        weights=weight_bytes(parts, placement),
        file_bytes=sum(p.bytes for p in parts),
        computable=all(_on_gpu(p.kind, repacked) for p in parts if "_exps." in p.name),
    )


def _grouped(blocks: Sequence[Block], homes: Sequence[int]) -> tuple[tuple[Block, int, int], ...]:
    groups: dict[tuple[int, int], tuple[Block, int, int]] = {}
    for block, home in zip(blocks, homes, strict=True):
        _, _, count = groups.get((id(block), home), (block, home, 0))
        groups[id(block), home] = (block, home, count + 1)
    return tuple(groups.values())


def _on_gpu(kind: str, repacked: bool) -> bool:
    """Whether a GPU has kernels for experts of that type, interleaved at load or in the file."""
    loaded = kind if not repacked or _REPACKED.search(kind) else f"{kind}_r4"
    return not _REPACKED.search(loaded) or bool(_REPACKED_ON_GPU.search(loaded))


def weight_bytes(parts: tuple[Part, ...], placement: Placement) -> tuple[int, ...]:
    """Model buffers by device, the host last."""
    return summed(placement.host, ((device, size) for device, _, size in held_tensors(parts, placement)))


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


def summed(host: int, pairs: Iterable[tuple[int, Number]]) -> tuple[Number, ...]:
    """Bytes by device, the host last, from (device, bytes)."""
    totals: dict[int, Number] = defaultdict(int)
    for device, size in pairs:
        totals[device] = totals[device] + size
    return tuple(totals[i] for i in range(host + 1))


@by_identity()
def weights_term(parts: tuple[Part, ...], placement: Placement, device: int, *, beside_bytes: int = 0) -> Term:
    """Weights of one device; ``beside_bytes``: a projector's or draft model's file that stands on it too."""
    sums: dict[str, _Sum] = {}
    embedding = "head" if device == placement.layers[-1] != placement.host else "embedding"
    for home, part, size in held_tensors(parts, placement):
        if home == device:
            name = part_of(part.name)
            sums.setdefault(embedding if name == "embedding" and part.layer is None else name, _Sum()).add(part, size)
    terms = [Term(name=name, bytes=found.bytes, why=found.why) for name, found in sums.items()]
    if beside_bytes:
        terms.append(Term(name="beside", bytes=beside_bytes, why="files of the projector and the draft model"))
    return Term.total("weights", terms, why=_where(placement, device), source="llama.cpp 0c1e57098, src/llama-model.cpp")


def part_of(name: str) -> str:
    """The part of the model that a tensor of a GGUF file is shown under."""
    if name.startswith("output."):
        return "head"
    return next((part for text, part in _PARTS if text in name), "attention")


class _Sum:
    """Bytes of one part and its elements by type."""

    __slots__ = ("bytes", "types")

    def __init__(self) -> None:
        self.bytes = 0
        self.types: dict[str, int] = {}

    def add(self, part: Part, size_bytes: int) -> None:
        self.bytes += size_bytes
        self.types[part.kind] = self.types.get(part.kind, 0) + part.elements

    @property
    def why(self) -> str:
        """``1,234 elements as q4_k + 56 as f32``."""
        return " + ".join(f"{elements:,} elements as {kind}" for kind, elements in self.types.items())


def _where(placement: Placement, device: int) -> str:
    layers = placement.layers
    here = sum(1 for place in layers[:-1] if place == device)
    head = " and the output" if layers[-1] == device else ""
    return f"{here} of {len(layers) - 1} layers{head}; input embedding on the host; tensors aligned to 128 B"
