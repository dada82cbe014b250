"""The gated delta rule in plain torch operations, as transformers runs it where flash-linear-attention is not installed.

Source: transformers 5.23, models/qwen3_next/modeling_qwen3_next.py (Qwen3NextGatedDeltaNet, torch_chunk_gated_delta_rule,
Qwen3NextRMSNormGated), which Qwen3.5 shares. Everything between the convolution and the gated norm is float.
"""

import msgspec

from vramcast.models.layers import GatedDeltaNet
from vramcast.training.activations.choice import Style
from vramcast.training.activations.dense import linear
from vramcast.training.activations.sizes import FLOAT, Amount, chunks_of
from vramcast.training.activations.tape import Tape

CHUNK = 64  # chunk_size of torch_chunk_gated_delta_rule


class _Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of the rule's tensors in float: keys and values of every value head, scores inside a chunk, one number a head.

    ``states``: the recurrent states of all chunks, ``state``: of one.
    """

    keys: Amount
    values: Amount
    scores: Amount
    heads: Amount
    states: Amount
    state: Amount


def delta_net(tape: Tape, style: Style, kind: GatedDeltaNet, source: int, *, tokens: Amount, seq: Amount, hidden: float) -> int:
    """The whole mixer from the normed input to the output projection's result."""
    heads, width = kind.value_heads / style.tp, style.width
    channels, inner = kind.conv_width / style.tp, heads * kind.value_dim
    joint = linear(tape, style, source, tokens=tokens, inputs=hidden, outputs=channels + inner, role="mixer")
    rates = linear(tape, style, source, tokens=tokens, inputs=hidden, outputs=2 * heads, role="mixer")
    given = tape.sizes[joint] / (channels + inner)
    gate = tape.run("gate.rows", [joint], inner * given)
    mixed = tape.run("conv.rows", [joint], channels * given)
    convolved = tape.run("conv", [mixed], channels * given, saves=[mixed], trains=style.trains)
    activated = tape.run("conv.activation", [convolved], channels * given, saves=[convolved])
    out = _rule(tape, _sizes(kind, heads, tokens, seq), activated, rates)
    narrow = tape.run("delta.back", [out], tokens * inner * width)
    gated = _gated_norm(tape, style, narrow, gate, tokens=tokens, width=inner)
    made = linear(tape, style, gated, tokens=tokens, inputs=inner, outputs=hidden, role="o")
    tape.hold(source, activated, narrow)
    return made


def _sizes(kind: GatedDeltaNet, heads: float, tokens: Amount, seq: Amount) -> _Sizes:
    chunks = chunks_of(seq, CHUNK)
    padded = tokens / seq * chunks * CHUNK
    one = tokens / seq * heads * kind.key_dim * kind.value_dim * FLOAT
    return _Sizes(
        keys=padded * heads * kind.key_dim * FLOAT,
        values=padded * heads * kind.value_dim * FLOAT,
        scores=padded * heads * CHUNK * FLOAT,
        heads=padded * heads * FLOAT,
        states=one * chunks,
        state=one,
    )


def _rule(tape: Tape, s: _Sizes, mixed: int, rates: int) -> int:
    """Queries, keys and values in float, what happens inside every chunk, and the scan over chunks."""
    query, key = (_normed(tape, s, mixed) for _ in range(2))
    value = tape.run("delta.pad", [tape.run("delta.float", [mixed], s.values)], s.values)
    query = tape.run("delta.pad", [tape.run("delta.scale", [query], s.keys)], s.keys)
    key = tape.run("delta.pad", [key], s.keys)
    rate = tape.run("delta.rate", [rates], s.heads, saves_output=True, keeps=2 * s.heads)
    weighed = tape.run("delta.product", [value, rate], s.values, saves=[value, rate], back_scratch=s.values)
    keyed = tape.run("delta.product", [key, rate], s.keys, saves=[key, rate], back_scratch=s.keys)
    decay = tape.run("delta.decay", [rates], s.heads, keeps=3 * s.heads)
    pairs = tape.run("delta.mask", [tape.run("delta.pairs", [decay], s.scores)], s.scores)
    pairs = tape.run("delta.exp", [pairs], s.scores, saves_output=True)
    system, near = (_scores(tape, s, side, key, pairs) for side in (keyed, query))
    keyed_now = _decayed(tape, s, keyed, decay)
    new, old = _solved(tape, system, weighed, s.values), _solved(tape, system, keyed_now, s.keys)
    reads, writes = _decayed(tape, s, query, decay), _decayed(tape, s, key, decay)
    out = tape.run(
        "delta.scan", [new, old, near, reads, writes], s.values, saves=[old, near, reads, writes],
        keeps=s.values, pieces=s.states, scratch=3 * s.state, back_scratch=s.values + s.keys + s.scores,
    )  # fmt: skip
    tape.hold(mixed, value, keyed, weighed, keyed_now, decay, pairs, system, near, new, old, reads, writes)
    return out


def _normed(tape: Tape, s: _Sizes, mixed: int) -> int:
    """Queries or keys of every value head in float, over the root of the sum of their squares."""
    wide = tape.run("delta.float", [tape.run("delta.repeat", [mixed], s.keys / 2)], s.keys)
    squares = tape.run("norm.pow", [wide], s.keys, saves=[wide], back_scratch=s.keys)
    scale = tape.run("norm.mean", [squares], s.heads, saves_output=True)
    return tape.run("norm.scale", [wide, scale], s.keys, saves=[wide], back_scratch=s.keys)


def _scores(tape: Tape, s: _Sizes, side: int, key: int, pairs: int) -> int:
    """Products of every pair of places in a chunk, decayed."""
    raw = tape.run("delta.scores", [side, key], s.scores, saves=[side, key])
    return tape.run("delta.product", [raw, pairs], s.scores, saves=[raw, pairs], back_scratch=s.scores)


def _decayed(tape: Tape, s: _Sizes, side: int, decay: int) -> int:
    exp = tape.run("delta.exp", [decay], s.heads, saves_output=True)
    return tape.run("delta.product", [side, exp], s.keys, saves=[side, exp], back_scratch=s.keys)


def _solved(tape: Tape, system: int, side: int, size: Amount) -> int:
    """A triangular system, which saves itself and its solution (torch, derivatives.yaml: linalg_solve_triangular)."""
    return tape.run("delta.solve", [system, side], size, saves=[system], saves_output=True, back_scratch=size)


def _gated_norm(tape: Tape, style: Style, source: int, gate: int, *, tokens: Amount, width: float) -> int:
    """An RMSNorm that casts back before its weight, times the gate's SiLU in float."""
    size, held = tokens * width * FLOAT, tape.sizes[source]
    wide = tape.cast(source, size)
    squares = tape.run("norm.pow", [wide], size, saves=[wide], back_scratch=2 * size)
    scale = tape.run("norm.mean", [squares], tokens * FLOAT, saves_output=True)
    normed = tape.run("norm.scale", [wide, scale], size, saves=[wide], back_scratch=size)
    back = tape.cast(normed, held)
    weighed = tape.run("norm.weight", [back], held, saves=[back] if style.trains else [], trains=style.trains)
    gate = tape.cast(gate, size)
    active = tape.run("gate.activation", [gate], size, saves=[gate])
    made = tape.run("gate.product", [weighed, active], size, saves=[weighed, active], back_scratch=size)
    tape.hold(source, wide, normed)
    return tape.cast(made, held)
