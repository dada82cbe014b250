"""The dense parts of a layer on the tape: linear layers, norms, residual additions, MLPs and mixtures of experts.

Linear layers are plain, quantised and frozen, under autocast, or have an adapter beside them.
"""

import msgspec

from vramcast.models.layers import Dense, Experts
from vramcast.training.activations.adapted import AdaptedMatrix, adapted
from vramcast.training.activations.choice import LowRank, Style
from vramcast.training.activations.fused_experts import every_expert, fused_experts
from vramcast.training.activations.sizes import Amount
from vramcast.training.activations.tape import Tape

_SQUARED = ("relu2", "squared_relu")
_PARTS = {"qkv": ("q", "k", "v"), "gate_up": ("gate", "up")}  # packed projections, by what they hold
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
    if role in style.left_wide:
        style = msgspec.structs.replace(style, dequantize=0, cast_weights=style.autocast)
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
    beside = AdaptedMatrix(
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
    if not found:
        prefix, _, name = role.rpartition(".")
        parts = (f"{prefix}.{part}" if prefix else part for part in _PARTS.get(name, ()))
        return max((adapter.ranks.get(part, 0) for part in parts), default=0)
    return found


def norm(tape: Tape, style: Style, source: int, *, tokens: Amount, width: float, trains: bool | None = None) -> int:
    """A norm over ``width`` features of ``tokens`` rows.

    eager: transformers' LlamaRMSNorm (float copy, pow, rsqrt, product, cast back, weight); native and fused kernels save their
    input and one or two fp32 statistics per row.
    """
    trained = (style.trains or style.trains_norms) if trains is None else trains
    held = tape.sizes[source] / max(1.0, tokens * width)
    out = max(held if style.norm_weight <= style.width else style.norm_weight, style.width)
    if style.kernels.norm == "eager":
        return _eager(tape, style, source, tokens=tokens, width=width, held=held, out=out, trained=trained)
    statistics = 8.0 if style.kernels.norm == "native" else 4.0
    given = source
    own = style.written.float_norm and held < 4
    if style.written.casts_norm and style.autocast:
        source, out = tape.cast(source, tokens * width * style.width), style.width
    elif style.kernels.norm == "native" and held < 4 and (style.autocast or own):  # autocast's fp32 list (aten/autocast_mode.h)
        source, out = tape.run("norm.float", [source], tokens * width * 4), 4
    kept = out if style.kernels.norm != "fused" else style.width
    made = tape.run("norm", [source], tokens * width * kept, saves=[source], keeps=tokens * statistics, trains=trained)
    narrows = style.written.narrows_norm and tape.sizes[made] > tokens * width * held
    made = tape.run("norm.back", [made], tokens * width * held) if narrows or (own and not style.autocast) else made
    tape.hold(given, source)
    return made


def bare_norm(tape: Tape, style: Style, source: int, *, tokens: Amount, width: float) -> int:
    """An RMSNorm without a weight, of values (Gemma 3n and 4): cast back as soon as it is scaled."""
    if style.kernels.norm != "eager":
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
    if style.kernels.norm_form == "centred":
        x = tape.run("norm.centre", [x], wide, keeps=wide)  # once for its square, once for the product
    squares = tape.run("norm.pow", [x], wide, saves=[x], back_scratch=2 * wide)
    scale = tape.run("norm.mean", [squares], tokens * 4, saves_output=True)
    if style.kernels.norm_form == "mixed":
        x = source
    normed = tape.run("norm.scale", [x, scale], wide, saves=[x], back_scratch=wide)
    if style.kernels.norm_form not in ("narrow", "mixed"):
        offset = width * 4 if style.kernels.norm_form == "offset" else 0
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
    if style.kernels.hidden_dropout:
        right = tape.run("dropout", [right], tape.sizes[right], keeps=tape.sizes[0] / style.residual)
    size = max(tape.sizes[left], tape.sizes[right])
    return tape.run("residual", [left, right], size, aliases=tape.sizes[left] == tape.sizes[right])


def dense(
    tape: Tape, style: Style, kind: Dense, source: int, *, tokens: Amount, hidden: float, prefix: str = "", tp: int = 0
) -> int:
    """An MLP; its output has the hidden width."""
    inner = kind.intermediate / (tp or style.tp)
    size = tokens * inner * style.width
    if not kind.gated:
        up = linear(tape, style, source, tokens=tokens, inputs=hidden, outputs=inner, role=prefix + "up")
        mid = _pointwise(tape, style, kind.activation, up, tokens * inner)
    elif style.kernels.glu == "views":
        both = linear(tape, style, source, tokens=tokens, inputs=hidden, outputs=2 * inner, role=prefix + "gate_up")
        half = tape.sizes[both] / 2
        gate, up = tape.slices("glu.split", both, (half, half), joined=True)
        activated = tape.run("activation", [gate], half, saves=[gate])
        mid = tape.run("product", [up, activated], half, saves=[up, activated])
    elif style.kernels.glu == "packed":
        both = linear(tape, style, source, tokens=tokens, inputs=hidden, outputs=2 * inner, role=prefix + "gate_up")
        mid = tape.run("glu", [both], size, saves=[both])
    else:
        mid = _gated(tape, style, kind, source, tokens=tokens, hidden=hidden, inner=inner, prefix=prefix)
    if style.written.inner_dropout and style.kernels.hidden_dropout:
        mid = tape.run("dropout", [mid], tape.sizes[mid], keeps=tokens * inner)
    if style.written.sub_norms:
        mid = norm(tape, style, mid, tokens=tokens, width=inner)
    made = linear(tape, style, mid, tokens=tokens, inputs=inner, outputs=hidden, role=prefix + "down")
    tape.hold(source)
    return made


def _gated(
    tape: Tape, style: Style, kind: Dense, source: int, *, tokens: Amount, hidden: float, inner: float, prefix: str
) -> int:
    size = tokens * inner * style.width
    gate = linear(tape, style, source, tokens=tokens, inputs=hidden, outputs=inner, role=prefix + "gate")
    if style.kernels.glu in ("fused", "recomputed"):
        up = linear(tape, style, source, tokens=tokens, inputs=hidden, outputs=inner, role=prefix + "up")
        return tape.run("glu", [gate, up], size, saves=[gate, up], back_scratch=-2 * size)
    size = tape.sizes[gate]  # a 4-bit linear returns the dtype of its input
    if kind.activation in ("gelu_new", *_SQUARED) and style.kernels.glu == "eager":
        activated = _pointwise(tape, style, kind.activation, gate, tokens * inner)
        size = tape.sizes[activated]
    else:
        activated = tape.run("activation", [gate], size, saves=[gate])
    up = linear(tape, style, source, tokens=tokens, inputs=hidden, outputs=inner, role=prefix + "up")
    return tape.run("product", [activated, up], size, saves=[activated, up])


def _pointwise(tape: Tape, style: Style, activation: str, source: int, elements: Amount) -> int:
    """GELU and SiLU are one kernel; squared ReLU saves the ReLU's output too; gelu_new is written out in six operations."""
    size = tape.sizes[source]
    if activation == "relu":  # its backward asks its result alone
        return tape.run("activation", [source], size, saves_output=True)
    if activation == "xielu" and style.kernels.glu == "eager":
        return _xielu(tape, style, source, elements)
    if activation in _SQUARED and style.kernels.glu != "packed":
        rectified = tape.run("relu", [source], size, saves_output=True)
        wide = max(size, elements * 4) if style.autocast else size
        x = tape.run("square.float", [rectified], wide) if wide > size else rectified
        made = tape.run("square", [x], wide, saves=[x], back_scratch=2 * wide)
        tape.hold(source, rectified)
        return made
    if activation == "gelu_new" and style.kernels.glu == "eager":
        return _written_gelu(tape, style, source, elements)
    if activation == "quick_gelu":  # x * sigmoid(1.702 x): transformers/activations.py, QuickGELUActivation
        sigmoid = tape.run("gelu.sigmoid", [tape.run("gelu.scale", [source], size)], size, saves_output=True)
        return tape.run("gelu.product", [source, sigmoid], size, saves=[source, sigmoid])
    return tape.run("activation", [source], size, saves=[source])


def _xielu(tape: Tape, style: Style, source: int, elements: Amount) -> int:
    """Two branches and their choice, in float under autocast: a x^2 + b x, and (expm1(min(x, e)) - x) a + b x.

    Source: transformers/activations.py, XIELUActivation._xielu_python; expm1 saves its output, a product of a trained factor
    its other side too.
    """
    wide = max(tape.sizes[source], elements * 4) if style.autocast else tape.sizes[source]
    keeps = (2 + style.trains) * wide + elements  # alpha times x, expm1, its difference to x; where x is positive
    return tape.run("activation", [source], wide, saves=[source], keeps=keeps, scratch=wide, back_scratch=2 * wide)


def _written_gelu(tape: Tape, style: Style, source: int, elements: Amount) -> int:
    """0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) in eight operations; autocast runs the power, and what follows, in float.

    Source: transformers/activations.py, NewGELUActivation.
    """
    size = tape.sizes[source]
    wide = max(size, elements * 4) if style.autocast else size
    half = tape.run("gelu.half", [source], size)
    x = tape.run("gelu.float", [source], wide) if wide > size else source
    cube = tape.run("gelu.cube", [x], wide, saves=[x], back_scratch=2 * wide)
    cubic = tape.run("gelu.scale", [cube], wide)
    inner = tape.run("gelu.inner", [source, cubic], wide, aliases=True)
    tanh = tape.run("gelu.tanh", [tape.run("gelu.scale", [inner], wide)], wide, saves_output=True)
    shifted = tape.run("gelu.shift", [tanh], wide, aliases=True)
    # The narrow side's gradient is made as wide as the product, then cast (torch, engine.cpp: validate_outputs); what
    # checkpointing made again is let go as it is read, before that (torch/utils/checkpoint.py, unpack_hook).
    cast = wide - size * style.recomputed if wide > size else 0
    return tape.run("gelu.product", [half, shifted], wide, saves=[half, shifted], back_scratch=cast)


def experts(
    tape: Tape, style: Style, kind: Experts, source: int, *, tokens: Amount, hidden: float, gated_shared: bool = False
) -> int:
    """A mixture of experts with its router and shared experts (``gated_shared``: times their own gate).

    The chosen rows of every token pass through an expert.
    """
    if not kind.shared_intermediate:
        return _routed(tape, style, kind, source, tokens=tokens, hidden=hidden)
    shared = Dense(intermediate=kind.shared_intermediate, gated=kind.gated, activation=kind.activation)

    def beside() -> int:
        return dense(tape, style, shared, source, tokens=tokens, hidden=hidden, prefix="shared.")

    early = beside() if style.written.shared_first else 0
    routed = _routed(tape, style, kind, source, tokens=tokens, hidden=hidden)
    late = early or beside()
    if gated_shared:
        late = _weighed(tape, style, source, late, tokens=tokens, hidden=hidden)
    return tape.run("shared.add", [routed, late], tape.sizes[routed], aliases=True)


def _routed(tape: Tape, style: Style, kind: Experts, source: int, *, tokens: Amount, hidden: float) -> int:
    width = kind.latent or hidden
    rows = tokens * kind.active * style.imbalance * (style.expert_tp / style.tp if style.sp else 1)
    if style.kernels.fused_experts and style.written.every_expert:
        return every_expert(tape, style, kind, source, tokens=tokens, hidden=hidden)
    one_by_one = style.kernels.experts == "loop" or style.written.sliced_experts
    if style.kernels.fused_experts and not one_by_one:
        return fused_experts(tape, style, kind, source, rows=rows, tokens=tokens, hidden=hidden, width=width)
    router = tape.run("router", [source], tokens * kind.routed * 4, saves=[source], saves_output=True,
                      keeps=tokens * kind.active * 12, trains=style.trains)  # fmt: skip
    run = _loop if one_by_one else _grouped
    return run(tape, style, kind, source, router, rows=rows, tokens=tokens, width=width)


def _weighed(tape: Tape, style: Style, source: int, beside: int, *, tokens: Amount, hidden: float) -> int:
    """A shared expert times the sigmoid of one number for each token (transformers, models/qwen2_moe)."""
    gate = linear(tape, style, source, tokens=tokens, inputs=hidden, outputs=1, role="shared.weigh")
    sigmoid = tape.run("shared.sigmoid", [gate], tape.sizes[gate], saves_output=True)
    size = tape.sizes[beside]
    return tape.run("shared.product", [sigmoid, beside], size, saves=[sigmoid, beside], back_scratch=size)


def _grouped(
    tape: Tape, style: Style, kind: Experts, source: int, router: int, *, rows: Amount, tokens: Amount, width: float
) -> int:
    """All chosen rows gathered into one buffer and multiplied by grouped matmuls, then scattered back."""
    inner = Dense(intermediate=kind.intermediate, gated=kind.gated, activation=kind.activation)
    gathered = tape.run("permute", [source], rows * width * style.width, keeps=rows * 8)
    out = _expert_rows(tape, style, inner, gathered, rows=rows, width=width)
    weighted = tape.run("route.weight", [out, router], rows * width * style.width, saves=[out])
    return tape.run("unpermute", [weighted], tokens * width * style.width)


def _expert_rows(tape: Tape, style: Style, inner: Dense, source: int, *, rows: Amount, width: float) -> int:
    local = msgspec.structs.replace(style, gradient_width=0, dequantize=0, cast_weights=False)
    return dense(tape, local, inner, source, tokens=rows, hidden=width, prefix="expert.", tp=style.expert_tp)


def _loop(
    tape: Tape, style: Style, kind: Experts, source: int, router: int, *, rows: Amount, tokens: Amount, width: float
) -> int:
    """One expert after another (transformers' MixtralSparseMoeBlock): every expert saves its rows, one is live at a time."""
    inner = Dense(intermediate=kind.intermediate, gated=kind.gated, activation=kind.activation)
    each = rows / kind.routed
    one = Tape(each * width * style.width)
    row = one.run("expert.gather", [0], each * width * style.width, keeps=each * 16)
    out = _expert_rows(one, style, inner, row, rows=each, width=width)
    # index_add_ asks the shape of what it adds, and saves it (torch, derivatives.yaml)
    weighted = one.run("route.weight", [out], each * width * style.width, saves=[out])
    one.run("expert.add", [weighted], 0, saves=[weighted])
    life = one.life()
    trained = (3 if kind.gated else 2) * kind.intermediate * width * kind.routed * style.gradient_width / style.ep
    matrix = kind.intermediate * width
    dequantised = 0 if style.written.sliced_experts else style.dequantize * matrix
    sliced, copied = _slices(style, kind, matrix)
    return tape.run(
        "experts", [source, router], tokens * width * style.width,
        keeps=life.saved + copied / kind.routed,
        pieces=(life.saved + copied / kind.routed) * (kind.routed - 1),
        scratch=life.forward_peak - life.saved + dequantised,
        back_scratch=life.backward_peak - life.saved + dequantised + sliced,
        weight_gradient=trained if style.trains else 0,
        trains=style.trains,
    )  # fmt: skip


def _slices(style: Style, kind: Experts, matrix: float) -> tuple[float, float]:
    """Of experts that are slices of one tensor: a slice's gradient, as large as the whole, and autocast's copies of all slices.

    Source: transformers 5.23, models/dbrx, DbrxExperts.forward; torch, derivatives.yaml: select.
    """
    if not style.written.sliced_experts:
        return 0.0, 0.0
    wide = style.cast_weights or (style.autocast and style.dequantize)  # experts are no linear layers, which alone are quantised
    copies = (3 if kind.gated else 2) * matrix * kind.routed * style.width
    return matrix * kind.routed * style.gradient_width * style.trains, copies if wide else 0.0
