"""Linear layers, norms and residual additions on the tape: plain, quantised and frozen, under autocast, beside adapters."""

from vramcast.training.activations.adapted import Beside, adapted
from vramcast.training.activations.choice import LowRank, Style
from vramcast.training.activations.sizes import Amount
from vramcast.training.activations.tape import Tape

LATENT = {"q_a": "q", "q_b": "q", "kv_a": "k", "kv_b": "v"}  # what latent attention's projections yield in the end
UNPACKING = 6  # bytes per weight alive while AutoGPTQ unpacks: int32 shifts, then int8 codes and their difference to the zeros


def linear(
    tape: Tape,
    style: Style,
    source: int,
    *,
    tokens: Amount,
    inputs: float,
    outputs: float,
    role: str,
    trains: bool | None = None,
    added: Amount = 0,
) -> int:
    """A projection of ``tokens`` rows from ``inputs`` to ``outputs`` features, of which an adapter changes ``added`` (0 = all).

    Autograd saves the input only when the weight needs a gradient (torch, derivatives.yaml: linear); a quantised weight is
    dequantised anew in forward and in backward (bitsandbytes, MatMul4Bit).
    """
    trained = style.trains if trains is None else trains
    given, source = source, tape.cast(source, tokens * inputs * style.width)
    if style.quant_width and not trained:
        out = _quantized(tape, style, source, tokens=tokens, inputs=inputs, outputs=outputs, role=role)
    else:
        out = _plain(tape, style, source, tokens=tokens, inputs=inputs, outputs=outputs, role=role, trained=trained)
    if style.dequantize and not trained and not style.quant_width:  # Linear4bit.forward: out.to(inp_dtype)
        out = tape.cast(out, tokens * outputs * tape.sizes[given] / (tokens * inputs))
    adapter = style.adapter
    rank = _rank(adapter, role) if adapter else 0
    if adapter is None or not rank:
        return out
    beside = Beside(
        style=style, adapter=adapter, tokens=tokens, inputs=inputs, outputs=outputs, rank=rank, role=role, added=added
    )
    return adapted(tape, given, out, beside)


def _plain(
    tape: Tape, style: Style, source: int, *, tokens: Amount, inputs: float, outputs: float, role: str, trained: bool
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


def _quantized(tape: Tape, style: Style, source: int, *, tokens: Amount, inputs: float, outputs: float, role: str) -> int:
    """Bitsandbytes up to 0.42: the input is cast to the layer's compute dtype and saved though the weight is frozen.

    Source: bitsandbytes 0.42, nn/modules.py Linear4bit.forward, autograd/_functions.py MatMul4Bit (ctx.tensors holds A).
    """
    wide = tape.cast(source, tokens * inputs * style.quant_width)
    weight = inputs * outputs * (style.dequantize + (style.quant_width if style.quant_width > style.width else 0))
    made = tape.run(role, [wide], tokens * outputs * style.quant_width, saves=[wide], scratch=weight, back_scratch=weight)
    return tape.cast(made, tokens * outputs * style.width)


def _rank(adapter: LowRank, role: str) -> int:
    """The adapter's rank on a role; a packed projection has the rank of any of its parts."""
    found = adapter.ranks.get(role, 0) or adapter.ranks.get(LATENT.get(role, ""), 0)
    if not found and role == "qkv":
        return max(adapter.ranks.get(part, 0) for part in "qkv")
    return found


def norm(tape: Tape, style: Style, source: int, *, tokens: Amount, width: float, trains: bool | None = None) -> int:
    """A norm over ``width`` features of ``tokens`` rows.

    eager: transformers' LlamaRMSNorm (float copy, pow, rsqrt, product, cast back, weight); native and fused kernels save their
    input and one or two fp32 statistics per row.
    """
    trained = (style.trains or style.trains_norms) if trains is None else trains
    held = tape.sizes[source] / max(1.0, tokens * width)
    out = max(held if style.norm_weight <= style.width else style.norm_weight, style.width)
    if style.norm == "eager":
        return _eager(tape, style, source, tokens=tokens, width=width, held=held, out=out, trained=trained)
    statistics = 8.0 if style.norm == "native" else 4.0
    given = source
    own = style.written.float_norm and held < 4
    if style.norm == "native" and (style.autocast or own) and held < 4:  # on autocast's fp32 list (aten/autocast_mode.h)
        source, out = tape.run("norm.float", [source], tokens * width * 4), 4
    kept = out if style.norm != "fused" else style.width
    made = tape.run("norm", [source], tokens * width * kept, saves=[source], keeps=tokens * statistics, trains=trained)
    made = made if not own or style.autocast else tape.run("norm.back", [made], tokens * width * held)
    tape.hold(given, source)
    return made


def bare_norm(tape: Tape, style: Style, source: int, *, tokens: Amount, width: float) -> int:
    """An RMSNorm without a weight, of values (Gemma 3n and 4): cast back as soon as it is scaled."""
    if style.norm != "eager":
        return norm(tape, style, source, tokens=tokens, width=width, trains=False)
    wide, held = tokens * width * 4, tape.sizes[source]
    x = tape.cast(source, wide)
    squares = tape.run("norm.pow", [x], wide, saves=[x], back_scratch=2 * wide)
    scale = tape.run("norm.mean", [squares], tokens * 4, saves_output=True)
    normed = tape.run("norm.scale", [x, scale], wide, saves=[x], back_scratch=wide)
    made = tape.cast(normed, held)
    tape.hold(source, normed)
    return made


def _eager(
    tape: Tape, style: Style, source: int, *, tokens: Amount, width: float, held: Amount, out: float, trained: bool
) -> int:
    """The RMSNorm in separate operations; the backward of pow and mean makes three more copies than it returns."""
    wide = tokens * width * 4
    x = source if held >= 4 else tape.run("norm.float", [source], wide)
    if style.norm_form == "centred":
        x = tape.run("norm.centre", [x], wide, keeps=wide)  # once for its square, once for the product
    squares = tape.run("norm.pow", [x], wide, saves=[x], back_scratch=2 * wide)
    scale = tape.run("norm.mean", [squares], tokens * 4, saves_output=True)
    if style.norm_form == "mixed":
        x = source
    normed = tape.run("norm.scale", [x, scale], wide, saves=[x], back_scratch=wide)
    if style.norm_form not in ("narrow", "mixed"):
        offset = width * 4 if style.norm_form == "offset" else 0
        made = tape.run("norm.weight", [normed], wide, saves=[normed] if trained else [], keeps=offset, trains=trained)
        back = made if held >= 4 else tape.run("norm.back", [made], tokens * width * held)
        tape.hold(source, made)
        return back
    back = tape.run("norm.back", [normed], tokens * width * held) if held < 4 else normed
    made = tape.run("norm.weight", [back], tokens * width * out, saves=[back] if trained else [], trains=trained)
    tape.hold(source, normed)
    return made


def add(tape: Tape, style: Style, left: int, right: int) -> int:
    """A residual addition: nothing is saved; the sum has the width of the wider side."""
    if style.written.scaled_branches:
        right = tape.run("scale", [right], tape.sizes[right])
    if style.hidden_dropout:
        right = tape.run("dropout", [right], tape.sizes[right], keeps=tape.sizes[right] / style.width)
    size = max(tape.sizes[left], tape.sizes[right])
    return tape.run("residual", [left, right], size, aliases=tape.sizes[left] == tape.sizes[right])
