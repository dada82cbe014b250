"""RWKV-6 and RWKV-7 (remote code): shifts mixed by what the token says (6), a generalised delta rule (7); states of fixed size.

Source of names and shapes: modeling_rwkv6.py beside the checkpoints on the hub; flash-linear-attention, layers/rwkv7.py and
models/rwkv7/modeling_rwkv7.py. arXiv 2404.05892 and 2503.14456.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, state_space, vit
from vramcast.models.inventory import Block, Model, Tensor
from vramcast.models.layers import Dense, Rwkv


def read(config: Config) -> Model:
    """An RWKV model of version 6 or 7."""
    return _sixth(config) if config.text("model_type") == "rwkv6" else _seventh(config)


def _sixth(config: Config) -> Model:
    hidden = config.size("hidden_size")
    inner, width = config.size("attention_hidden_size", default=hidden), config.size("head_size", default=64)
    feed = Dense(intermediate=config.size("intermediate_size", default=int(hidden * 3.5) // 32 * 32), gated=False)
    block = Block(
        name="rwkv.blocks.{}.",
        indices=tuple(range(config.size("num_hidden_layers"))),
        mixers=(Rwkv(heads=inner // width, head_dim=width, hidden=hidden),),
        feedforward=feed,
        tensors=(
            *_shifts(hidden, inner),
            *(t for x in ("receptance", "key", "value", "gate") for t in _matrix(f"attention.{x}", inner, hidden)),
            *parts.linear("attention.output", hidden, inner, "mixer", shard=1),
            state_space.state("attention.time_faaaa", inner // width, width),
            *parts.norms(inner, "attention.ln_x", bias=True),
            *(Tensor(name=f"feed_forward.time_maa_{x}", shape=(1, 1, hidden), role="state") for x in "kr"),
            *_matrix("feed_forward.receptance", hidden, hidden),
            *parts.plain_mlp(feed, hidden, "feed_forward.key", "feed_forward.value"),
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


def _matrix(name: str, outputs: int, inputs: int) -> tuple[Tensor, ...]:
    return parts.linear(name, outputs, inputs, "mixer", shard=0)


def _shifts(hidden: int, inner: int) -> tuple[Tensor, ...]:
    """Six learned mixes of a token with the last, corrected by narrow matrices, twice as wide from 4,096 on."""
    wide = 2 if hidden >= 4096 else 1
    mix, decay = 32 * wide, 64 * wide
    return (
        *(Tensor(name=f"attention.time_maa_{x}", shape=(1, 1, hidden), role="state") for x in "xwkvrg"),
        vit.table("attention.time_maa_w1", hidden, 5 * mix),
        vit.table("attention.time_maa_w2", 5, mix, hidden),
        Tensor(name="attention.time_decay", shape=(1, 1, inner), role="state"),
        vit.table("attention.time_decay_w1", hidden, decay),
        vit.table("attention.time_decay_w2", decay, inner),
    )


def _seventh(config: Config) -> Model:
    """The first layer has a norm of its input and no mixing of values with the first layer's."""
    hidden, bias = config.size("hidden_size"), config.flag("norm_bias", default=True)
    count = config.size("num_hidden_layers")
    blocks = parts.stack([i == 0 for i in range(count)], lambda first: _layer(config, hidden, first=first, bias=bias))
    return parts.decoder(
        config,
        hidden=hidden,
        blocks=blocks,
        embedding="model.embeddings.weight",
        norm=parts.norms(hidden, "model.norm", bias=bias),
        head="lm_head.weight",
    )


def _layer(config: Config, hidden: int, *, first: bool, bias: bool) -> Block:
    width = config.size("head_dim", default=64)
    feed = Dense(intermediate=config.size("intermediate_size", default=4 * hidden), gated=False)
    kind = Rwkv(heads=hidden // width, head_dim=width, hidden=hidden)
    normed = ("pre_norm", "attn_norm", "ffn_norm") if first else ("attn_norm", "ffn_norm")
    return Block(
        name="model.layers.{}.",
        indices=(),
        mixers=(kind,),
        feedforward=feed,
        tensors=(
            *(Tensor(name=f"attn.x_{x}", shape=(1, 1, hidden), role="state") for x in "rwkvag"),
            *(state_space.state(f"attn.{x}", hidden) for x in ("k_k", "k_a")),
            state_space.state("attn.r_k", kind.heads, kind.head_dim),
            *(t for x in "rkv" for t in _matrix(f"attn.{x}_proj", hidden, hidden)),
            *parts.linear("attn.o_proj", hidden, hidden, "mixer", shard=1),
            *_narrow(config, hidden, first=first),
            *parts.norms(hidden, "attn.g_norm", bias=True),
            Tensor(name="ffn.x_k", shape=(hidden,), role="state"),
            *parts.plain_mlp(feed, hidden, "ffn.key", "ffn.value"),
            *parts.norms(hidden, *normed, bias=bias),
        ),
    )


def _narrow(config: Config, hidden: int, *, first: bool) -> tuple[Tensor, ...]:
    """Narrow makers of decay, learning rate, gate and, after the first layer, value mixing; all but the gate's have a bias."""
    usual = max(32, round(1.8 * hidden**0.5 / 32) * 32)
    ranks = {
        "w": config.size("decay_low_rank_dim", default=usual),
        "a": config.size("a_low_rank_dim", default=usual),
        "g": config.size("gate_low_rank_dim", default=max(32, round(0.6 * hidden**0.8 / 32) * 32)),
    }
    if not first:
        ranks["v"] = config.size("v_low_rank_dim", default=max(32, round(1.3 * hidden**0.5 / 32) * 32))
    makers = (
        (
            *parts.linear(f"attn.{x}_lora.lora.0", rank, hidden, "mixer", shard=None),
            *parts.linear(f"attn.{x}_lora.lora.2", hidden, rank, "mixer", shard=0, bias=x != "g"),
        )
        for x, rank in ranks.items()
    )
    return tuple(tensor for maker in makers for tensor in maker)
