"""DeciLM / Llama-Nemotron: an architecture search chose each layer's KV heads and MLP width, or removed either half.

Source: the modeling and configuration files beside nvidia/Llama-3_3-Nemotron-Super-49B-v1 on the hub (arXiv 2411.19146).
"""

from typing import NamedTuple

from vramcast.errors import ConfigError, UnmodelledError
from vramcast.models.config import Config
from vramcast.models.families import parts
from vramcast.models.inventory import Block, Model, Tensor
from vramcast.models.layers import Attention, Dense


class _Layer(NamedTuple):
    """KV heads (0 = no attention) and MLP width (0 = none); a half may have been replaced by one linear layer."""

    kv_heads: int
    intermediate: int
    linear_attention: bool
    linear_mlp: bool


def read(config: Config, *, prefix: str = "model.") -> Model:
    """A DeciLM with ``block_configs``."""
    hidden, count = config.size("hidden_size"), config.size("num_hidden_layers")
    given = config.list("block_configs")
    if len(given) < count:
        raise ConfigError(f"{config.path}: block_configs has {len(given)} entries for {count} layers")
    layers = [_layer(config, Config(raw, f"{config.path}: block_configs[{i}]")) for i, raw in enumerate(given[:count])]
    return parts.decoder(
        config,
        hidden=hidden,
        prefix=prefix,
        blocks=parts.stack(layers, lambda layer: _block(config, layer, f"{prefix}layers.{{}}.")),
    )


def _layer(config: Config, block: Config) -> _Layer:
    attention, mlp = block.child("attention"), block.child("ffn")
    for field in ("window_length", "num_sink_tokens", "sparsify"):
        if attention.has(field):
            raise UnmodelledError(f"{attention.path}: {field} is {attention.raw[field]!r}, which has no rule here")
    linear_attention = attention.flag("replace_with_linear", default=False)
    linear_mlp = mlp.flag("replace_with_linear", default=False)
    no_attention = linear_attention or attention.flag("no_op", default=False)
    no_mlp = linear_mlp or mlp.flag("no_op", default=False)
    return _Layer(
        kv_heads=0 if no_attention else config.size("num_attention_heads") // attention.size("n_heads_in_group"),
        intermediate=0 if no_mlp else _width(config, mlp),
        linear_attention=linear_attention,
        linear_mlp=linear_mlp,
    )


def _width(config: Config, mlp: Config) -> int:
    """The width itself, or two thirds of ``ffn_mult`` times the hidden size, rounded up to a multiple of 256."""
    if mlp.has("intermediate_size"):
        return mlp.size("intermediate_size")
    return -(-int(2 * mlp.number("ffn_mult") * config.size("hidden_size") / 3) // 256) * 256


def _block(config: Config, layer: _Layer, name: str) -> Block:
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    width = config.size("head_dim", default=max(1, hidden // heads))
    kind = Attention(heads=heads, kv_heads=layer.kv_heads, head_dim=width) if layer.kv_heads else None
    mlp = Dense(intermediate=layer.intermediate) if layer.intermediate else None
    bias, mlp_bias = config.flag("attention_bias", default=False), config.flag("mlp_bias", default=False)
    return Block(
        name=name,
        indices=(),
        mixers=(kind,) if kind else (),
        feedforward=mlp,
        tensors=(
            *(parts.attention(kind, hidden, bias=bias) if kind else ()),
            *(parts.gated_mlp(mlp, hidden, bias=mlp_bias) if mlp else ()),
            *_replaced(hidden, attention=layer.linear_attention, mlp=layer.linear_mlp),
            *(parts.norms(hidden, "input_layernorm") if kind or layer.linear_attention else ()),
            *(parts.norms(hidden, "post_attention_layernorm") if mlp or layer.linear_mlp else ()),
        ),
    )


def _replaced(hidden: int, *, attention: bool, mlp: bool) -> tuple[Tensor, ...]:
    names = [name for name, there in (("self_attn.linear_attn", attention), ("mlp.linear_mlp", mlp)) if there]
    return tuple(t for name in names for t in parts.linear(name, hidden, hidden, "mixer", shard=None))
