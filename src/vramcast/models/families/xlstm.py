"""xLSTM: matrix memories (mLSTM) and nothing that grows with the context.

Source of names and shapes: transformers 5.23, modeling_xlstm.py; arXiv 2405.04517 and 2503.13427.
"""

from vramcast.errors import UnmodelledError
from vramcast.models.config import Config
from vramcast.models.families import parts
from vramcast.models.inventory import Block, Model, Tensor
from vramcast.models.layers import Dense, GatedDeltaNet


def read(config: Config, *, prefix: str = "backbone.") -> Model:
    """An xLSTM model."""
    if config.text("weight_mode", default="single") != "single":
        raise UnmodelledError(f"{config.path}: weight_mode is {config.raw['weight_mode']!r}, known is 'single'")
    hidden, heads = config.size("hidden_size", "embedding_dim"), config.size("num_heads")
    bias = config.flag("use_bias", default=False)
    keys, values = _rounded(config, hidden, "qk_dim_factor"), _rounded(config, hidden, "v_dim_factor")
    mlp = Dense(intermediate=_up(config.number("ffn_proj_factor", default=2.667) * hidden, _multiple(config, "ffn")))
    block = Block(
        name=f"{prefix}blocks.{{}}.",
        indices=tuple(range(config.size("num_blocks", "num_hidden_layers"))),
        mixers=(_mixer(heads, keys // heads, values // heads),),
        feedforward=mlp,
        tensors=(
            *_memory(hidden, heads, keys, values, bias=bias),
            *parts.gated_mlp(mlp, hidden, prefix="ffn.", bias=bias, names=("proj_up_gate", "proj_up", "proj_down")),
            *parts.norms(hidden, "norm_mlstm", "norm_ffn", bias=bias),
        ),
    )
    ends = parts.norms(hidden, f"{prefix}out_norm") if config.flag("add_out_norm", default=True) else ()
    untied = Config({**config.raw, "tie_word_embeddings": False}, config.path)  # the class ties nothing
    return parts.decoder(
        untied, hidden=hidden, blocks=(block,), embedding=f"{prefix}embeddings.weight", norm=ends, head="lm_head.weight"
    )


def _mixer(heads: int, key_dim: int, value_dim: int) -> GatedDeltaNet:
    """A matrix per head as in a delta net without a convolution; the normaliser is one more column of it."""
    return GatedDeltaNet(key_heads=heads, value_heads=heads, key_dim=key_dim, value_dim=value_dim + 1, conv=1)


def _memory(hidden: int, heads: int, keys: int, values: int, *, bias: bool) -> tuple[Tensor, ...]:
    name = "mlstm_layer."
    widths = {"q": keys, "k": keys, "v": values, "ogate_preact": values}
    return (
        *(t for x, width in widths.items() for t in parts.linear(f"{name}{x}", width, hidden, "mixer", shard=0, bias=bias)),
        *(t for x in "if" for t in parts.linear(f"{name}{x}gate_preact", heads, hidden, "mixer", shard=0, bias=True)),
        *parts.norms(values, f"{name}multihead_norm", bias=bias),
        *parts.linear(f"{name}out_proj", hidden, values, "mixer", shard=1, bias=bias),
    )


def _rounded(config: Config, hidden: int, field: str) -> int:
    return _up(hidden * config.number(field, default=1), _multiple(config, "mlstm"))


def _multiple(config: Config, part: str) -> int:
    return config.size(f"{part}_round_up_to_multiple_of", default=64)


def _up(width: float, step: int) -> int:
    return int((width + step - 1) // step * step)
