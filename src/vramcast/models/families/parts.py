"""The parts most families share, as tensors: attention projections, MLPs, experts, norms, embeddings and head.

Shapes are (output, input) as PyTorch stores a linear layer. Column-parallel layers are cut on axis 0, row-parallel ones on axis 1
(Megatron-LM, arXiv 1909.08053); k and v are cut in whole KV heads and replicated once tensor parallelism exceeds them.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

import msgspec

from vramcast.models.config import Config
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.layers import Attention, Dense, Experts, LatentAttention

GATED = ("gate_proj", "up_proj", "down_proj")
Key = TypeVar("Key", bound=Hashable)


def linear(
    name: str, outputs: int, inputs: int, role: str, *, shard: int | None, groups: int = 0, bias: bool = False, copies: int = 1
) -> tuple[Tensor, ...]:
    """A linear layer's weight and, when it has one, its bias (cut only when the outputs are)."""
    weight = Tensor(name=f"{name}.weight", shape=(outputs, inputs), role=role, shard=shard, groups=groups, copies=copies)
    if not bias:
        return (weight,)
    return weight, Tensor(
        name=f"{name}.bias",
        shape=(outputs,),
        role="expert.bias" if copies > 1 else "bias",
        shard=0 if shard == 0 else None,
        groups=groups if shard == 0 else 0,
        copies=copies,
    )


def attention(
    kind: Attention,
    hidden: int,
    *,
    prefix: str = "self_attn.",
    bias: bool = False,
    out_bias: bool | None = None,
    out: str = "o_proj",
) -> tuple[Tensor, ...]:
    """Separate q, k, v and o projections. ``out_bias`` defaults to ``bias``."""
    keys, values = kind.kv_heads * kind.head_dim, kind.kv_heads * kind.values
    queries = kind.heads * kind.head_dim * (2 if kind.gated else 1)
    return (
        *linear(f"{prefix}q_proj", queries, hidden, "q", shard=0, groups=kind.heads, bias=bias),
        *linear(f"{prefix}k_proj", keys, hidden, "k", shard=0, groups=kind.kv_heads, bias=bias),
        *linear(f"{prefix}v_proj", values, hidden, "v", shard=0, groups=kind.kv_heads, bias=bias),
        *output(kind, hidden, f"{prefix}{out}", bias=bias if out_bias is None else out_bias),
    )


def fused_attention(
    kind: Attention, hidden: int, *, qkv: str, out: str, bias: bool = False, out_bias: bool | None = None
) -> tuple[Tensor, ...]:
    """One query-key-value projection and the output projection; ``qkv`` and ``out`` are full names within the layer."""
    rows = (kind.heads * kind.head_dim, kind.kv_heads * kind.head_dim, kind.kv_heads * kind.values)
    pieces = tuple(zip(rows, (kind.heads, kind.kv_heads, kind.kv_heads), strict=True))
    joined = linear(qkv, sum(rows), hidden, "qkv", shard=0, groups=kind.kv_heads, bias=bias)
    return (
        *(msgspec.structs.replace(tensor, pieces=pieces) for tensor in joined),
        *output(kind, hidden, out, bias=bias if out_bias is None else out_bias),
    )


def output(kind: Attention | LatentAttention, hidden: int, name: str, *, bias: bool = False) -> tuple[Tensor, ...]:
    """The output projection of an attention layer, cut in whole heads."""
    width = kind.heads * (kind.values if isinstance(kind, Attention) else kind.value_dim)
    return linear(name, hidden, width, "o", shard=1, groups=kind.heads, bias=bias)


def gated_mlp(
    kind: Dense,
    hidden: int,
    *,
    prefix: str = "mlp.",
    bias: bool = False,
    role: str = "",
    names: tuple[str, str, str] = GATED,
    copies: int = 1,
) -> tuple[Tensor, ...]:
    """Gate, up and down projections. ``role`` is "", "shared." or "expert."."""
    gate, up, down = names
    return (
        *linear(f"{prefix}{gate}", kind.intermediate, hidden, f"{role}gate", shard=0, bias=bias, copies=copies),
        *linear(f"{prefix}{up}", kind.intermediate, hidden, f"{role}up", shard=0, bias=bias, copies=copies),
        *linear(f"{prefix}{down}", hidden, kind.intermediate, f"{role}down", shard=1, bias=bias, copies=copies),
    )


def fused_mlp(kind: Dense, hidden: int, *, prefix: str = "mlp.", bias: bool = False, role: str = "") -> tuple[Tensor, ...]:
    """A gated MLP whose gate and up projections are one tensor."""
    return (
        *linear(f"{prefix}gate_up_proj", 2 * kind.intermediate, hidden, f"{role}gate_up", shard=0, bias=bias),
        *linear(f"{prefix}down_proj", hidden, kind.intermediate, f"{role}down", shard=1, bias=bias),
    )


def plain_mlp(
    kind: Dense, hidden: int, up: str, down: str, *, bias: bool = False, role: str = "", copies: int = 1
) -> tuple[Tensor, ...]:
    """Up and down projections, no gate; ``up`` and ``down`` are full names within the layer."""
    return (
        *linear(up, kind.intermediate, hidden, f"{role}up", shard=0, bias=bias, copies=copies),
        *linear(down, hidden, kind.intermediate, f"{role}down", shard=1, bias=bias, copies=copies),
    )


def experts(
    kind: Experts, hidden: int, *, prefix: str = "mlp.experts.", bias: bool = False, names: tuple[str, str, str] = GATED
) -> tuple[Tensor, ...]:
    """The routed experts of a layer, under their checkpoint names ("mlp.experts.3.up_proj.weight")."""
    one = Dense(intermediate=kind.intermediate, gated=kind.gated)
    width = kind.latent or hidden
    if kind.gated:
        return gated_mlp(one, width, prefix=f"{prefix}{{}}.", bias=bias, role="expert.", names=names, copies=kind.routed)
    up, down = (f"{prefix}{{}}.{name}" for name in names[1:])
    return plain_mlp(one, width, up, down, bias=bias, role="expert.", copies=kind.routed)


def router(kind: Experts, hidden: int, name: str = "mlp.gate", *, bias: bool = False) -> tuple[Tensor, ...]:
    """The router, held whole by every rank."""
    return linear(name, kind.routed, hidden, "router", shard=None, bias=bias)


def correction(kind: Experts, name: str = "mlp.gate.e_score_correction_bias", *, held: str = "buffer") -> tuple[Tensor, ...]:
    """The load-balancing bias of DeepSeek-V3's router (arXiv 2412.19437, 2.1.2): steered, not trained, kept in float32."""
    return (Tensor(name=name, shape=(kind.routed,), role="router", dtype="float32", kind=held),)


def norms(width: int, *names: str, bias: bool = False) -> tuple[Tensor, ...]:
    """Norm layers of that width, replicated on every rank."""
    weights = tuple(Tensor(name=f"{n}.weight", shape=(width,), role="norm") for n in names)
    biases = tuple(Tensor(name=f"{n}.bias", shape=(width,), role="norm") for n in names) if bias else ()
    return weights + biases


def sinks(kind: Attention | LatentAttention, name: str = "self_attn.sinks") -> tuple[Tensor, ...]:
    """One learned softmax sink per head."""
    return (Tensor(name=name, shape=(kind.heads,), role="state", shard=0, groups=kind.heads),)


def stack(keys: Iterable[Key], build: Callable[[Key], Block]) -> tuple[Block, ...]:
    """One block per distinct key of the layers, in order of first appearance; ``build`` leaves the indices to us."""
    places: dict[Key, list[int]] = {}
    for index, key in enumerate(keys):
        places.setdefault(key, []).append(index)
    return tuple(_placed(build(key), tuple(indices)) for key, indices in places.items())


def _placed(block: Block, indices: tuple[int, ...]) -> Block:
    return Block(
        name=block.name,
        indices=indices,
        tensors=block.tensors,
        mixers=block.mixers,
        feedforward=block.feedforward,
        cross=block.cross,
        shares_cache=block.shares_cache,
        parallel=block.parallel,
    )


def head_name(prefix: str) -> str:
    """The output head's name beside a decoder named ``prefix``: "language_model.model." has "language_model.lm_head.weight"."""
    outer = prefix.removesuffix("model.") if prefix == "model." or prefix.endswith(".model.") else ""
    return f"{outer}lm_head.weight"


def decoder(
    config: Config,
    *,
    hidden: int,
    blocks: tuple[Block, ...],
    vocab: int = 0,
    prefix: str = "model.",
    embedding: str = "",
    norm: tuple[Tensor, ...] | None = None,
    head: str = "",
    head_bias: bool = False,
    tied: bool = False,
    towers: tuple[Tower, ...] = (),
    extra: tuple[Tensor, ...] = (),
    unmodelled: tuple[str, ...] = (),
    embedding_width: int = 0,
) -> Model:
    """The model around its blocks: input embedding, final norm, output head unless tied. ``tied`` is the class's default.

    ``embedding``, ``head`` and ``norm`` default to Llama's names under ``prefix``; ``embedding_width`` is the decoder's unless
    the class projects a narrower one.
    """
    vocab, width = vocab or config.size("vocab_size"), embedding_width or hidden
    is_tied = config.flag("tie_word_embeddings", default=tied)
    return Model(
        id="",
        hidden=hidden,
        vocab=vocab,
        tied=is_tied,
        blocks=blocks,
        tensors=(
            Tensor(name=embedding or f"{prefix}embed_tokens.weight", shape=(vocab, width), role="embedding", shard=0),
            *extra,
            *(norms(hidden, f"{prefix}norm") if norm is None else norm),
            *_head(head or head_name(prefix), vocab, width, weight=not is_tied, bias=head_bias),
        ),
        towers=towers,
        unmodelled=unmodelled,
        **said_of_itself(config),
    )


def said_of_itself(config: Config) -> dict[str, Any]:
    """What a config says of the model beside its shapes."""
    return {
        "family": config.text("model_type", default=""),
        "architecture": config.architecture,
        "positions": positions_of(config),
        "dtype": dtype_of(config),
        "quantization": quantization_of(config),
    }


def _head(name: str, vocab: int, hidden: int, *, weight: bool, bias: bool) -> tuple[Tensor, ...]:
    """The output head: its weight unless tied, and its bias where the class has one."""
    matrix = Tensor(name=name, shape=(vocab, hidden), role="head", shard=0)
    row = Tensor(name=name.replace("weight", "bias"), shape=(vocab,), role="bias", shard=0)
    return (*((matrix,) if weight else ()), *((row,) if bias else ()))


def positions_of(config: Config) -> int:
    """The longest context the config admits; 0 when it does not say."""
    names = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length", "model_max_length")
    return config.integer(*names, default=0)


def quantization_of(config: Config) -> dict[str, Any] | None:
    """The checkpoint's own quantization_config, its lists of numbered modules folded."""
    if not any(config.has(name) for name in ("quantization_config", "compression_config", "quantization")):
        return None
    from vramcast.models.quantization.methods import checkpoint_config

    return checkpoint_config(config.raw)


_SIXTEEN_BITS = frozenset({"bloom", "qwen", "telechat", "minimax_m1"})
"""Index totals: Qwen-72B 144,575,840,256 bytes, BLOOM 352,494,542,848, TeleChat-12B 24,772,864,000, MiniMax-M1 912,210,767,872;
no config of theirs names a type."""


def dtype_of(config: Config) -> str:
    """The checkpoint's dtype: transformers 5 writes ``dtype``, older versions ``torch_dtype``; float32 when neither is there.

    One for each part, as transformers 5 may write it: that of all the rest, else the text's. Two exceptions leave it out of
    16-bit checkpoints: quantised ones, and classes whose indexes state two bytes per parameter.
    """
    parted = config.optional_child("dtype") if isinstance(config.raw.get("dtype"), dict) else None
    if parted:
        return parted.text("", "text_config").removeprefix("torch.")
    halved = config.has("quantization_config") or config.text("model_type", default="") in _SIXTEEN_BITS
    return config.text("dtype", "torch_dtype", default="bfloat16" if halved else "float32").removeprefix("torch.")
