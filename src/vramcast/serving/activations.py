"""Elements per token alive at the widest point of a layer's forward, when kernels are fused as serving engines fuse them.

Four tensors of the residual's width (input, residual, normalised input, output) live beside both up projections and their
product; in attention three live beside queries, keys, values and outputs. Checked against the profile runs of vLLM 0.11 to 0.19.
"""

from vramcast.memo import by_identity
from vramcast.models.inventory import Block
from vramcast.models.layers import Attention, Dense, Experts, LatentAttention
from vramcast.models.sharding import Stage
from vramcast.quantity import Quantity, ceil_div, named


def widest_layer(stage: Stage, *, hidden: int, tp: int) -> Quantity:
    """The widest layer of a stage: elements per token on one rank."""
    return _wider(widest_mixer(stage, hidden=hidden, tp=tp), widest_feedforward(stage, hidden=hidden, tp=tp))


@by_identity(most=512)
def widest_mixer(stage: Stage, *, hidden: int, tp: int) -> Quantity:
    """The widest attention or recurrent mixer of a stage, elements per token on one rank."""
    return _wider(*(_mixer(block, hidden, tp) for block, _ in stage.blocks))


@by_identity(most=512)
def widest_feedforward(stage: Stage, *, hidden: int, tp: int) -> Quantity:
    """The widest MLP or mixture of a stage, the workspaces of fused experts excluded, elements per token on one rank."""
    return _wider(*(_feedforward(block, hidden, tp) for block, _ in stage.blocks))


def _wider(*widths: Quantity) -> Quantity:
    return max(widths, key=lambda width: width.value, default=named(0, "no layers"))


def _feedforward(block: Block, hidden: int, tp: int) -> Quantity:
    kind, residual = block.feedforward, 4 * named(hidden, "hidden")
    if isinstance(kind, Dense):
        return residual + (3 if kind.gated else 2) * _share(kind.intermediate, "intermediate", tp)
    if isinstance(kind, Experts):
        return residual + 3 * _share(kind.shared_intermediate, "shared", tp) + named(kind.routed, "router")
    return residual


def _share(width: int, what: str, tp: int) -> Quantity:
    return ceil_div(named(width, what), named(tp, "ranks")) if tp > 1 else named(width, what)


def _mixer(block: Block, hidden: int, tp: int) -> Quantity:
    widths = [0]
    for mixer in block.mixers:
        if isinstance(mixer, Attention):
            widths.append(2 * (mixer.heads * (mixer.head_dim + mixer.values) + mixer.cache_elements) // tp)
        elif isinstance(mixer, LatentAttention):
            widths.append(mixer.heads * (2 * mixer.head_dim + 2 * mixer.value_dim) // tp + 2 * mixer.cache_elements)
        else:
            widths.append(4 * getattr(mixer, "conv_width", 0) // tp)
    return 3 * named(hidden, "hidden") + named(max(widths), "in the mixer")
