"""ZAYA1: queries and keys mixed by a short convolution, half of each value from the token before (CCA), experts of one choice.

Source of names and shapes: transformers 5.23, modeling_zaya.py; Compressed Convolutional Attention, arXiv 2510.04476.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, state_space
from vramcast.models.inventory import Block, Model, Tensor
from vramcast.models.layers import Attention, Experts, ShortConv

_KINDS = ("hybrid", "hybrid_sliding")


def read(config: Config, *, prefix: str = "model.") -> Model:
    """A ZAYA1 model."""
    hidden, count = config.size("hidden_size"), config.size("num_hidden_layers")
    named = state_space.layer_kinds(config, "layer_types", _KINDS)
    kinds = config.per_layer("layer_types", count) if named else ["hybrid"] * count
    keys = [(kind, place > 0) for place, kind in enumerate(kinds)]
    scales = ("input_hidden_states_scale", "input_hidden_states_bias")
    return parts.decoder(
        config,
        hidden=hidden,
        prefix=prefix,
        blocks=parts.stack(keys, lambda key: _layer(config, hidden, *key, name=f"{prefix}layers.{{}}.")),
        tied=True,
        head_bias=config.flag("lm_head_bias", default=False),
        extra=tuple(Tensor(name=f"{prefix}{name}", shape=(hidden,), role="state") for name in scales),
    )


def _layer(config: Config, hidden: int, kind: str, follows: bool, *, name: str) -> Block:
    heads = config.size("num_attention_heads")
    attention = Attention(
        heads=heads,
        kv_heads=config.size("num_key_value_heads", default=2),
        head_dim=config.size("head_dim", default=128),
        window=config.size("sliding_window") if kind == "hybrid_sliding" else 0,
    )
    first, second = config.size("cca_time0", default=2), config.size("cca_time1", default=2)
    experts = Experts(
        routed=config.size("num_experts"),
        active=config.size("num_experts_per_tok", default=1),
        intermediate=config.size("moe_intermediate_size"),
    )
    # What a sequence keeps: the window of both convolutions over queries and keys, and half of the last token's values.
    width = (heads + attention.kv_heads) * attention.head_dim
    return Block(
        name=name,
        indices=(),
        mixers=(attention, ShortConv(width=width, conv=first + second - 1)),
        feedforward=experts,
        tensors=(
            *_projections(config, hidden, attention, (first, second)),
            *_router(config, hidden, experts, follows=follows),
            *parts.experts(experts, hidden),
            *parts.norms(hidden, "input_layernorm", "post_attention_layernorm"),
            *(t for half in ("attention", "mlp") for t in _scaled(hidden, f"post_{half}_residual_scale.")),
        ),
    )


def _projections(config: Config, hidden: int, kind: Attention, kernels: tuple[int, int]) -> tuple[Tensor, ...]:
    """Two convolutions follow the projections of queries and keys: one per channel, one within each head."""
    bias, name = config.flag("attention_bias", default=False), "self_attn.qkv_proj."
    queries, keys = kind.heads * kind.head_dim, kind.kv_heads * kind.head_dim
    both = queries + keys
    halves = (("v_proj_current", "v"), ("v_proj_delayed", "v"))
    return (
        *parts.linear(f"{name}q_proj", queries, hidden, "q", shard=0, groups=kind.heads, bias=bias),
        *parts.linear(f"{name}k_proj", keys, hidden, "k", shard=0, groups=kind.kv_heads, bias=bias),
        *(
            t
            for n, r in halves
            for t in parts.linear(f"{name}{n}", keys // 2, hidden, r, shard=0, groups=kind.kv_heads, bias=bias)
        ),
        *state_space.convolution(f"{name}conv_qk_depthwise", both, kernels[0], bias=True),
        Tensor(name=f"{name}conv_qk_grouped.weight", shape=(both, kind.head_dim, kernels[1]), role="conv", shard=0),
        Tensor(name=f"{name}conv_qk_grouped.bias", shape=(both,), role="conv", shard=0),
        state_space.state("self_attn.qk_norm.temp", kind.kv_heads),
        *parts.output(kind, hidden, "self_attn.o_proj", bias=bias),
    )


def _router(config: Config, hidden: int, kind: Experts, *, follows: bool) -> tuple[Tensor, ...]:
    """A small MLP; it also takes the state of the router before, from the second layer on; one class means no expert."""
    width, name = config.size("router_hidden_size", default=256), "mlp.gate."
    return (
        *parts.linear(f"{name}down_proj", width, hidden, "router", shard=None, bias=True),
        *parts.norms(width, f"{name}router_mlp.norm"),
        *(
            t
            for n in ("fc1", "fc2")
            for t in parts.linear(f"{name}router_mlp.{n}", width, width, "router", shard=None, bias=True)
        ),
        *parts.linear(f"{name}router_mlp.out_proj", kind.routed + 1, width, "router", shard=None),
        *((Tensor(name=f"{name}router_states_scale", shape=(width,), role="router"),) if follows else ()),
        Tensor(name=f"{name}balancing_biases", shape=(kind.routed + 1,), role="router", dtype="float32", kind="buffer"),
    )


def _scaled(hidden: int, name: str) -> tuple[Tensor, ...]:
    """A factor and an offset for the branch, and for the residual it is added to."""
    names = ("hidden_states_scale", "hidden_states_bias", "residual_scale", "residual_bias")
    return tuple(Tensor(name=f"{name}{each}", shape=(hidden,), role="norm") for each in names)
