"""Linear layers on the tape: plain, quantised and frozen, under autocast, and with a low-rank adapter beside them."""

from vramcast.training.activations.style import LowRank, Style
from vramcast.training.activations.tape import Tape

LATENT = {"q_a": "q", "q_b": "q", "kv_a": "k", "kv_b": "v"}  # what latent attention's projections yield in the end
UNPACKING = 6  # bytes per weight alive while AutoGPTQ unpacks: int32 shifts, then int8 codes and their difference to the zeros


def linear(
    tape: Tape,
    style: Style,
    source: int,
    *,
    tokens: float,
    inputs: float,
    outputs: float,
    role: str,
    trains: bool | None = None,
    added: float = 0,
) -> int:
    """A projection of ``tokens`` rows from ``inputs`` to ``outputs`` features, of which an adapter changes ``added`` (0 = all).

    Autograd saves the input only when the weight needs a gradient (torch, derivatives.yaml: linear); a quantised weight is
    dequantised anew in forward and in backward (bitsandbytes, MatMul4Bit).
    """
    trained = style.trains if trains is None else trains
    given, source = source, _cast(tape, source, tokens * inputs * style.width)
    if style.quant_width and not trained:
        out = _quantized(tape, style, source, tokens=tokens, inputs=inputs, outputs=outputs, role=role)
    else:
        out = _plain(tape, style, source, tokens=tokens, inputs=inputs, outputs=outputs, role=role, trained=trained)
    if style.dequantize and not trained and not style.quant_width:  # Linear4bit.forward: out.to(inp_dtype)
        out = _cast(tape, out, tokens * outputs * tape.sizes[given] / (tokens * inputs))
    adapter = style.adapter
    rank = _rank(adapter, role) if adapter else 0
    if adapter is None or not rank:
        return out
    rebuilt = role == "down" and style.glu == "fused"
    return _adapted(
        tape, style, adapter, given, out, tokens=tokens, inputs=inputs, outputs=outputs, rank=rank, rebuilt=rebuilt, added=added
    )


def _plain(
    tape: Tape, style: Style, source: int, *, tokens: float, inputs: float, outputs: float, role: str, trained: bool
) -> int:
    """The matmul itself. An 8- or 4-bit one may save narrow copies instead; projections of one input share one."""
    weight = inputs * outputs
    copied = style.cast_weights or (style.unpacks and not trained)
    cached = style.cast_weights and trained
    narrow = style.saved_inputs > 0 and trained
    copy = (tokens * inputs * style.saved_inputs * tape.first_copy(source) + weight * style.saved_weights) if narrow else 0
    return tape.run(
        LATENT.get(role, role),
        [source],
        tokens * outputs * style.width,
        saves=[source] if trained and not narrow else [],
        keeps=copy + (weight * style.width if copied and not cached else 0),
        cached=weight * style.width if cached else 0,
        scratch=weight * (UNPACKING if style.unpacks and not trained else style.dequantize),
        back_scratch=weight * style.dequantize,
        weight_gradient=weight * style.gradient_width if trained else 0,
        trains=trained,
    )


def _quantized(tape: Tape, style: Style, source: int, *, tokens: float, inputs: float, outputs: float, role: str) -> int:
    """Bitsandbytes up to 0.42: the input is cast to the layer's compute dtype and saved though the weight is frozen.

    Source: bitsandbytes 0.42, nn/modules.py Linear4bit.forward, autograd/_functions.py MatMul4Bit (ctx.tensors holds A).
    """
    wide = _cast(tape, source, tokens * inputs * style.quant_width)
    weight = inputs * outputs * (style.dequantize + (style.quant_width if style.quant_width > style.width else 0))
    made = tape.run(role, [wide], tokens * outputs * style.quant_width, saves=[wide], scratch=weight, back_scratch=weight)
    return _cast(tape, made, tokens * outputs * style.width)


def _rank(adapter: LowRank, role: str) -> int:
    """The adapter's rank on a role; a packed projection has the rank of any of its parts."""
    found = adapter.ranks.get(role, 0) or adapter.ranks.get(LATENT.get(role, ""), 0)
    if not found and role == "qkv":
        return max(adapter.ranks.get(part, 0) for part in "qkv")
    return found


def _cast(tape: Tape, source: int, wanted: float) -> int:
    """Autocast's copy of an input held in another width."""
    if abs(tape.sizes[source] - wanted) < 1:
        return source
    return tape.run("cast", [source], wanted)


def _adapted(
    tape: Tape,
    style: Style,
    adapter: LowRank,
    source: int,
    out: int,
    *,
    tokens: float,
    inputs: float,
    outputs: float,
    rank: int,
    rebuilt: bool,
    added: float,
) -> int:
    """PEFT's ``result + lora_B(lora_A(dropout(x))) * scaling`` (peft/tuners/lora/layer.py, Linear.forward).

    ``rebuilt``: a fused MLP makes the input again in backward from what it saved anyway (unsloth/kernels/fast_lora.py, LoRA_MLP).
    """
    down, up = rank * inputs * adapter.width, rank * outputs * adapter.width
    if adapter.fused:
        if adapter.dropout:
            source = tape.run("lora.dropout", [source], tokens * inputs * style.width)
        saved = [] if rebuilt else [source]
        return tape.run("lora", [source, out], tokens * outputs * style.width, saves=saved, weight_gradient=down + up,
                        back_scratch=tokens * rank * style.width, trains=True)  # fmt: skip
    narrow = not adapter.casts  # autocast gives both matmuls 16-bit copies of their input and weight
    inner = min(style.width, adapter.width) if narrow else adapter.width
    x, held = source, tape.sizes[out]
    if style.dequantize and not style.quant_width:  # peft/tuners/lora/bnb.py: a clone, and no cast of the input under autocast
        out = tape.run("lora.clone", [out], held, aliases=True)
    wanted = tokens * inputs * adapter.width
    if abs(tape.sizes[x] - wanted) > 1 and not (narrow and style.dequantize):
        x = tape.run("lora.cast", [x], wanted)
    if adapter.dropout:
        x = tape.run("lora.dropout", [x], tape.sizes[x], keeps=tokens * inputs)
    wide, x = x, _cast(tape, x, tokens * inputs * inner)
    copied = inner / adapter.width if inner < adapter.width else 0
    up *= (added or outputs) / outputs
    a = tape.run("lora.a", [x], tokens * rank * inner, saves=[x], cached=down * copied, weight_gradient=down, trains=True)
    made = tokens * (added or outputs) * inner
    b = tape.run("lora.b", [a], made, saves=[a], cached=up * copied, weight_gradient=up, trains=True)
    if added:  # index_copy saves what it copies (torch, derivatives.yaml)
        b = tape.run("lora.pad", [b], tokens * outputs * inner, saves=[b])
    scaled = tape.run("lora.scale", [b], tokens * outputs * inner)
    summed = tape.run("lora.add", [out, scaled], max(held, tokens * outputs * inner), aliases=True)
    tape.hold(source, wide)
    return _cast(tape, summed, held)
