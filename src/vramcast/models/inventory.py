"""The inventory: every tensor of a model with its name, shape, role and shard axis, exact, from config.json alone.

A model has tens of thousands of tensors but few distinct ones, so it is kept as blocks (a group of equal layers with their
indices) of tensors (with the number of equal copies, for experts). ``Model.all_tensors()`` writes them all out.

A ``Model`` holds dictionaries, so it has no hash, and comparing it costs more than most formulas. It is never changed, so
functions of models and stages remember their values by the object itself (``by_identity``), which is kept alive beside the
value.
"""

from collections.abc import Callable, Iterator
from functools import wraps
from itertools import islice
from math import prod
from typing import Any, ParamSpec, TypeVar

import msgspec

from vramcast.ledger import Assumption, ModelFacts
from vramcast.models.layers import (
    Attention,
    Dense,
    Experts,
    GatedDeltaNet,
    LatentAttention,
    LinearAttention,
    Mamba1,
    Mamba2,
    Rwkv,
    ShortConv,
)

P = ParamSpec("P")
R = TypeVar("R")


def by_identity(
    objects: int = 1, *, most: int = 256, decides: Callable[..., tuple[tuple[Any, ...], tuple[Any, ...]]] | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator that remembers the last ``most`` values of a function of frozen objects.

    The first ``objects`` arguments are known by identity, all others by value. A function whose value hangs on parts of its
    arguments only gives ``decides``: from the same arguments, the objects known by identity and the values. Values without a hash
    (the arrays of a plan) are not remembered, nor are errors. What is remembered is handed out again, so it must be frozen too.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        known: dict[Any, tuple[tuple[Any, ...], R]] = {}

        @wraps(function)
        def remembered(*args: P.args, **kwargs: P.kwargs) -> R:
            own, values = decides(*args, **kwargs) if decides else (args[:objects], (args[objects:], tuple(kwargs.items())))
            key = (*map(id, own), values)
            try:
                found = known.get(key)
            except TypeError:
                return function(*args, **kwargs)
            if found is None:
                found = (own, function(*args, **kwargs))
                for oldest in list(islice(known, max(0, len(known) - most + 1))):
                    known.pop(oldest, None)
                known[key] = found
            return found[1]

        return remembered

    return decorate


Mixer = Attention | LatentAttention | Mamba1 | Mamba2 | GatedDeltaNet | LinearAttention | ShortConv | Rwkv
FeedForward = Dense | Experts


STREAMS = "residual_streams"
"""In Model.facts: how many residual streams a token has (hyper-connections)."""
TILES = "largest_tiles"
"""In Tower.facts: into how many images of the tower's own size the largest image is cut, where the config says so."""


class Tensor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One tensor, or ``copies`` equal ones (routed experts; ``{}`` in the name is the copy's number).

    ``role``: embedding, position, head, norm, q, k, v, qkv, o, gate, up, gate_up, down, router, mixer (recurrent
    projections), conv, state, bias..., prefixed "expert." for routed and "shared." for shared experts (for example "expert.up").
    ``shard``: the axis that tensor parallelism cuts (0 = output rows, 1 = input columns), None = replicated.
    ``groups``: indivisible units along that axis (KV heads for k and v): when TP exceeds it, units are replicated; 0 = any cut.
    ``dtype``: set only when the tensor keeps that type whatever the model is loaded in ("float32", "int64", ...).
    ``kind``: "parameter", "frozen" (registered with requires_grad False) or "buffer" (stored, not a parameter).
    ``pieces``: (length, units) of each part along that axis where one tensor joins several, as q, k and v: cut each by its own.
    ``stacked``: so many experts lie along axis 0 of this one tensor (gpt-oss, Llama 4), 0 = none.
    """

    name: str
    shape: tuple[int, ...]
    role: str
    shard: int | None = None
    groups: int = 0
    copies: int = 1
    dtype: str | None = None
    kind: str = "parameter"
    stacked: int = 0
    pieces: tuple[tuple[int, int], ...] = ()

    @property
    def elements(self) -> int:
        """Number of elements of all copies."""
        return prod(self.shape) * self.copies


# Held for looking up, scaling or adding, not for multiplying a token with.
_NOT_MULTIPLIED = {"embedding", "position", "norm", "bias", "expert.bias", "state"}


class Block(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A group of equal layers: where they stand (``indices``), what they compute and the tensors of one of them.

    ``name`` holds "{}" for the layer number ("model.layers.{}."). ``mixers`` is usually one; parallel hybrids (Falcon-H1)
    have two; a layer that is only an MLP (Nemotron-H) has none. ``shares_cache`` marks layers that read another layer's KV cache
    (Gemma-3n). ``parallel``: attention and MLP both read the layer's input, each through a norm of its own (GPT-NeoX).
    """

    name: str
    indices: tuple[int, ...]
    tensors: tuple[Tensor, ...]
    mixers: tuple[Mixer, ...] = ()
    feedforward: FeedForward | None = None
    cross: Attention | None = None
    shares_cache: bool = False
    parallel: bool = False

    @property
    def count(self) -> int:
        """Number of layers of this kind."""
        return len(self.indices)

    @property
    def elements(self) -> int:
        """Parameters of ONE layer of this kind."""
        return sum(t.elements for t in self.tensors if t.kind != "buffer")

    @property
    def active_elements(self) -> int:
        """Parameters of one layer that a token passes through (routed experts: the chosen ones)."""
        experts = self.feedforward if isinstance(self.feedforward, Experts) else None
        return sum(
            t.elements * experts.active // experts.routed if experts and t.role.startswith("expert.") else t.elements
            for t in self.tensors
            if t.kind != "buffer"
        )

    @property
    def matmul_flops(self) -> int:
        """Forward FLOPs of one token through this layer's matrices: two for each weight it meets (attention scores excluded)."""
        met = tuple(t for t in self.tensors if t.role not in _NOT_MULTIPLIED and len(t.shape) > 1)
        return 2 * msgspec.structs.replace(self, tensors=met).active_elements


class Tower(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part beside the text decoder: vision or audio tower, projector, encoder of an encoder-decoder, MTP head.

    ``kind``: "vision", "audio", "projector", "encoder", "mtp" ...; ``blocks``: its layers, ``tensors``: what stands beside them;
    ``hidden``: width of its stream.
    ``stored_only``: in the checkpoint but not built when the model is loaded by transformers (MTP layers).
    ``facts``: numbers that rules need (patch size, image size, tokens per image ...), by name.
    """

    name: str
    kind: str
    blocks: tuple[Block, ...] = ()
    tensors: tuple[Tensor, ...] = ()
    hidden: int = 0
    stored_only: bool = False
    facts: dict[str, float] = {}

    @property
    def elements(self) -> int:
        """Parameters of the tower."""
        own = sum(t.elements for t in self.tensors if t.kind != "buffer")
        return own + sum(b.elements * b.count for b in self.blocks)


class Stored(msgspec.Struct, frozen=True, array_like=True):
    """One tensor as a file's header states it: ``dtype`` in the file's words ("BF16", "q4_k"), ``bytes`` as they lie on disk."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


class Model(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a model is. ``tensors`` are those outside any block: embeddings, final norm, head.

    ``family``: the ``model_type`` of the whole; ``wraps``: that of the text decoder inside a wrapper, "" where there is none.
    ``tied``: the output head is the input embedding (the head is then absent from ``tensors``).
    ``head_stored``: the checkpoint nevertheless stores a second copy of the tied head.
    ``quantization``: the checkpoint's own quantization_config, normalised, or None.
    ``stored``: every tensor of the files' own headers, where they were read; exact where formulas assume.
    ``loaded_from``: what this was read from, for the answer's ``model.source``; ``trust``: how far that can be relied upon.
    ``assumed``: what reading it took for granted (an alias, a name taken apart); ``unmodelled``: parts that no rule covers.
    """

    id: str
    family: str
    hidden: int
    vocab: int
    blocks: tuple[Block, ...]
    tensors: tuple[Tensor, ...]
    towers: tuple[Tower, ...] = ()
    wraps: str = ""
    architecture: str = ""
    positions: int = 0
    dtype: str = "bfloat16"
    tied: bool = False
    head_stored: bool = False
    quantization: dict[str, Any] | None = None
    stored: tuple[Stored, ...] = ()
    loaded_from: str = ""
    trust: str = ""
    unmodelled: tuple[str, ...] = ()
    assumed: tuple[Assumption, ...] = ()
    facts: dict[str, float] = {}

    @property
    def text_class(self) -> str:
        """The ``model_type`` of the text decoder: whose row in models/classes says how its layers are written."""
        return self.wraps or self.family

    @property
    def layers(self) -> int:
        """Number of layers of the text decoder."""
        return sum(b.count for b in self.blocks)

    @property
    def parameters(self) -> int:
        """Parameters of the loaded model, a tied tensor counted once, stored-only parts excluded."""
        own = sum(t.elements for t in self.tensors if t.kind != "buffer")
        decoder = sum(b.elements * b.count for b in self.blocks)
        return own + decoder + sum(t.elements for t in self.towers if not t.stored_only)

    @property
    def active_parameters(self) -> int:
        """Parameters one text token passes through: chosen experts only, towers and stored-only parts excluded."""
        own = sum(t.elements for t in self.tensors if t.kind != "buffer")
        return own + sum(b.active_elements * b.count for b in self.blocks)

    @property
    def matmul_flops(self) -> int:
        """Forward FLOPs of one text token through every matrix, the output head included, attention scores excluded."""
        return sum(b.matmul_flops * b.count for b in self.blocks) + 2 * self.vocab * self.hidden

    @property
    def stored_parameters(self) -> int:
        """Parameters the checkpoint stores: those loaded, MTP layers, and the second copy of a tied head where there is one."""
        extra = sum(t.elements for t in self.towers if t.stored_only)
        return self.parameters + extra + (self.vocab * self.hidden if self.tied and self.head_stored else 0)

    def layer_list(self) -> list[Block]:
        """The block of each layer, in layer order."""
        placed = [(i, b) for b in self.blocks for i in b.indices]
        return [b for _, b in sorted(placed, key=lambda pair: pair[0])]

    def all_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor once with its full name, experts and layers written out, stored-only towers last."""
        yield from ((t.name, t) for t in self.tensors)
        for block in self.blocks:
            yield from _written_out(block)
        for tower in sorted(self.towers, key=lambda t: t.stored_only):
            yield from ((t.name, t) for t in tower.tensors)
            for block in tower.blocks:
                yield from _written_out(block)


def _written_out(block: Block) -> Iterator[tuple[str, Tensor]]:
    for index in block.indices:
        prefix = block.name.replace("{}", str(index), 1)
        for tensor in block.tensors:
            if tensor.copies == 1:
                yield prefix + tensor.name, tensor
                continue
            one = msgspec.structs.replace(tensor, copies=1)
            for copy in range(tensor.copies):
                yield prefix + tensor.name.replace("{}", str(copy), 1), one


def resolved_id(model: Model) -> str:
    """The id that a name without a publisher was read as ("qwen2.5 7b"); an id of the hub stays as it was typed."""
    read_as = next((str(a.value) for a in model.assumed if a.name == "model"), None)
    return read_as if read_as and ("/" not in model.id or "://" in model.id) else model.id


def under_its_id(model: Model) -> Model:
    """The model under the id that can be typed anywhere: what a short name was read as."""
    return msgspec.structs.replace(model, id=resolved_id(model))


def facts_of(model: Model) -> ModelFacts:
    """What the answer says of the model."""
    return ModelFacts(
        id=resolved_id(model),
        parameters=model.parameters,
        active_parameters=model.active_parameters,
        layers=model.layers,
        source=model.loaded_from,
    )


PARTS = ("embedding", "attention", "recurrent", "feed_forward", "experts", "norms", "head", "towers")
_PART_OF_ROLE = {
    "embedding": "embedding", "position": "embedding", "head": "head", "norm": "norms", "bias": "norms", "router": "experts",
    "gate": "feed_forward", "up": "feed_forward", "gate_up": "feed_forward", "down": "feed_forward",
    "mixer": "recurrent", "conv": "recurrent", "state": "recurrent",
}  # fmt: skip


def part_of(tensor: Tensor) -> str:
    """The part of the model, one of ``PARTS``, that a tensor is shown under; shared experts count as feed-forward."""
    if tensor.role.startswith("expert."):
        return "experts"
    if tensor.role == "state" and "sink" in tensor.name:
        return "attention"
    return _PART_OF_ROLE.get(tensor.role.removeprefix("shared."), "attention")
