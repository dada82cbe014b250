"""Adapters beside a frozen matrix on the tape: what each form computes from the layer's input and output, and saves of it.

Sources: peft 0.20, tuners/<kind>/layer.py (forward), tuners/lora/dora.py. Adapter weights are fp32 unless told otherwise, and
what meets them is cast to their width first.
"""

from collections.abc import Callable

import msgspec

from vramcast.training.activations.choice import LowRank, Style
from vramcast.training.activations.sizes import Amount
from vramcast.training.activations.tape import Tape


class AdaptedMatrix(msgspec.Struct, frozen=True, kw_only=True):
    """An adapter and the matrix that it stands beside: ``tokens`` rows of ``inputs`` become ``outputs``.

    ``rank``: the adapter's on this matrix; ``added``: features that are changed, 0 = all.
    """

    style: Style
    adapter: LowRank
    tokens: Amount
    inputs: float
    outputs: float
    rank: int
    role: str
    added: Amount = 0


def adapted(tape: Tape, source: int, out: int, b: AdaptedMatrix) -> int:
    """The output with the adapter's part, in the width that the output had."""
    held = tape.sizes[out]
    made = _FORMS.get(b.adapter.kind, _low_rank)(tape, source, out, b)
    return tape.cast(made, held)


def _low_rank(tape: Tape, source: int, out: int, b: AdaptedMatrix) -> int:
    """``result + lora_B(lora_A(dropout(x))) * scaling``; with DoRA both parts are scaled by magnitudes, which saves them."""
    down, up = b.rank * b.inputs * b.adapter.width, b.rank * b.outputs * b.adapter.width
    if b.adapter.fused:
        return _fused(tape, source, out, b, weights=down + up)
    held, inner = tape.sizes[out], _inner(b)
    if b.style.dequantize and not b.style.quant_width:  # peft/tuners/lora/bnb.py: a clone
        out = tape.run("lora.clone", [out], held, aliases=True)
    wide = _input(tape, source, b)
    x = tape.cast(wide, b.tokens * b.inputs * inner)
    copied = inner / b.adapter.width if inner < b.adapter.width else 0
    up *= (b.added or b.outputs) / b.outputs
    a = tape.run("lora.a", [x], b.tokens * b.rank * inner, saves=[x], cached=down * copied, weight_gradient=down, trains=True)
    made = b.tokens * (b.added or b.outputs) * inner
    added = tape.run("lora.b", [a], made, saves=[a], cached=up * copied, weight_gradient=up, trains=True)
    if b.added:  # index_copy saves what it copies (torch, derivatives.yaml)
        added = tape.run("lora.pad", [added], b.tokens * b.outputs * inner, saves=[added])
    whole = b.tokens * b.outputs * inner
    scaled = tape.run("lora.scale", [added], whole, saves=[added] if b.adapter.dora else [], trains=b.adapter.dora)
    if b.adapter.dora:
        base = tape.run("dora.scale", [out], whole, saves=[out], trains=True)
        scaled = tape.run("dora.add", [base, scaled], whole, aliases=True)
    summed = tape.run("lora.add", [out, scaled], max(held, whole), aliases=True)
    tape.hold(source, wide)
    return summed


def _fused(tape: Tape, source: int, out: int, b: AdaptedMatrix, *, weights: Amount) -> int:
    """One autograd function per projection that saves its input alone (unsloth/kernels/fast_lora.py).

    A fused MLP makes the input of its second matrix again in backward, from what it saved anyway (LoRA_MLP).
    """
    rebuilt = b.role == "down" and b.style.kernels.glu == "fused"
    if b.adapter.dropout:
        source = tape.run("lora.dropout", [source], b.tokens * b.inputs * b.style.width)
    return tape.run("lora", [source, out], b.tokens * b.outputs * b.style.width, saves=[] if rebuilt else [source],
                    weight_gradient=weights, back_scratch=b.tokens * b.rank * b.style.width, trains=True)  # fmt: skip


def _summed(tape: Tape, source: int, out: int, b: AdaptedMatrix) -> int:
    """MiSS: the input's groups of ``rank`` features are summed, and the sum alone meets the block and is saved."""
    inner = _inner(b)
    x = tape.cast(_input(tape, source, b), b.tokens * b.inputs * inner)
    summed = tape.run("miss.sum", [x], b.tokens * b.rank * inner)
    weights = b.rank * b.outputs * b.adapter.width
    made = tape.run("miss.block", [summed], b.tokens * b.outputs * inner, saves=[summed], weight_gradient=weights, trains=True)
    return tape.run("miss.add", [out, made], max(tape.sizes[out], tape.sizes[made]), aliases=True)


def _scaled(tape: Tape, source: int, out: int, b: AdaptedMatrix) -> int:
    """(IA)3: a vector scales the output, or the input where an MLP's second matrix reads it."""
    if b.role == "down":
        x = tape.cast(source, b.tokens * b.inputs * b.adapter.width)
        scaled = tape.run("ia3.scale", [x], tape.sizes[x], saves=[x], trains=True)
        return tape.run("ia3.output", [out, scaled], tape.sizes[out], aliases=True)
    return tape.run("ia3.scale", [out], b.tokens * b.outputs * b.adapter.width, saves=[out], trains=True)


def _vectors(tape: Tape, source: int, out: int, b: AdaptedMatrix) -> int:
    """VeRA: two frozen matrices with a trained vector behind each, which saves what it scales."""
    inner = _inner(b)
    x = tape.cast(_input(tape, source, b), b.tokens * b.inputs * inner)
    narrow = tape.run("vera.a", [x], b.tokens * b.rank * inner)
    scaled = tape.run("vera.d", [narrow], b.tokens * b.rank * inner, saves=[narrow], trains=True)
    wide = tape.run("vera.b", [scaled], b.tokens * b.outputs * inner)
    made = tape.run("vera.scale", [wide], b.tokens * b.outputs * inner, saves=[wide], trains=True)
    return tape.run("vera.add", [out, made], max(tape.sizes[out], tape.sizes[made]), aliases=True)


def prefixed(tape: Tape, seen: int) -> int:
    """LLaMA-Adapter: queries look at the prompt in a kernel of their own, whose output a gate scales and adds.

    Source: litgpt 0.5.12, adapter.py, CausalSelfAttention.scaled_dot_product_attention (the first two layers have none, a
    difference that is not counted; the prompt's own keys and values are few).
    """
    size = tape.sizes[seen]
    prompt = tape.run("prefix.attention", [seen], size, saves_output=True)
    gated = tape.run("prefix.gate", [prompt], size, saves=[prompt], trains=True)
    return tape.run("prefix.add", [seen, gated], size)


def exchanged(tape: Tape, out: int) -> int:
    """The kernel keeps its output of all tokens and some heads; the output projection keeps that of some tokens and all heads.

    Source: Transformer Engine, pytorch/attention/dot_product_attention/context_parallel.py, AttnFuncWithCPAndQKVOA2A.forward:
    out_ is saved, and what flash_attn_a2a_communicate makes of it is returned.
    """
    return tape.run("attention.exchange", [out], tape.sizes[out])


def _biased_scale(tape: Tape, _source: int, out: int, _b: AdaptedMatrix) -> int:
    """LLaMA-Adapter v2: scale x (output + bias); the scale's gradient needs what it scales (litgpt 0.5.12, adapter_v2.py)."""
    shifted = tape.run("adapter.bias", [out], tape.sizes[out])
    return tape.run("adapter.scale", [shifted], tape.sizes[shifted], saves=[shifted], trains=True)


def _input(tape: Tape, source: int, b: AdaptedMatrix) -> int:
    """The layer's input cast to the adapter's width and dropped out; bitsandbytes' layers leave the cast to autocast."""
    wanted, narrow = b.tokens * b.inputs * b.adapter.width, not b.adapter.casts
    x = source
    if abs(tape.sizes[x] - wanted) > 1 and not (narrow and b.style.dequantize):
        x = tape.run("lora.cast", [x], wanted)
    if b.adapter.dropout:
        x = tape.run("lora.dropout", [x], tape.sizes[x], keeps=b.tokens * b.inputs)
    return x


def _inner(b: AdaptedMatrix) -> float:
    """The width in which an adapter's products run: autocast gives them 16-bit copies of input and weight."""
    return b.adapter.width if b.adapter.casts else min(b.style.width, b.adapter.width)


_FORMS: dict[str, Callable[[Tape, int, int, AdaptedMatrix], int]] = {
    "miss": _summed,
    "bone": _summed,
    "ia3": _scaled,
    "vera": _vectors,
    "adapter_v2": _biased_scale,
}
