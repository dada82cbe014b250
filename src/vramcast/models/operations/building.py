"""From a model's inventory to the operations of one rank: every matrix a token meets, every mixer, norms, head and exchanges.

The tensors say which products there are (so a family needs no rule of its own here); the mixers say what happens between them.
"""

from collections.abc import Iterable, Iterator
from math import prod
from typing import Any

import msgspec
from msgspec.structs import replace as change

from vramcast.models.inventory import Block, Mixer, Model, Tensor, Tower
from vramcast.models.layers import Attention, Dense, Experts, GatedDeltaNet, LatentAttention, Mamba2
from vramcast.models.operations.kinds import (
    Exchange,
    ExpertProducts,
    Indexing,
    LatentScores,
    Linear,
    Operation,
    Pointwise,
    Recurrence,
    Scores,
)  # fmt: skip
from vramcast.models.operations.products import Split
from vramcast.models.quantization.plan import PLAIN, Format
from vramcast.models.quantization.scheme import Scheme, stored_bytes
from vramcast.models.sharding import cut, share_shape, units_held

# One kernel for products of the same input: what inference engines store as one matrix.
FUSED = {
    "q": "qkv", "k": "qkv", "v": "qkv", "q_a": "qkv_a", "kv_a": "qkv_a", "gate": "gate_up", "up": "gate_up",
    "shared.gate": "shared.gate_up", "shared.up": "shared.gate_up",
}  # fmt: skip
# Looked up, added or scaled rather than multiplied with the rows; expert matrices are an operation of their own.
_NO_PRODUCT = frozenset({"embedding", "position", "norm", "bias", "state", "conv", "adapter"})
_ATTENTION = frozenset({"q", "k", "v", "qkv", "o", "q_a", "q_b", "kv_a", "kv_b", "qkv_a", "indexer"})
_SMALL_ROWS = 256


class Numbers(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Bytes of one element: an activation, a cached key or value, a recurrent state; and whether engines fuse like products.

    ``absorbs_prefill``: latent attention carries prefills into the latent space too. ``experts_form``: the storage of routed
    experts when another than the scheme's.
    """

    activation: float = 2.0
    kv: float = 2.0
    state: float = 4.0
    fuses: bool = True
    absorbs_prefill: bool = False


def operations(
    model: Model, *, scheme: Scheme | None = None, split: Split | None = None, numbers: Numbers | None = None
) -> tuple[Operation, ...]:
    """What one rank runs in one forward pass over text, in layer order, equal layers as one operation with a ``count``.

    ``scheme``: how weights are stored, the checkpoint's own when None. Towers and stored-only parts are not included.
    """
    listing = _Listing(model, scheme or Scheme(model, dtype="bfloat16"), split or Split(), numbers or Numbers())
    found: list[Operation] = []
    for block in model.blocks:
        found += listing.block(block)
    return (*found, *listing.ends())


def tower_operations(
    model: Model, tower: Tower, *, scheme: Scheme | None = None, split: Split | None = None, numbers: Numbers | None = None
) -> tuple[Operation, ...]:
    """The same for one tower (vision, audio, MTP layers): its rows are its own tokens, patches for a vision tower."""
    listing = _Listing(model, scheme or Scheme(model, dtype="bfloat16"), split or Split(), numbers or Numbers(), tower=tower)
    found: list[Operation] = []
    for block in tower.blocks:
        found += listing.block(block)
    return (*found, *listing.linears(tower.tensors, part="tower"))


# Kernels around the exchange of a norm over all heads: to fp32, squares, their mean, joined, and the product with the root
# (vllm/model_executor/layers/mamba/linear_attn.py MiniMaxText01RMSNormTP.forward_qk, 0.19).
_JOINT_NORM_KERNELS = 5


class _Listing:
    """One model under one storage and split, while its operations are listed."""

    def __init__(self, model: Model, scheme: Scheme, split: Split, numbers: Numbers, tower: Tower | None = None) -> None:
        self.model, self.scheme, self.split, self.numbers, self.tower = model, scheme, split, numbers, tower
        self.hidden = tower.hidden or model.hidden if tower else model.hidden

    def block(self, block: Block) -> Iterator[Operation]:
        """The operations of a group of equal layers."""
        yield from self.linears(block.tensors, block=block)
        mixers = (*block.mixers, *((block.cross,) if block.cross else ()))
        for mixer in mixers:
            yield from self._mixer(mixer, block)
        if isinstance(block.feedforward, Experts):
            yield from self._experts(block.feedforward, block)
        elif block.feedforward:
            yield self._activation(block.feedforward, block)
        yield from self._norms(block)
        yield from self._exchanges(block)

    def linears(self, tensors: Iterable[Tensor], *, block: Block | None = None, part: str = "") -> Iterator[Linear]:
        """The matrix products of these tensors, those of one input joined where engines join them."""
        joined: dict[tuple[str, int, str], list[Any]] = {}
        for tensor in tensors:
            if not _multiplies(tensor):
                continue
            outputs, inputs = self._shape(tensor)
            for form, layers in self._forms(tensor, block).items():
                name = self._name(tensor, outputs)
                size = stored_bytes(form, tensor, outputs * inputs)
                own = joined.setdefault((name, inputs, form.name), [0, 0.0, layers, _part(tensor, block, part)])
                own[0] += outputs
                own[1] += size
        for (name, inputs, form_name), (outputs, size, layers, kind) in joined.items():
            product = Linear(
                name=name, part=kind, outputs=outputs, inputs=inputs, weight_bytes=size, form=form_name, count=layers,
                element=self.numbers.activation,
            )  # fmt: skip
            yield from self._latent_products(product, block) if name == "kv_b" and block else (product,)

    def _latent_products(self, product: Linear, block: Block) -> Iterator[Linear]:
        """kv_b: keys and values are decompressed for prefills; decodes absorb it as two products for each head."""
        mixer = next(m for m in block.mixers if isinstance(m, LatentAttention))
        wide, rank = mixer.nope_dim + mixer.value_dim, product.inputs
        heads, each = product.outputs // wide, product.weight_bytes / wide
        if not self._absorbs(mixer):
            yield change(product, rows="keys")
        absorbed = change(product, matrices=heads, rows="tokens" if self._absorbs(mixer) else "decodes")
        yield change(absorbed, name="absorb_k", outputs=rank, inputs=mixer.nope_dim, weight_bytes=each * mixer.nope_dim)
        yield change(absorbed, name="absorb_v", outputs=mixer.value_dim, inputs=rank, weight_bytes=each * mixer.value_dim)

    def _absorbs(self, mixer: LatentAttention) -> bool:
        """Whether prefills are absorbed too: sparse kernels gather latents."""
        return self.numbers.absorbs_prefill or mixer.indexer is not None

    def _shape(self, tensor: Tensor) -> tuple[int, int]:
        """Outputs and inputs of the rank's share."""
        shape = share_shape(tensor, cut(self.split.tp))
        return prod(shape[:-1]), shape[-1]

    def _forms(self, tensor: Tensor, block: Block | None) -> dict[Format, int]:
        side = self.tower is not None and self.tower.kind != "mtp"
        if block is None:
            return {self.scheme.format_of(tensor, tower=side): 1}
        return self.scheme.formats(tensor, prefix=block.name, indices=block.indices, tower=side)

    def _name(self, tensor: Tensor, outputs: int) -> str:
        role = tensor.role
        if role in ("mixer", "latent") or (role == "router" and not tensor.name.endswith("gate.weight")):
            joins = self.numbers.fuses and tensor.shard == 0 and role == "mixer"
            return ("in_proj" if outputs >= _SMALL_ROWS else "in_gates") if joins else tensor.name.removesuffix(".weight")
        if role == "indexer":
            small = self.numbers.fuses and outputs < _SMALL_ROWS
            return "indexer_k" if small else tensor.name.removesuffix(".weight")
        return FUSED.get(role, role) if self.numbers.fuses else role

    def _mixer(self, mixer: Mixer, block: Block) -> Iterator[Operation]:
        numbers, count = self.numbers, block.count
        if isinstance(mixer, Attention):
            yield from self._attention(mixer, block)
        elif isinstance(mixer, LatentAttention):
            heads = units_held(mixer.heads, self.split.tp)
            yield LatentScores(
                name="scores", part="latent attention", attention=mixer, heads=heads, kv_bytes=numbers.kv, count=count,
                element=numbers.activation, absorbs_prefill=self._absorbs(mixer),
            )  # fmt: skip
            if mixer.indexer:
                yield Indexing(
                    name="index", part="latent attention", indexer=mixer.indexer, rate=mixer.compression or 1, count=count
                )
            wide = heads * mixer.head_dim + mixer.cache_elements
            yield self._stream("rope and cache", "latent attention", wide, wide, block, kernels=3)
        else:
            width = mixer.state_elements / 128 if isinstance(mixer, GatedDeltaNet | Mamba2) else float(self.hidden)
            chunk = mixer.chunk if isinstance(mixer, Mamba2) else 64
            yield Recurrence(
                name="state", part="recurrent", mixer=mixer, share=1 / self.split.tp, state_bytes=numbers.state, count=count,
                element=numbers.activation, chunk=chunk,
            )  # fmt: skip
            yield self._stream("gates", "recurrent", 2 * width / self.split.tp, width / self.split.tp, block, kernels=2)

    def _attention(self, mixer: Attention, block: Block) -> Iterator[Operation]:
        heads, kv_heads = units_held(mixer.heads, self.split.tp), max(1, -(-mixer.kv_heads // self.split.tp))
        yield Scores(
            name="scores", part="attention", attention=mixer, heads=heads, kv_heads=kv_heads, kv_bytes=self.numbers.kv,
            count=block.count, element=self.numbers.activation,
        )  # fmt: skip
        if mixer.indexer:
            yield Indexing(name="index", part="attention", indexer=mixer.indexer, count=block.count)
        wide = heads * mixer.head_dim + kv_heads * (mixer.head_dim + mixer.values)
        joint = self.split.tp > 1 and _normed_together(mixer, block)
        kernels = 2 + mixer.qk_norm + mixer.gated + joint * _JOINT_NORM_KERNELS
        yield self._stream("rope and cache", "attention", wide, wide, block, kernels=kernels)
        if joint:
            yield Exchange(
                name="norm of all heads", collective="all_reduce", world=self.split.tp, wide=2, element=4.0, count=block.count
            )  # fmt: skip

    def _activation(self, dense: Dense, block: Block) -> Operation:
        width = dense.intermediate / self.split.tp
        return self._stream("activation", "feed_forward", width * (2 if dense.gated else 1), width, block)

    def _experts(self, experts: Experts, block: Block) -> Iterator[Operation]:
        form, layers = _experts_form(self, block)
        split, hidden = self.split, experts.latent or self.hidden
        held, width = -(-experts.routed // split.moe_ep), max(1, -(-experts.intermediate // split.moe_tp))
        whole = sum(stored_bytes(form, t) for t in block.tensors if t.role.startswith("expert."))
        yield ExpertProducts(
            name="experts", part="experts", hidden=hidden, width=width, routed=experts.routed, held=held, active=experts.active,
            gated=experts.gated, expert_bytes=whole / experts.routed * width / experts.intermediate, form=form.name,
            replicas=split.attention_dp, count=layers, element=self.numbers.activation,
            biased=any(t.role == "expert.bias" for t in block.tensors),
        )  # fmt: skip
        yield self._stream("routing", "experts", experts.routed, experts.active, block, kernels=2)
        if experts.shared_intermediate:
            shared = experts.shared_intermediate / split.tp
            yield self._stream("shared activation", "experts", 2 * shared, shared, block)

    def _norms(self, block: Block) -> Iterator[Operation]:
        """A norm and the sum with the residual are one kernel; one of them before each of the layer's parts."""
        norms = sum(1 for t in block.tensors if t.role == "norm" and t.shape[-1] == self.hidden and t.name.endswith("weight"))
        if norms:
            yield self._stream("norms", "norms", 2 * self.hidden, 2 * self.hidden, block, kernels=norms, times=norms)

    def _stream(
        self, name: str, part: str, read: float, write: float, block: Block, *, kernels: float = 1, times: float = 1
    ) -> Pointwise:
        return Pointwise(
            name=name, part=part, read=read * times, write=write * times, kernels=kernels, count=block.count,
            element=self.numbers.activation,
        )  # fmt: skip

    def _exchanges(self, block: Block) -> Iterator[Operation]:
        """Row-parallel products end in an all-reduce; experts shared by data-parallel ranks in a dispatch and a combination."""
        split, element = self.split, self.numbers.activation
        same: dict[str, Any] = {"wide": self.hidden, "element": element, "count": block.count}
        sparse = isinstance(block.feedforward, Experts)
        if split.tp > 1 and (block.mixers or block.cross) and not block.parallel:
            yield Exchange(name="after attention", collective="all_reduce", world=split.tp, **same)
        if sparse and split.attention_dp > 1 and split.moe_ep > 1:
            active = min(float(block.feedforward.active), float(split.moe_ep))  # type: ignore[union-attr]
            yield Exchange(name="dispatch and combine", collective="all_to_all", world=split.ranks, active=active, **same)
        elif sparse and split.attention_dp > 1:
            yield Exchange(name="gather tokens", collective="all_gather", world=split.attention_dp, **same)
            yield Exchange(name="scatter tokens", collective="reduce_scatter", world=split.attention_dp, **same)
        elif block.feedforward and split.tp > 1:
            yield Exchange(name="after feed-forward", collective="all_reduce", world=split.tp, **same)

    def ends(self) -> Iterator[Operation]:
        """Final norm, output head, and what vocabulary-parallel ranks exchange."""
        model, split = self.model, self.split
        heads = [t for t in model.tensors if t.role == "head" and len(t.shape) == 2]
        heads = heads or [t for t in model.tensors if t.role == "embedding" and len(t.shape) == 2][:1]
        yield from (self._head(t) for t in heads[:1])
        yield from self.linears(t for t in model.tensors if t.role not in ("head", "embedding"))
        yield Pointwise(
            name="final norm", part="head", read=2 * model.hidden, write=model.hidden, element=self.numbers.activation
        )
        yield Pointwise(name="sampling", part="head", read=model.vocab, write=1, rows="sampled", kernels=4, element=4.0)
        if split.tp > 1:
            same: dict[str, Any] = {"world": split.tp, "element": self.numbers.activation}
            yield Exchange(name="embedding", collective="all_reduce", wide=model.hidden, **same)
            yield Exchange(name="logits", collective="all_gather", wide=model.vocab // split.tp, rows="sampled", **same)

    def _head(self, tensor: Tensor) -> Linear:
        form = self.scheme.format_of(tensor)
        rows, inputs = tensor.shape
        share = -(-rows // self.split.tp)
        return Linear(
            name="head", part="head", outputs=share, inputs=inputs, rows="sampled", form=form.name,
            weight_bytes=stored_bytes(form, tensor, share * inputs), element=self.numbers.activation,
        )  # fmt: skip


def _multiplies(tensor: Tensor) -> bool:
    role = tensor.role
    if len(tensor.shape) < 2 or tensor.kind == "buffer" or role.startswith("expert."):
        return False
    return role not in _NO_PRODUCT and role.rpartition(".")[2] != "bias"


def _normed_together(mixer: Attention, block: Block) -> bool:
    """Whether one norm spans all query heads (MiniMax-M2, OLMo 2), so that ranks exchange its sums of squares."""
    whole = mixer.heads * mixer.head_dim
    return mixer.qk_norm and any(t.role == "norm" and "q_norm" in t.name and t.shape[-1] == whole for t in block.tensors)


def _part(tensor: Tensor, block: Block | None, part: str) -> str:
    if part:
        return part
    if tensor.role == "router" or tensor.role.startswith("shared.") or tensor.role == "latent":
        return "experts"
    if tensor.role == "mixer":
        return "recurrent"
    if tensor.role in _ATTENTION and block:
        mixer = block.mixers[0] if block.mixers else block.cross
        if isinstance(mixer, LatentAttention):
            return "latent attention"
        return "attention" if isinstance(mixer, Attention) else "recurrent"
    return "feed_forward"


def _experts_form(listing: _Listing, block: Block) -> tuple[Format, int]:
    """The format of most of a block's routed experts, and in how many layers they are there."""
    tensor = next((t for t in block.tensors if t.role.startswith("expert.") and not t.role.endswith("bias")), None)
    if tensor is None:
        return PLAIN["bfloat16"], block.count
    forms = listing.scheme.formats(tensor, prefix=block.name, indices=block.indices)
    return max(forms, key=lambda f: forms[f]), block.count
