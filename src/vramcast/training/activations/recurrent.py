"""Mixers with a fixed state on the tape: by the kernels of packages (``fused_scans``), in plain torch, or of neither.

The others save their inputs, their gates and one state per chunk.
"""

from vramcast.models.layers import GatedDeltaNet, LinearAttention, Mamba1, Mamba2, Rwkv, ShortConv
from vramcast.training.activations.choice import Style
from vramcast.training.activations.delta_net import delta_net
from vramcast.training.activations.dense import linear
from vramcast.training.activations.fused_scans import DELTA_CHUNK, SELECTIVE_CHUNK, fused_delta, fused_mamba1, fused_mamba2
from vramcast.training.activations.mamba1 import mamba1_scan
from vramcast.training.activations.sizes import Amount
from vramcast.training.activations.state_space import mamba2_scan
from vramcast.training.activations.tape import Tape

CHUNK = 256  # tokens per chunk of lightning attention


def recurrent(tape: Tape, style: Style, kind: object, source: int, *, tokens: Amount, seq: Amount, hidden: float) -> int:
    """Input projections, convolution, scan, gated norm and output projection of a recurrent mixer."""
    plain = style.kernels.scan == "torch"
    if isinstance(kind, Mamba2):
        if plain:
            return mamba2_scan(tape, style, kind, source, tokens=tokens, seq=seq, hidden=hidden)
        return fused_mamba2(tape, style, kind, source, tokens=tokens, hidden=hidden)
    if isinstance(kind, GatedDeltaNet):
        if plain:
            return delta_net(tape, style, kind, source, tokens=tokens, seq=seq, hidden=hidden)
        return fused_delta(tape, style, kind, source, tokens=tokens, hidden=hidden)
    if isinstance(kind, Mamba1) and plain:
        return mamba1_scan(tape, style, kind, source, tokens=tokens, seq=seq, hidden=hidden)
    if isinstance(kind, Mamba1) and style.kernels.modules and not style.written.parted_scan:
        return fused_mamba1(tape, style, kind, source, tokens=tokens, seq=seq, hidden=hidden)
    return _unfused(tape, style, kind, source, tokens=tokens, hidden=hidden)


def _unfused(tape: Tape, style: Style, kind: object, source: int, *, tokens: Amount, hidden: float) -> int:
    """Input projections, convolution, scan, gate and output projection, each an operation of its own."""
    projected, convolved, inner, state = _widths(kind)
    projected, convolved, inner = projected / style.tp, convolved / style.tp, inner / style.tp
    width = style.width
    joint = linear(tape, style, source, tokens=tokens, inputs=hidden, outputs=projected, role="mixer")
    mixed = joint
    if convolved:
        mixed = tape.run("conv", [joint], tokens * convolved * width, saves=[joint])
    scanned = tape.run(
        "scan", [mixed, joint], tokens * inner * width, saves=[mixed], keeps=tokens * state / style.tp, saves_output=True
    )
    gated = tape.run("gate", [scanned, joint], tokens * inner * width, saves=[scanned, joint], keeps=tokens * 4)
    return linear(tape, style, gated, tokens=tokens, inputs=inner, outputs=hidden, role="o")


def _widths(kind: object) -> tuple[float, float, float, float]:
    """Per token: features of the input projection, of the convolution, of the output, and bytes of kept chunk states."""
    if isinstance(kind, Mamba1):
        return 2 * kind.inner, kind.inner, kind.inner, 4 * kind.inner + 8 * kind.state_elements / SELECTIVE_CHUNK
    if isinstance(kind, LinearAttention):
        inner = kind.heads * kind.head_dim
        return 4 * inner, 0, inner, 4 * kind.state_elements / CHUNK
    if isinstance(kind, ShortConv):
        return 3 * kind.width, kind.width, kind.width, 0
    if isinstance(kind, Rwkv):
        inner = kind.heads * kind.head_dim
        return 5 * inner, 0, inner, 4 * kind.state_elements / DELTA_CHUNK
    raise TypeError(kind)
