"""RecurrentGemma (Griffin, arXiv 2402.19427): a gated linear recurrence in two layers of three, a sliding window in the third.

Source of names and shapes: transformers 5.23, modeling_recurrent_gemma.py.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, state_space
from vramcast.models.inventory import Block, Mixer, Model, Tensor
from vramcast.models.layers import Attention, Dense, Mamba1

_KINDS = ("recurrent", "attention")
_NAME = "temporal_block."


def read(config: Config, *, prefix: str = "model.") -> Model:
    """A RecurrentGemma model."""
    hidden = config.size("hidden_size")
    blocks = parts.stack(_pattern(config), lambda kind: _layer(config, hidden, kind, f"{prefix}layers.{{}}."))
    norm = parts.norms(hidden, f"{prefix}final_norm")
    return parts.decoder(config, hidden=hidden, prefix=prefix, blocks=blocks, norm=norm, tied=True)


def _pattern(config: Config) -> list[str]:
    """What each layer mixes with: ``block_types`` over and over."""
    cycle = [str(kind) for kind in config.list("block_types", default=["recurrent", "recurrent", "attention"])] or [_KINDS[0]]
    state_space.check_kinds(config, "block_types", cycle, _KINDS)
    return [cycle[i % len(cycle)] for i in range(config.size("num_hidden_layers"))]


def _layer(config: Config, hidden: int, kind: str, name: str) -> Block:
    mixer, tensors = _attention(config, hidden) if kind == "attention" else _recurrence(config, hidden)
    mlp = Dense(intermediate=config.size("intermediate_size") // 2, activation="gelu_pytorch_tanh")
    return Block(
        name=name,
        indices=(),
        mixers=(mixer,),
        feedforward=mlp,
        tensors=(
            *tensors,
            *parts.gated_mlp(mlp, hidden, prefix="mlp_block.", bias=True),
            *parts.norms(hidden, "temporal_pre_norm", "channel_pre_norm"),
        ),
    )


def _attention(config: Config, hidden: int) -> tuple[Mixer, tuple[Tensor, ...]]:
    heads = config.size("num_attention_heads")
    kind = Attention(
        heads=heads,
        kv_heads=config.size("num_key_value_heads", default=heads),
        head_dim=config.size("head_dim", default=max(1, hidden // heads)),
        window=config.size("attention_window_size", "sliding_window", default=2048),
    )
    bias = config.flag("attention_bias", default=False)
    return kind, parts.attention(kind, hidden, prefix=_NAME, bias=bias, out_bias=True)


def _recurrence(config: Config, hidden: int) -> tuple[Mixer, tuple[Tensor, ...]]:
    """The RG-LRU keeps one number for each channel and the convolution's window: Mamba's state with a width of one."""
    width, heads = config.size("lru_width", default=hidden), config.size("num_attention_heads")
    kind = Mamba1(inner=width, state=1, conv=config.size("conv1d_width", default=4), dt_rank=1)
    block, unit = width // heads, f"{_NAME}rg_lru."
    return kind, (
        *(t for n in ("linear_y", "linear_x") for t in parts.linear(f"{_NAME}{n}", width, hidden, "mixer", shard=0, bias=True)),
        *parts.linear(f"{_NAME}linear_out", hidden, width, "mixer", shard=1, bias=True),
        *state_space.convolution(f"{_NAME}conv_1d", width, kind.conv, bias=True),
        state_space.state(f"{unit}recurrent_param", width),
        *(state_space.state(f"{unit}{gate}_gate_weight", heads, block, block) for gate in ("input", "recurrent")),
        *(state_space.state(f"{unit}{gate}_gate_bias", heads, block) for gate in ("input", "recurrent")),
    )
