"""The tensors of state-space and convolution mixers, as parts of a layer.

Heads and channels are cut over tensor-parallel ranks; what maps channels back (x_proj, out_proj) is cut by input.
Source: transformers 5.23, modeling_mamba.py and modeling_mamba2.py; arXiv 2312.00752 and 2405.21060.
"""

from collections.abc import Iterable

from vramcast.errors import ConfigError, UnmodelledError
from vramcast.models.config import Config
from vramcast.models.families import parts
from vramcast.models.inventory import Tensor
from vramcast.models.layers import Mamba1, Mamba2

LINEAR_OR_FULL = ("linear_attention", "full_attention")
"""What layers of a hybrid mix with, in the names of transformers 5."""
LEGACY = {"mamba": "linear_attention", "attention": "full_attention", "hybrid": "hybrid", "short_conv": "conv"}
"""What layers were called before transformers 5 settled the names."""


def layer_kinds(config: Config, field: str, known: tuple[str, ...]) -> list[str]:
    """What each layer mixes with, in the names of transformers 5; empty when the field is absent.

    Raises ConfigError when it has fewer entries than the model has layers; entries beyond belong to draft layers.
    """
    names = [LEGACY.get(str(name), str(name)) for name in config.list(field, default=[])]
    count = 0 if field.startswith("mtp") else config.integer("num_hidden_layers", default=0)
    if 0 < len(names) < count:
        raise ConfigError(f"{config.path}: {field} has {len(names)} entries for {count} layers")
    check_kinds(config, field, names, known)
    return names


def check_kinds(config: Config, field: str, names: Iterable[str], known: tuple[str, ...]) -> None:
    """Refuse a kind of layer that the family has no rule for. Raises UnmodelledError."""
    for name in names:
        if name not in known:
            raise UnmodelledError(f"{config.path}: {field} has {name[:40]!r}, known are {', '.join(known)}")


def rank_of(config: Config, field: str, hidden: int) -> int:
    """The width of Mamba's time step: "auto" is hidden / 16 rounded up."""
    return -(-hidden // 16) if config.raw.get(field) in (None, "auto") else config.size(field)


def convolution(name: str, width: int, kernel: int, *, bias: bool) -> tuple[Tensor, ...]:
    """A depthwise convolution over time."""
    weight = Tensor(name=f"{name}.weight", shape=(width, 1, kernel), role="conv", shard=0)
    return (weight, Tensor(name=f"{name}.bias", shape=(width,), role="conv", shard=0)) if bias else (weight,)


def state(name: str, *shape: int) -> Tensor:
    """A parameter of the recurrence itself, one row per channel or head."""
    return Tensor(name=name, shape=shape, role="state", shard=0)


def mamba1(kind: Mamba1, hidden: int, *, prefix: str, bias: bool = False, conv_bias: bool = True) -> tuple[Tensor, ...]:
    """A Mamba 1 mixer."""
    return (
        *parts.linear(f"{prefix}in_proj", 2 * kind.inner, hidden, "mixer", shard=0, bias=bias),
        *convolution(f"{prefix}conv1d", kind.inner, kind.conv, bias=conv_bias),
        *parts.linear(f"{prefix}x_proj", kind.dt_rank + 2 * kind.state, kind.inner, "mixer", shard=1),
        *parts.linear(f"{prefix}dt_proj", kind.inner, kind.dt_rank, "mixer", shard=0, bias=True),
        state(f"{prefix}A_log", kind.inner, kind.state),
        state(f"{prefix}D", kind.inner),
        *parts.linear(f"{prefix}out_proj", hidden, kind.inner, "mixer", shard=1, bias=bias),
    )


def mamba2(
    kind: Mamba2,
    hidden: int,
    *,
    prefix: str,
    bias: bool = False,
    out_bias: bool | None = None,
    conv_bias: bool = True,
    norm: bool = True,
) -> tuple[Tensor, ...]:
    """A Mamba 2 mixer; ``norm``: it normalises its gated output."""
    gated = (Tensor(name=f"{prefix}norm.weight", shape=(kind.inner,), role="norm", shard=0),)
    into = kind.inner + kind.conv_width + kind.heads
    return (
        *parts.linear(f"{prefix}in_proj", into, hidden, "mixer", shard=0, bias=bias),
        *convolution(f"{prefix}conv1d", kind.conv_width, kind.conv, bias=conv_bias),
        *(state(f"{prefix}{name}", kind.heads) for name in ("dt_bias", "A_log", "D")),
        *(gated if norm else ()),
        *parts.linear(f"{prefix}out_proj", hidden, kind.inner, "mixer", shard=1, bias=bias if out_bias is None else out_bias),
    )
