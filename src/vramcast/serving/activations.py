"""Elements per token alive at the widest point of a layer's forward, when kernels are fused as serving engines fuse them.

Four tensors of the residual's width (input, residual, normalised input, output) live beside both up projections and their
product; in attention three live beside queries, keys, values and outputs. Checked against the profile runs of vLLM 0.11 to 0.19.
"""

from vramcast.models.attention import Attention, LatentAttention
from vramcast.models.feedforward import Dense, Experts
from vramcast.models.inventory import Block
from vramcast.models.stages import Stage


def widest_layer(stage: Stage, *, hidden: int, tp: int) -> tuple[int, str]:
    """The widest layer of a stage: elements per token on one rank, and what they are."""
    return max(widest_mixer(stage, hidden=hidden, tp=tp), widest_feedforward(stage, hidden=hidden, tp=tp))


def widest_mixer(stage: Stage, *, hidden: int, tp: int) -> tuple[int, str]:
    """The widest attention or recurrent mixer of a stage."""
    return max((_mixer(block, hidden, tp) for block, _ in stage.blocks), default=(0, "no layers"))


def widest_feedforward(stage: Stage, *, hidden: int, tp: int) -> tuple[int, str]:
    """The widest MLP or mixture of a stage, the workspaces of fused experts excluded."""
    return max((_feedforward(block, hidden, tp) for block, _ in stage.blocks), default=(0, "no layers"))


def _feedforward(block: Block, hidden: int, tp: int) -> tuple[int, str]:
    kind = block.feedforward
    if isinstance(kind, Dense):
        copies = 3 if kind.gated else 2
        return 4 * hidden + copies * -(-kind.intermediate // tp), f"4 x {hidden:,} hidden + {copies} x {kind.intermediate:,}/{tp}"
    if isinstance(kind, Experts):
        shared = 3 * -(-kind.shared_intermediate // tp)
        return 4 * hidden + shared + kind.routed, f"4 x {hidden:,} hidden + 3 x {kind.shared_intermediate:,}/{tp} shared + router"
    return 4 * hidden, f"4 x {hidden:,} hidden"


def _mixer(block: Block, hidden: int, tp: int) -> tuple[int, str]:
    widths = [0]
    for mixer in block.mixers:
        if isinstance(mixer, Attention):
            widths.append(2 * (mixer.heads * (mixer.head_dim + mixer.values) + mixer.cache_elements) // tp)
        elif isinstance(mixer, LatentAttention):
            widths.append(mixer.heads * (2 * mixer.head_dim + 2 * mixer.value_dim) // tp + 2 * mixer.cache_elements)
        else:
            widths.append(4 * getattr(mixer, "conv_width", 0) // tp)
    return 3 * hidden + max(widths), f"3 x {hidden:,} hidden + {max(widths):,} in the mixer"
