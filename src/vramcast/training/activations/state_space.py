"""Mamba 2's scan in plain torch operations, as transformers runs it where no kernels are installed.

Source: transformers 5.23, models/mamba2/modeling_mamba2.py (mamba2_chunk_scan, MambaRMSNormGated), which Bamba, Falcon-H1,
Granite 4, Nemotron-H and Zamba 2 share. Everything is float; einsum copies what it permutes, and autocast narrows the copies.
"""

import msgspec

from vramcast.models.layers import Mamba2
from vramcast.training.activations.choice import Style
from vramcast.training.activations.dense import linear
from vramcast.training.activations.sizes import FLOAT, Amount, chunks_of
from vramcast.training.activations.tape import Tape


class _Scan(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of the scan's tensors in float: values, expanded keys, one chunk's scores, the states at the chunks' ends.

    ``narrow``: what remains of a tensor that a matmul reads.
    """

    values: float
    keys: float
    scores: Amount
    heads: float
    states: float
    narrow: float
    chunks: float


def mamba2_scan(tape: Tape, style: Style, kind: Mamba2, source: int, *, tokens: Amount, seq: Amount, hidden: float) -> int:
    """The whole mixer from the normed input to the output projection's result."""
    inner, width = kind.inner / style.tp, style.width
    joint = linear(tape, style, source, tokens=tokens, inputs=hidden, outputs=inner + kind.conv_width + kind.heads, role="mixer")
    held = tape.sizes[joint] / (inner + kind.conv_width + kind.heads)
    gate, mixed, steps = tape.slices("mixer.split", joint, (inner * held, kind.conv_width * held, kind.heads * held), joined=True)
    longer = (seq + kind.conv - 1) / seq
    convolved = tape.run("conv", [mixed], tape.sizes[mixed] * longer, saves=[mixed])
    activated = tape.run("conv.activation", [convolved], tape.sizes[mixed], saves=[convolved])
    keys = kind.groups * kind.state * tape.sizes[activated] / kind.conv_width
    x, b, c = tape.slices("conv.split", activated, (tape.sizes[activated] - 2 * keys, keys, keys), joined=True)
    scanned = _scan(tape, _sizes(kind, style, tokens, seq), (x, b, c, steps), trains=style.trains)
    tape.hold(activated)
    gate_by = _gated_norm if style.written.gated_norm else _gated
    gated = gate_by(tape, style, scanned, gate, tokens=tokens, width=inner)
    narrow = gated if tape.sizes[gated] <= tokens * inner * width else tape.run("scan.back", [gated], tokens * inner * width)
    made = linear(tape, style, narrow, tokens=tokens, inputs=inner, outputs=hidden, role="o")
    tape.hold(source, gated)
    return made


def _sizes(kind: Mamba2, style: Style, tokens: Amount, seq: Amount) -> _Scan:
    chunks = chunks_of(seq, kind.chunk)
    padded = tokens / seq * chunks * kind.chunk
    return _Scan(
        values=padded * kind.inner * FLOAT,
        keys=padded * kind.heads * kind.state * FLOAT,
        scores=padded * kind.heads * kind.chunk * FLOAT,
        heads=padded * kind.heads * FLOAT,
        states=padded / kind.chunk * kind.state_elements * FLOAT,
        narrow=style.width / FLOAT if style.autocast else 1.0,
        chunks=chunks,
    )


def _scan(tape: Tape, s: _Scan, parts: tuple[int, int, int, int], *, trains: bool) -> int:
    x, b, c, steps = parts
    shifted = tape.run("dt", [steps], tape.sizes[steps], trains=trains)
    softplus = tape.run("dt.softplus", [shifted], tape.sizes[steps], saves=[shifted], saves_output=True)
    clamped = tape.run("dt.clamp", [softplus], tape.sizes[steps])
    wide = tape.run("scan.float", [x], s.values)
    keys = tape.run("scan.keys", [tape.run("scan.float", [b], tape.sizes[b] * 2)], s.keys)
    queries = tape.run("scan.queries", [tape.run("scan.float", [c], tape.sizes[c] * 2)], s.keys)
    padded = tape.run("scan.pad", [wide], s.values)
    skipped = tape.run("scan.skip", [padded], s.values, saves=[padded] if trains else [], trains=trains)
    rate = tape.run("dt.float", [clamped], s.heads)
    stepped = tape.run("scan.step", [wide, rate], s.values, saves=[wide, rate], back_scratch=s.values)
    decay = tape.run(
        "dt.decay", [tape.run("dt.float", [clamped], s.heads)], s.heads, keeps=s.heads if trains else 0, trains=trains
    )
    values, keys_in, queries_in = (
        tape.run("scan.pad", [t], size) for t, size in ((stepped, s.values), (keys, s.keys), (queries, s.keys))
    )
    summed = tape.run("dt.sum", [tape.run("scan.pad", [decay], s.heads)], s.heads)
    near = _within(tape, s, summed, (keys_in, queries_in, values))
    states = _states(tape, s, summed, keys_in, values)
    far = _across(tape, s, summed, queries_in, states)
    joined = tape.run("scan.join", [near, far], s.values, aliases=True)
    rows = tape.run("scan.rows", [joined], s.values)
    out = tape.run("scan.out", [rows, skipped], s.values, aliases=True)
    tape.hold(x, wide, values, keys_in, queries_in, skipped, near, far, rate, summed)
    return out


def _product(tape: Tape, s: _Scan, name: str, sides: tuple[int, int], sizes: tuple[float, float, float]) -> int:
    """One einsum: permuted copies of both sides, narrowed under autocast, which its matmul saves."""
    copies = []
    for side, size in zip(sides, sizes[:2], strict=True):
        copy = tape.run(f"{name}.rows", [side], size)
        copies.append(copy if s.narrow == 1 else tape.run(f"{name}.cast", [copy], size * s.narrow))
    return tape.run(name, copies, sizes[2] * s.narrow, saves=copies)


def _within(tape: Tape, s: _Scan, summed: int, parts: tuple[int, int, int]) -> int:
    """Inside a chunk: scores of every pair of places, decayed, times the values."""
    keys, queries, values = parts
    filled = tape.run("decay.fill", [summed], s.scores, keeps=s.heads / 2)
    steps = tape.run("decay.mask", [tape.run("decay.sum", [filled], s.scores)], s.scores)
    decayed = tape.run("decay", [steps], s.scores, saves_output=True)
    scores = _product(tape, s, "scan.scores", (queries, keys), (s.keys, s.keys, s.scores))
    weights = tape.run("scan.weights", [scores, decayed], s.scores, saves=[scores, decayed], back_scratch=s.scores)
    copy = weights if s.narrow == 1 else tape.run("scan.cast", [weights], s.scores * s.narrow)
    rows = tape.run("scan.rows", [values], s.values)
    rows = rows if s.narrow == 1 else tape.run("scan.cast", [rows], s.values * s.narrow)
    return tape.run("scan.near", [copy, rows], s.values * s.narrow, saves=[copy, rows])


def _states(tape: Tape, s: _Scan, summed: int, keys: int, values: int) -> int:
    """The state at the end of every chunk, and of all before it."""
    left = tape.run("decay.left", [summed], s.heads, saves_output=True)
    decayed = tape.run("scan.decayed", [keys, left], s.keys, saves=[keys, left], back_scratch=s.keys)
    made = _product(tape, s, "scan.states", (decayed, values), (s.keys, s.values, s.states))
    more = s.states * (s.chunks + 1) / s.chunks
    joined = tape.run("states.join", [made], more * s.narrow)
    copy = tape.run("states.rows", [joined], more * s.narrow)
    return tape.run("states.carry", [copy], more * s.narrow, saves=[copy])


def _across(tape: Tape, s: _Scan, summed: int, queries: int, states: int) -> int:
    """What the chunks before contribute: queries times their state, decayed."""
    out = tape.run("decay.out", [summed], s.heads, saves_output=True)
    made = _product(tape, s, "scan.far", (queries, states), (s.keys, s.states, s.values))
    return tape.run("scan.carried", [made, out], s.values, saves=[made, out], back_scratch=s.values)


def _gated(tape: Tape, style: Style, source: int, gate: int, *, tokens: Amount, width: float) -> int:
    """The scan times its gate's SiLU (Falcon-H1)."""
    del style
    size = tokens * width * FLOAT
    activated = tape.run("gate.activation", [gate], tape.sizes[gate], saves=[gate])
    return tape.run("gate.product", [source, activated], size, saves=[source, activated], back_scratch=size)


def _gated_norm(tape: Tape, style: Style, source: int, gate: int, *, tokens: Amount, width: float) -> int:
    """The gate's SiLU in float, its product with the scan, an RMSNorm of it that stays in float."""
    size = tokens * width * FLOAT
    wide = gate if tape.sizes[gate] >= size else tape.run("gate.float", [gate], size)
    activated = tape.run("gate.activation", [wide], size, saves=[wide])
    gated = tape.run("gate.product", [source, activated], size, saves=[source, activated], back_scratch=size)
    squares = tape.run("norm.pow", [gated], size, saves=[gated], back_scratch=2 * size)
    scale = tape.run("norm.mean", [squares], tokens * FLOAT, saves_output=True)
    normed = tape.run("norm.scale", [gated, scale], size, saves=[gated], back_scratch=size)
    made = tape.run("norm.weight", [normed], size, saves=[normed] if style.trains else [], trains=style.trains)
    tape.hold(gated, normed)
    return made
