"""HRM-Text: two stacks of gated-attention layers, run in turn several times; each run keeps a cache of its own.

Source of names and shapes: transformers 5.23, modeling_hrm_text.py and configuration_hrm_text.py.
"""

import msgspec

from vramcast.models.config import Config
from vramcast.models.families import parts
from vramcast.models.inventory import Block, Model, Tensor
from vramcast.models.layers import Attention, Dense

_STACKS = ("L_module", "H_module")


def read(config: Config, *, prefix: str = "model.") -> Model:
    """An HRM-Text model: its blocks hold each layer's tensors once, its cache counts every run of them."""
    hidden, depth = config.size("hidden_size"), _depth(config)
    high, low = config.size("H_cycles", default=2), config.size("L_cycles", default=3)
    built = [_stack(config, hidden, f"{prefix}{name}.layers.{{}}.", depth) for name in _STACKS]
    # Runs after the first read the same weights and keep caches of their own.
    again = _again(built[0], depth, high * (low + 1) - len(_STACKS))
    return parts.decoder(
        config,
        hidden=hidden,
        prefix=prefix,
        blocks=(*built, *again),
        norm=(),
        extra=(Tensor(name=f"{prefix}z_L_init", shape=(hidden,), role="state", kind="frozen"),),
        unmodelled=("the FLOPs of layers that run again",) if again else (),
    )


def _depth(config: Config) -> int:
    """Layers of one stack; a saved config gives them apart, as its ``num_hidden_layers`` then counts every run."""
    return config.size("num_layers_per_stack", "num_hidden_layers")


def _stack(config: Config, hidden: int, name: str, depth: int) -> Block:
    heads = config.size("num_attention_heads")
    kind = Attention(heads=heads, kv_heads=heads, head_dim=config.size("head_dim", default=max(1, hidden // heads)))
    feed = Dense(intermediate=config.size("intermediate_size"), activation=config.text("hidden_act", default="silu"))
    bias, width = config.flag("attention_bias", default=False), heads * kind.head_dim
    return Block(
        name=name,
        indices=tuple(range(depth)),
        mixers=(kind,),
        feedforward=feed,
        tensors=(
            *parts.attention(kind, hidden, bias=bias),
            *parts.linear("self_attn.gate_proj", width, hidden, "q", shard=0, groups=heads, bias=bias),
            *parts.gated_mlp(feed, hidden, bias=config.flag("mlp_bias", default=False)),
        ),
    )


def _again(block: Block, depth: int, runs: int) -> tuple[Block, ...]:
    places = tuple(range(2 * depth, (2 + runs) * depth))
    return (msgspec.structs.replace(block, indices=places, tensors=()),) if places else ()
