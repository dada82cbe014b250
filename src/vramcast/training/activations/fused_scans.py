"""Recurrent mixers in the kernels of packages: one function saves little and makes the rest again in backward.

Sources: mamba_ssm 2.2 to 2.3, ops/triton/ssd_combined.py (MambaSplitConv1dScanCombinedFn, _mamba_chunk_scan_combined_bwd),
ops/selective_scan_interface.py (MambaInnerFn, checkpoint_lvl 1), csrc/selective_scan.cpp (2,048 tokens per kept state);
flash-linear-attention, ops/gated_delta_rule/chunk.py (ChunkGatedDeltaRuleFunction), modules/fused_norm_gate.py. While it
trains, transformers hands norm and output projection to the scan (models/mamba2, models/mamba), Megatron neither
(core/ssm/mamba_mixer.py).
"""

from vramcast.models.layers import GatedDeltaNet, Mamba1, Mamba2
from vramcast.training.activations.choice import Style
from vramcast.training.activations.dense import linear
from vramcast.training.activations.sizes import FLOAT, Amount, Peak, chunks_of, highest
from vramcast.training.activations.tape import Tape

SELECTIVE_CHUNK = 2048  # tokens between the states that Mamba 1's scan keeps: a pair of floats for each
DELTA_CHUNK = 64  # tokens per chunk of the gated delta rule


def fused_mamba2(tape: Tape, style: Style, kind: Mamba2, source: int, *, tokens: Amount, hidden: float) -> int:
    """Mamba 2's mixer: the input projection's result and the scan's are saved; convolution, states and norm are made again."""
    inner, conv, heads, groups = (part / style.tp for part in (kind.inner, kind.conv_width, kind.heads, kind.groups))
    width = style.width
    joint = linear(tape, style, source, tokens=tokens, inputs=hidden, outputs=inner + conv + heads, role="mixer")
    states = inner * kind.state / kind.chunk  # elements a token, of the states at the chunks' ends
    steps = 2 * heads * FLOAT
    forward = tokens * (conv * width + steps + states * width)
    pairs = 2 * groups * kind.chunk * FLOAT  # scores of places in a chunk, and their gradient
    carried = states * (2 * FLOAT + 2 * width)  # float states and gradients, while their narrow copies are made
    held = 2 * conv * width  # what was convolved, and its gradient
    inside = tokens * (held + 2 * steps + groups * kind.chunk * FLOAT + carried)
    later = tokens * (held + 3 * steps + pairs + states * 2 * width + 2 * groups * kind.state * FLOAT)
    if style.kernels.modules:
        saved = tokens * (inner * width + groups * FLOAT)
        extra = tokens * 3 * inner * width  # the norm's result and gradients on both sides of it
        after = tokens * (held + 3 * inner * width)
        return _with_output(
            tape, style, joint, saved=saved, forward=forward + tokens * inner * width, inside=[inside + extra, later + extra],
            after=after, sizes=(tokens, inner, hidden),
        )  # fmt: skip
    gate = tokens * inner * width  # the scan multiplies with its gate itself: one more gradient
    scanned = tape.run(
        "scan", [joint], tokens * inner * width, saves=[joint], keeps=tokens * inner * width,
        scratch=forward + tokens * groups * kind.chunk * FLOAT,
        back_scratch=highest([(inside + gate, "scan"), (later + gate, "scan")])[0], trains=style.trains,
    )  # fmt: skip
    normed = tape.run(
        "norm", [scanned], tokens * inner * width, saves=[scanned], keeps=tokens * groups * FLOAT, trains=style.trains
    )
    return linear(tape, style, normed, tokens=tokens, inputs=inner, outputs=hidden, role="o")


def fused_mamba1(tape: Tape, style: Style, kind: Mamba1, source: int, *, tokens: Amount, seq: Amount, hidden: float) -> int:
    """Mamba 1's mixer in ``mamba_inner_fn``: a copy of the projection with its sequence last, the scan's result, few states."""
    inner, width = kind.inner / style.tp, style.width
    joint = linear(tape, style, source, tokens=tokens, inputs=hidden, outputs=2 * inner, role="mixer")
    states = tokens / seq * chunks_of(seq, SELECTIVE_CHUNK) * inner * kind.state * 2 * FLOAT
    few = (kind.dt_rank + 4 * kind.state) * width  # steps, and B and C twice: in one and each by itself
    saved = tokens * (inner * width + few) + states
    one = tokens * inner * width
    return _with_output(
        tape, style, joint, saved=saved, forward=5 * one, inside=[6 * one], after=6 * one, sizes=(tokens, inner, hidden)
    )


def _with_output(
    tape: Tape, style: Style, joint: int, *, saved: Amount, forward: Amount, inside: list[Amount], after: Amount,
    sizes: tuple[Amount, float, float],
) -> int:  # fmt: skip
    """The scan and its output projection in one function, whose weight's gradient comes after the scan's own (``after``)."""
    tokens, inner, hidden = sizes
    weight = inner * hidden
    gradient = weight * style.gradient_width if style.trains else 0
    copy = weight * style.width if style.cast_weights else 0
    peak: Amount | Peak = highest([*((size - gradient, "scan") for size in inside), (after, "scan")])[0]
    return tape.run(
        "scan", [joint], tokens * hidden * style.width, saves=[joint], keeps=saved + copy, scratch=forward, back_scratch=peak,
        weight_gradient=gradient, trains=style.trains,
    )  # fmt: skip


def fused_delta(tape: Tape, style: Style, kind: GatedDeltaNet, source: int, *, tokens: Amount, hidden: float) -> int:
    """The gated delta rule: normed queries and keys, values and every chunk's triangle are saved; its states are made again."""
    heads, width = kind.value_heads / style.tp, style.width
    keys, values = heads * kind.key_dim * width, heads * kind.value_dim * width
    conv, inner = kind.conv_width / style.tp, heads * kind.value_dim
    joint = linear(tape, style, source, tokens=tokens, inputs=hidden, outputs=conv + inner + 2 * heads, role="mixer")
    mixed = tape.run("conv", [joint], tokens * conv * width, saves=[joint], trains=style.trains)
    gates = heads * (2 * FLOAT + 2 * width)  # decays and their sums in float, rates before and after their sigmoid
    norms = 2 * kind.key_heads / style.tp * FLOAT
    kept = 2 * kind.key_heads / style.tp * kind.key_dim * width + values + heads * DELTA_CHUNK * width + gates + norms
    states = heads * kind.key_dim * kind.value_dim / DELTA_CHUNK * width
    made = tokens * max(0.0, 5 * keys + 4 * values + 2 * states - conv * width)
    scanned = tape.run(
        "scan", [mixed], tokens * inner * width, keeps=tokens * kept, scratch=tokens * (keys + 2 * values + states),
        back_scratch=made, trains=style.trains,
    )  # fmt: skip
    gated = tape.run(
        "gate",
        [scanned, joint],
        tokens * inner * width,
        saves=[scanned, joint],
        keeps=tokens * heads * FLOAT,
        trains=style.trains,
    )
    out = linear(tape, style, gated, tokens=tokens, inputs=inner, outputs=hidden, role="o")
    tape.hold(mixed, scanned)
    return out
