"""RWKV-4 and RWKV-5: time mixing, channel mixing, nothing that grows with the context.

Version 4 keeps two sums and a maximum per channel, version 5 (remote code) a matrix per head. Source of names and shapes:
transformers 5.23, modeling_rwkv.py; modeling_rwkv5.py beside the checkpoints on the hub.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, state_space
from vramcast.models.inventory import Block, Model, Tensor
from vramcast.models.layers import Dense, Rwkv


def read(config: Config) -> Model:
    """An RWKV model of version 4 or 5."""
    hidden, fourth = config.size("hidden_size"), config.text("model_type") == "rwkv"
    inner = config.size("attention_hidden_size", default=hidden)
    usual = 4 * hidden if fourth else int(hidden * 3.5) // 32 * 32
    feed = Dense(intermediate=config.size("intermediate_size", default=usual), gated=False)
    kind, mixing = _fourth(inner, hidden) if fourth else _fifth(config, inner, hidden)
    block = Block(
        name="rwkv.blocks.{}.",
        indices=tuple(range(config.size("num_hidden_layers"))),
        mixers=(kind,),
        feedforward=feed,
        tensors=(
            *mixing,
            *_channel_mixing(feed, hidden),
            *parts.norms(hidden, "ln1", "ln2", bias=True),
        ),
    )
    return parts.decoder(
        config,
        hidden=hidden,
        blocks=(block,),
        embedding="rwkv.embeddings.weight",
        norm=parts.norms(hidden, "rwkv.ln_out", bias=True),
        head="head.weight",
        extra=parts.norms(hidden, "rwkv.blocks.0.pre_ln", bias=True),
    )


def _fourth(inner: int, hidden: int) -> tuple[Rwkv, tuple[Tensor, ...]]:
    """A state of numerator, denominator and maximum for each channel, as three heads one wide would have."""
    kind, three = Rwkv(heads=3 * inner, head_dim=1, hidden=hidden), ("key", "value", "receptance")
    return kind, (
        *(state_space.state(f"attention.{name}", inner) for name in ("time_decay", "time_first")),
        *(Tensor(name=f"attention.time_mix_{x}", shape=(1, 1, hidden), role="state") for x in three),
        *(t for x in three for t in parts.linear(f"attention.{x}", inner, hidden, "mixer", shard=0)),
        *parts.linear("attention.output", hidden, inner, "mixer", shard=1),
    )


def _fifth(config: Config, inner: int, hidden: int) -> tuple[Rwkv, tuple[Tensor, ...]]:
    width = config.size("head_size", default=64)
    kind = Rwkv(heads=inner // width, head_dim=width, hidden=hidden)
    return kind, _time_mixing(kind, hidden, inner)


def _time_mixing(kind: Rwkv, hidden: int, inner: int) -> tuple[Tensor, ...]:
    mixes = (
        Tensor(name=f"attention.time_mix_{x}", shape=(1, 1, hidden), role="state") for x in ("key", "value", "receptance", "gate")
    )
    into = (parts.linear(f"attention.{x}", inner, hidden, "mixer", shard=0) for x in ("key", "value", "receptance", "gate"))
    return (
        state_space.state("attention.time_decay", kind.heads, kind.head_dim),
        state_space.state("attention.time_faaaa", kind.heads, kind.head_dim),
        *mixes,
        *(tensor for each in into for tensor in each),
        *parts.linear("attention.output", hidden, inner, "mixer", shard=1),
        *parts.norms(hidden, "attention.ln_x", bias=True),
    )


def _channel_mixing(kind: Dense, hidden: int) -> tuple[Tensor, ...]:
    return (
        *(Tensor(name=f"feed_forward.time_mix_{x}", shape=(1, 1, hidden), role="state") for x in ("key", "receptance")),
        *parts.linear("feed_forward.key", kind.intermediate, hidden, "up", shard=0),
        *parts.linear("feed_forward.receptance", hidden, hidden, "gate", shard=None),
        *parts.linear("feed_forward.value", hidden, kind.intermediate, "down", shard=1),
    )
