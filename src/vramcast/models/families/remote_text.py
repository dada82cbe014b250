"""Decoders whose code stands beside their checkpoints: Baichuan-M1, IQuest's loop, Klear, Ring-linear, Spark-X2.5.

Source of names and shapes: baichuan_m1.py, iquestloopcoder.py, Klear.py, bailing_moe_linear.py and spark2_5.py of mlx-lm 0.32.2,
which load the published checkpoints; each row here counts what mlx-lm builds of the same config (tests/models/families).
"""

from vramcast.models.config import Config
from vramcast.models.families import mixtures, parts, skeleton, spans
from vramcast.models.families.mixtures import Mixture, shared_count
from vramcast.models.families.skeleton import Override, Style
from vramcast.models.families.state_space import LINEAR_OR_FULL
from vramcast.models.inventory import Block, Model, Tensor
from vramcast.models.layers import Attention, Dense, Experts, LatentAttention, LinearAttention


def read(config: Config, *, prefix: str = "model.") -> Model:
    """A model of one of these classes."""
    kind = config.text("model_type")
    if kind == "bailing_moe_linear":
        return _ring(config, prefix)
    return skeleton.read(config, STYLES[kind], prefix=prefix)


def _loop_gate(config: Config, kind: Attention | LatentAttention, feed: Dense | Experts) -> tuple[Tensor, ...]:
    """Each head has a gate between what the first loop sees and the last tokens that the later ones see."""
    heads, width = config.size("num_attention_heads"), kind.head_dim
    weight = Tensor(name="gate_projection.weight", shape=(heads, width), role="mixer", shard=0)
    return (weight, Tensor(name="gate_projection.bias", shape=(heads,), role="bias", shard=0))


def _head_gate(config: Config, kind: Attention | LatentAttention, feed: Dense | Experts) -> tuple[Tensor, ...]:
    """One gate for each head's output (Spark-X2.5)."""
    bias = config.flag("attention_bias", default=False)
    return parts.linear(
        "self_attn.g_proj", config.size("num_attention_heads"), config.size("hidden_size"), "mixer", shard=0, bias=bias
    )


def _packed(config: Config, style: Style, span: spans.Span) -> tuple[Attention, tuple[Tensor, ...]]:
    """Queries, keys and values in one product; keys and values pass a convolution over two tokens."""
    kind, window = skeleton.attention_of(config, style, span), config.size("conv_window", default=2)
    projections = parts.fused_attention(
        kind, config.size("hidden_size"), qkv="self_attn.W_pack", out="self_attn.o_proj", bias=False
    )
    shape = (1, 1, kind.kv_heads, 1, window)
    filters = tuple(Tensor(name=f"self_attn.conv_{x}", shape=shape, role="conv", shard=2) for x in "kv")
    return kind, (*projections, *filters)


def _listed_windows(config: Config, count: int) -> list[spans.Span]:
    """``sliding_window_layers`` lists those that slide (Baichuan-M1)."""
    sliding = set(config.integers("sliding_window_layers", default=[]))
    return [spans.window_of(config) if i in sliding else spans.FULL for i in range(count)]


def _sliding_heads(config: Config, reach: list[spans.Span]) -> list[Override]:
    """Layers that slide may have heads of their own (Baichuan-M1)."""
    names = (("num_attention_heads", "num_swa_attention_heads"), ("num_key_value_heads", "num_swa_key_value_heads"))
    own = tuple((to, config.size(name)) for to, name in names if config.has(name))
    return [own if span.window else () for span in reach]


def _coefficient(config: Config, kind: Attention | LatentAttention, feed: Dense | Experts) -> tuple[Tensor, ...]:
    """How the shared expert and the routed ones are weighed (Klear)."""
    mixed = isinstance(feed, Experts)
    return parts.linear("mlp.coefficient", 2, config.size("hidden_size"), "router", shard=None, bias=True) if mixed else ()


STYLES: dict[str, Style] = {
    "iquestloopcoder": Style(mlp_bias="mlp_bias", extra=_loop_gate),
    "spark2_5": Style(
        span=spans.every(4), fused_qkv=True, out="out_proj", embedding="embedding", mlp_bias="mlp_bias", extra=_head_gate,
        tied=True,
    ),
    "baichuan_m1": Style(span=_listed_windows, attend=_packed, overrides=_sliding_heads, head_dim=False),
    "Klear": Style(
        qk_norm="head", head_dim=False, extra=_coefficient,
        mixture=Mixture(sparse=mixtures.stepped, shared=shared_count("n_shared_experts"), correction="mlp.expert_bias"),
    ),
}  # fmt: skip


def _ring(config: Config, prefix: str) -> Model:
    """Ring-linear: every ``layer_group_size``-th layer attends, the others keep one matrix a head."""
    hidden, count = config.size("hidden_size"), config.size("num_hidden_layers")
    group, dense = config.size("layer_group_size", default=4), config.integer("first_k_dense_replace", default=0)
    rest = count // group * group
    attends = [LINEAR_OR_FULL[(i + 1) % group == 0 or i >= rest] for i in range(count)]
    sparse = [i >= dense for i in range(count)]
    blocks = parts.stack(
        zip(attends, sparse, strict=True), lambda key: _ring_layer(config, hidden, *key, name=f"{prefix}layers.{{}}.")
    )
    return parts.decoder(
        config, hidden=hidden, prefix=prefix, blocks=blocks, embedding=f"{prefix}word_embeddings.weight", tied=False
    )


def _ring_layer(config: Config, hidden: int, kind: str, sparse: bool, *, name: str) -> Block:
    heads = config.size("num_attention_heads")
    linear = kind == "linear_attention"
    width = max(1, hidden // heads) if linear else config.size("head_dim", default=max(1, hidden // heads))
    groups = heads if linear else config.size("num_key_value_heads", default=heads)
    attention = Attention(heads=heads, kv_heads=groups, head_dim=width)
    bias, qkv_bias = config.flag("use_bias", default=False), config.flag("use_qkv_bias", default=False)
    tensors = parts.fused_attention(
        attention, hidden, qkv="attention.query_key_value", out="attention.dense", bias=qkv_bias, out_bias=bias
    )
    normed = config.flag("use_qk_norm", default=False)
    norms = parts.norms(width, "attention.query_layernorm", "attention.key_layernorm") if normed else ()
    gate = parts.linear("attention.g_proj", heads * width, hidden, "mixer", shard=0, groups=heads) if linear else ()
    inner = parts.norms(heads * width, "attention.g_norm") if linear else ()
    feed, feed_tensors = _ring_feed(config, hidden, sparse=sparse)
    return Block(
        name=name,
        indices=(),
        mixers=(LinearAttention(heads=heads, head_dim=width) if linear else attention,),
        feedforward=feed,
        tensors=(
            *tensors, *norms, *gate, *inner, *feed_tensors,
            *parts.norms(hidden, "input_layernorm", "post_attention_layernorm"),
        ),
    )  # fmt: skip


def _ring_feed(config: Config, hidden: int, *, sparse: bool) -> tuple[Dense | Experts, tuple[Tensor, ...]]:
    if not sparse:
        dense = Dense(intermediate=config.size("intermediate_size"))
        return dense, parts.gated_mlp(dense, hidden)
    mixture = Mixture(shared=_ring_shared, correction="mlp.gate.expert_bias", correction_if="moe_router_enable_expert_bias")
    mixed = mixture.kind(config)
    return mixed, mixture.tensors(config, mixed, hidden)


def _ring_shared(config: Config) -> int:
    wide = config.size("moe_shared_expert_intermediate_size", "moe_intermediate_size")
    return wide * config.integer("num_shared_experts", default=0)
