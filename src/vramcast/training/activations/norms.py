"""Normalisation and residual additions on the tape."""

from vramcast.training.activations.sizes import Amount
from vramcast.training.activations.style import Style
from vramcast.training.activations.tape import Tape


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
