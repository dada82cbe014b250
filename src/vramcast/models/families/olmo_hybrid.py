"""OLMo Hybrid: gated delta net in most layers, OLMo 2's attention in every fourth, each kind normalised in its own places.

Source of names and shapes: transformers 5.23, modeling_olmo_hybrid.py.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, state_space
from vramcast.models.families.state_space import LINEAR_OR_FULL
from vramcast.models.inventory import Block, Mixer, Model, Tensor
from vramcast.models.layers import Attention, Dense, GatedDeltaNet


def read(config: Config, *, prefix: str = "model.") -> Model:
    """An OLMo Hybrid model."""
    hidden = config.size("hidden_size")
    blocks = parts.stack(_pattern(config), lambda kind: _layer(config, hidden, kind, f"{prefix}layers.{{}}."))
    return parts.decoder(config, hidden=hidden, prefix=prefix, blocks=blocks)


def _pattern(config: Config) -> list[str]:
    """Every fourth layer attends, and the last where none would."""
    count = config.size("num_hidden_layers")
    kinds = [LINEAR_OR_FULL[i % 4 == 3] for i in range(count)]
    usual = kinds if LINEAR_OR_FULL[1] in kinds else [*kinds[:-1], LINEAR_OR_FULL[1]]
    return state_space.layer_kinds(config, "layer_types", LINEAR_OR_FULL)[:count] or usual


def _layer(config: Config, hidden: int, kind: str, name: str) -> Block:
    attends = kind == "full_attention"
    mixer, tensors = _attention(config, hidden) if attends else _delta(config, hidden)
    mlp = Dense(intermediate=config.size("intermediate_size"), activation=config.text("hidden_act", default="silu"))
    norms = ("post_attention_layernorm", "post_feedforward_layernorm" if attends else "input_layernorm")
    return Block(
        name=name,
        indices=(),
        mixers=(mixer,),
        feedforward=mlp,
        tensors=(*tensors, *parts.gated_mlp(mlp, hidden), *parts.norms(hidden, *norms)),
    )


def _attention(config: Config, hidden: int) -> tuple[Mixer, tuple[Tensor, ...]]:
    heads = config.size("num_attention_heads")
    kind = Attention(
        heads=heads,
        kv_heads=config.size("num_key_value_heads", default=heads),
        head_dim=config.size("head_dim", default=max(1, hidden // heads)),
        qk_norm=True,
    )
    projections = parts.attention(kind, hidden, bias=config.flag("attention_bias", default=False))
    queries, keys = kind.heads * kind.head_dim, kind.kv_heads * kind.head_dim
    return kind, (*projections, *parts.norms(queries, "self_attn.q_norm"), *parts.norms(keys, "self_attn.k_norm"))


def _delta(config: Config, hidden: int) -> tuple[Mixer, tuple[Tensor, ...]]:
    """Each projection is a tensor of its own; one convolution runs over queries, keys and values."""
    kind = GatedDeltaNet(
        key_heads=config.size("linear_num_key_heads"),
        value_heads=config.size("linear_num_value_heads"),
        key_dim=config.size("linear_key_head_dim"),
        value_dim=config.size("linear_value_head_dim"),
        conv=config.size("linear_conv_kernel_dim", default=4),
    )
    keys, values, name = kind.key_heads * kind.key_dim, kind.value_heads * kind.value_dim, "linear_attn."
    widths = {"q": keys, "k": keys, "v": values, "a": kind.value_heads, "b": kind.value_heads, "g": values}
    return kind, (
        *(t for x, width in widths.items() for t in parts.linear(f"{name}{x}_proj", width, hidden, "mixer", shard=0)),
        *state_space.convolution(f"{name}conv1d", kind.conv_width, kind.conv, bias=False),
        *(state_space.state(f"{name}{each}", kind.value_heads) for each in ("A_log", "dt_bias")),
        *parts.norms(kind.value_dim, f"{name}o_norm"),
        *parts.linear(f"{name}o_proj", hidden, values, "mixer", shard=1, groups=kind.value_heads),
    )
