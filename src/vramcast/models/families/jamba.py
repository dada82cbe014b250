"""Jamba: Mamba 1 layers with an attention layer every so often, and a mixture of experts every other layer.

Source of names and shapes: transformers 5.23, modeling_jamba.py.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, state_space
from vramcast.models.families.mixtures import Mixture
from vramcast.models.inventory import Block, Model, Tensor
from vramcast.models.layers import Attention, Dense, Experts, Mamba1

_MIXTURE = Mixture(intermediate="intermediate_size", experts="feed_forward.experts.", router="feed_forward.router")


def read(config: Config, *, prefix: str = "model.") -> Model:
    """A Jamba model."""
    hidden = config.size("hidden_size")

    def build(key: tuple[bool, bool]) -> Block:
        attends, sparse = key
        mixer, mixer_tensors = _attention(config, hidden) if attends else _mamba(config, hidden)
        feed, feed_tensors = _feed_forward(config, hidden, sparse)
        norms = parts.norms(hidden, "input_layernorm", "pre_ff_layernorm")
        return Block(
            name=f"{prefix}layers.{{}}.",
            indices=(),
            mixers=(mixer,),
            feedforward=feed,
            tensors=(*mixer_tensors, *feed_tensors, *norms),
        )

    blocks = parts.stack(_pattern(config), build)
    return parts.decoder(
        config, hidden=hidden, prefix=prefix, blocks=blocks, norm=parts.norms(hidden, f"{prefix}final_layernorm")
    )


def _pattern(config: Config) -> list[tuple[bool, bool]]:
    """(attends, sparse) of each layer, from the periods and offsets of both."""
    every, at = config.size("attn_layer_period", default=8), config.integer("attn_layer_offset", default=4)
    sparse_every, sparse_at = config.size("expert_layer_period", default=2), config.integer("expert_layer_offset", default=1)
    mixed = config.size("num_experts", "num_local_experts", default=16) > 1
    layers = range(config.size("num_hidden_layers"))
    return [(i % every == at, mixed and i % sparse_every == sparse_at) for i in layers]


def _attention(config: Config, hidden: int) -> tuple[Attention, tuple[Tensor, ...]]:
    heads = config.size("num_attention_heads")
    kind = Attention(
        heads=heads,
        kv_heads=config.size("num_key_value_heads", default=heads),
        head_dim=max(1, hidden // heads),
        rope_dim=0,
    )
    return kind, parts.attention(kind, hidden)


def _mamba(config: Config, hidden: int) -> tuple[Mamba1, tuple[Tensor, ...]]:
    kind = Mamba1(
        inner=int(config.number("mamba_expand", default=2) * hidden),
        state=config.size("mamba_d_state", default=16),
        conv=config.size("mamba_d_conv", default=4),
        dt_rank=state_space.rank_of(config, "mamba_dt_rank", hidden),
    )
    bias, conv_bias = config.flag("mamba_proj_bias", default=False), config.flag("mamba_conv_bias", default=True)
    inner_norms = (("dt_layernorm", kind.dt_rank), ("b_layernorm", kind.state), ("c_layernorm", kind.state))
    return kind, (
        *state_space.mamba1(kind, hidden, prefix="mamba.", bias=bias, conv_bias=conv_bias),
        *(norm for name, width in inner_norms for norm in parts.norms(width, f"mamba.{name}")),
    )


def _feed_forward(config: Config, hidden: int, sparse: bool) -> tuple[Dense | Experts, tuple[Tensor, ...]]:
    if sparse:
        mixed = _MIXTURE.kind(config)
        return mixed, _MIXTURE.tensors(config, mixed, hidden)
    dense = Dense(intermediate=config.size("intermediate_size"), activation=config.text("hidden_act", default="silu"))
    return dense, parts.gated_mlp(dense, hidden, prefix="feed_forward.")
