"""Mamba 1, Falcon Mamba and Mamba 2: nothing but mixers.

Source of names and shapes: transformers 5.23, modeling_mamba.py, modeling_falcon_mamba.py and modeling_mamba2.py.
"""

from vramcast.errors import ConfigError
from vramcast.models.config import Config
from vramcast.models.families import parts, state_space
from vramcast.models.inventory import Block, Model
from vramcast.models.layers import Mamba1, Mamba2


def read(config: Config, *, prefix: str = "backbone.") -> Model:
    """A pure state-space model."""
    hidden = config.size("hidden_size")
    kind = mamba2_of(config) if config.text("model_type") == "mamba2" else mamba1_of(config, hidden)
    write = {"bias": config.flag("use_bias", default=False), "conv_bias": config.flag("use_conv_bias", default=True)}
    mixer = (
        state_space.mamba2(kind, hidden, prefix="mixer.", **write)
        if isinstance(kind, Mamba2)
        else state_space.mamba1(kind, hidden, prefix="mixer.", **write)
    )
    block = Block(
        name=f"{prefix}layers.{{}}.",
        indices=tuple(range(config.size("num_hidden_layers"))),
        mixers=(kind,),
        tensors=(*mixer, *parts.norms(hidden, "norm")),
    )
    return parts.decoder(
        config,
        hidden=hidden,
        blocks=(block,),
        embedding=f"{prefix}embeddings.weight",
        norm=parts.norms(hidden, f"{prefix}norm_f"),
        head="lm_head.weight",
        tied=True,
    )


def mamba1_of(config: Config, hidden: int) -> Mamba1:
    """The Mamba 1 kind; the inner width is ``expand`` times the hidden size unless it is told."""
    return Mamba1(
        inner=config.size("intermediate_size", default=int(config.number("expand", default=2) * hidden)),
        state=config.size("state_size", default=16),
        conv=config.size("conv_kernel", default=4),
        dt_rank=state_space.rank_of(config, "time_step_rank", hidden),
    )


def mamba2_of(config: Config) -> Mamba2:
    """The Mamba 2 kind. Raises ConfigError where its heads are not as wide as ``expand`` times the hidden size."""
    heads, width = config.size("num_heads"), config.size("head_dim")
    inner = int(config.number("expand", default=2) * config.size("hidden_size"))
    if heads * width != inner:
        raise ConfigError(
            f"{config.path}: num_heads x head_dim is {heads} x {width}, expected expand x hidden_size, {inner}: "
            "state the num_heads of this model"
        )
    return Mamba2(
        heads=heads,
        head_dim=width,
        groups=config.size("n_groups", default=8),
        state=config.size("state_size", default=128),
        conv=config.size("conv_kernel", default=4),
        chunk=config.size("chunk_size", default=256),
    )
