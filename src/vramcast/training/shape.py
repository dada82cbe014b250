"""A model given by numbers alone (layers, hidden, heads, ...), as in Megatron scripts and papers."""

import msgspec

from vramcast.errors import QuestionError
from vramcast.models.families import parts
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.layers import Attention, Dense, Experts, LatentAttention


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a decoder. ``position``: rope, learned or alibi; ``first_dense``: leading layers without experts.

    ``norm``: rmsnorm or layernorm; ``latent``: DeepSeek's attention ranks as (query, kv, nope, rope, value); ``qk_norm``: queries
    and keys are normed, head by head (Megatron-LM's --qk-layernorm, transformer/attention.py).
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int = 0
    head_dim: int = 0
    ffn: int = 0
    vocab: int = 32_000
    tied: bool = False
    gated: bool = True
    activation: str = ""
    position: str = "rope"
    positions: int = 0
    norm: str = "rmsnorm"
    bias: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    packed: bool = False
    experts: int = 0
    active: int = 2
    expert_ffn: int = 0
    shared_ffn: int = 0
    first_dense: int = 0
    latent: tuple[int, int, int, int, int] | None = None
    mtp: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        for field in ("layers", "hidden", "heads", "vocab"):
            if not 1 <= getattr(self, field) <= 2**31:
                raise QuestionError(f"{field} is {getattr(self, field)}: expected at least 1")
        if not self.head_dim and not self.latent and self.hidden % self.heads:
            raise QuestionError(f"hidden {self.hidden} does not divide into {self.heads} heads: give --head-dim")
        if self.experts and self.active > self.experts:
            raise QuestionError(f"{self.active} experts per token of {self.experts}: expected at most {self.experts}")


def shape_model(shape: Shape) -> Model:
    """The model of those numbers, with the tensors its layers have in Hugging Face's layout."""
    dense_layers = shape.first_dense if shape.experts else shape.layers
    blocks = []
    if dense_layers:
        blocks.append(_block(shape, tuple(range(dense_layers)), sparse=False))
    if dense_layers < shape.layers:
        blocks.append(_block(shape, tuple(range(dense_layers, shape.layers)), sparse=True))
    h = shape.hidden
    outer = [Tensor(name="model.embed_tokens.weight", shape=(shape.vocab, h), role="embedding", shard=0)]
    if shape.position == "learned":
        outer.append(Tensor(name="model.embed_positions.weight", shape=(shape.positions or 2048, h), role="position"))
    outer += parts.norms(h, "model.norm", bias=shape.norm == "layernorm")
    if not shape.tied:
        outer.append(Tensor(name="lm_head.weight", shape=(shape.vocab, h), role="head", shard=0))
    return Model(
        id=shape.name,
        family="shape",
        hidden=h,
        vocab=shape.vocab,
        positions=shape.positions,
        tied=shape.tied,
        blocks=tuple(blocks),
        tensors=tuple(outer),
        towers=_prediction_heads(shape),
        loaded_from="numbers given",
    )


def _block(shape: Shape, indices: tuple[int, ...], *, sparse: bool) -> Block:
    mixer, attention = _attention(shape)
    kind, tensors = _experts(shape) if sparse else _dense(shape)
    norms = parts.norms(shape.hidden, "input_layernorm", "post_attention_layernorm", bias=shape.norm == "layernorm")
    return Block(
        name="model.layers.{}.", indices=indices, mixers=(mixer,), feedforward=kind, tensors=(*attention, *tensors, *norms)
    )


def _attention(shape: Shape) -> tuple[Attention | LatentAttention, tuple[Tensor, ...]]:
    h, heads = shape.hidden, shape.heads
    if shape.latent:
        return _latent(shape)
    kind = Attention(
        heads=heads,
        kv_heads=shape.kv_heads or heads,
        head_dim=shape.head_dim or h // heads,
        rope_dim=-1 if shape.position == "rope" else 0,
        qk_norm=shape.qk_norm,
    )
    normed = parts.norms(kind.head_dim, "self_attn.q_norm", "self_attn.k_norm") if shape.qk_norm else ()
    if not shape.packed:
        return kind, (*parts.attention(kind, h, bias=shape.bias or shape.qkv_bias, out_bias=shape.bias), *normed)
    outputs = (kind.heads + 2 * kind.kv_heads) * kind.head_dim
    return kind, (
        *normed,
        *parts.linear("self_attn.qkv_proj", outputs, h, "qkv", shard=0, groups=kind.kv_heads, bias=shape.bias or shape.qkv_bias),
        *parts.linear("self_attn.o_proj", h, kind.heads * kind.head_dim, "o", shard=1, groups=heads, bias=shape.bias),
    )


def _latent(shape: Shape) -> tuple[LatentAttention, tuple[Tensor, ...]]:
    query, kv, nope, rope, value = shape.latent or (0, 0, 0, 0, 0)
    h, heads = shape.hidden, shape.heads
    kind = LatentAttention(heads=heads, query_rank=query, kv_rank=kv, nope_dim=nope, rope_dim=rope, value_dim=value)
    queries = (
        (
            *parts.linear("self_attn.q_a_proj", query, h, "q", shard=None),
            *parts.norms(query, "self_attn.q_a_layernorm"),
            *parts.linear("self_attn.q_b_proj", heads * (nope + rope), query, "q", shard=0, groups=heads),
        )
        if query
        else parts.linear("self_attn.q_proj", heads * (nope + rope), h, "q", shard=0, groups=heads)
    )
    return kind, (
        *queries,
        *parts.linear("self_attn.kv_a_proj_with_mqa", kv + rope, h, "k", shard=None),
        *parts.norms(kv, "self_attn.kv_a_layernorm"),
        *parts.linear("self_attn.kv_b_proj", heads * (nope + value), kv, "v", shard=0, groups=heads),
        *parts.linear("self_attn.o_proj", h, heads * value, "o", shard=1, groups=heads),
    )


def _dense(shape: Shape) -> tuple[Dense, tuple[Tensor, ...]]:
    width = shape.ffn or 4 * shape.hidden
    kind = Dense(intermediate=width, gated=shape.gated, activation=shape.activation or ("silu" if shape.gated else "gelu"))
    if shape.gated:
        return kind, parts.gated_mlp(kind, shape.hidden, bias=shape.bias)
    return kind, (
        *parts.linear("mlp.up_proj", width, shape.hidden, "up", shard=0, bias=shape.bias),
        *parts.linear("mlp.down_proj", shape.hidden, width, "down", shard=1, bias=shape.bias),
    )


def _experts(shape: Shape) -> tuple[Experts, tuple[Tensor, ...]]:
    width, h, n = shape.expert_ffn or shape.ffn, shape.hidden, shape.experts
    kind = Experts(
        routed=n, active=shape.active, intermediate=width, shared_intermediate=shape.shared_ffn, gated=shape.gated,
        activation=shape.activation or "silu",
    )  # fmt: skip
    names = ("gate", "up") if shape.gated else ("up",)
    tensors = [Tensor(name="mlp.gate.weight", shape=(n, h), role="router")]
    for name in names:
        tensors += parts.linear(f"mlp.experts.{{}}.{name}_proj", width, h, f"expert.{name}", shard=0, copies=n)
    tensors += parts.linear("mlp.experts.{}.down_proj", h, width, "expert.down", shard=1, copies=n)
    if shape.shared_ffn:
        for name in names:
            tensors += parts.linear(f"mlp.shared.{name}_proj", shape.shared_ffn, h, f"shared.{name}", shard=0)
        tensors += parts.linear("mlp.shared.down_proj", h, shape.shared_ffn, "shared.down", shard=1)
    return kind, tuple(tensors)


def _prediction_heads(shape: Shape) -> tuple[Tower, ...]:
    """Multi-token-prediction modules: one more layer and a 2h to h projection each (DeepSeek-V3, arXiv 2412.19437)."""
    if not shape.mtp:
        return ()
    block = _block(shape, tuple(range(shape.mtp)), sparse=bool(shape.experts))
    joint = Tensor(name="mtp.eh_proj.weight", shape=(shape.hidden, 2 * shape.hidden), role="mixer")
    return (Tower(name="mtp", kind="mtp", blocks=(block,), tensors=(joint,), hidden=shape.hidden),)
