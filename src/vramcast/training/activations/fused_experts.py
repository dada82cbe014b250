"""Experts as two three-dimensional tensors, multiplied by grouped matmuls (transformers 5), on the tape.

Source: transformers 5.23, integrations/moe.py (grouped_mm_experts_forward) and the routers of models/mixtral and its kin; for
adapters peft/tuners/lora/layer.py, ParamWrapper: the expert tensor is replaced by its sum with the product of both factors.
"""

from vramcast.models.feedforward import Experts
from vramcast.training.activations.style import Style
from vramcast.training.activations.tape import Tape

INDEX = 8  # bytes of a token's place


def fused_experts(
    tape: Tape, style: Style, kind: Experts, source: int, *, rows: float, tokens: float, hidden: float, width: float
) -> int:
    """Rows sorted by expert, two grouped matmuls, the weighted sum of each token's rows in float."""
    held, inner = style.expert_width, kind.intermediate * (2 if kind.gated else 1) / style.expert_tp
    weights = router(tape, style, kind, source, tokens=tokens, hidden=hidden)
    places = rows * INDEX
    gathered = tape.run("permute", [source], rows * width * style.width, keeps=3 * places + rows * 4, scratch=places)
    x = gathered if held == style.width else tape.run("expert.cast", [gathered], rows * width * held)
    up = _matmul(tape, style, kind, x, rows=rows, inputs=width, outputs=inner, role="expert.gate")
    mid = _product(tape, style, kind, up, rows * kind.intermediate / style.expert_tp * held)
    out = _matmul(
        tape, style, kind, mid, rows=rows, inputs=kind.intermediate / style.expert_tp, outputs=width, role="expert.down"
    )
    weighted = tape.run("route.weight", [out, weights], rows * width * 4, saves=[out, weights], back_scratch=rows * width * 4)
    ordered = tape.run("unpermute", [weighted], rows * width * 4, back_scratch=rows * width * 4)
    summed = tape.run("route.sum", [ordered], tokens * width * 4)
    return tape.run("route.back", [summed], tokens * width * style.width)


def router(tape: Tape, style: Style, kind: Experts, source: int, *, tokens: float, hidden: float) -> int:
    """Logits, their softmax in float, the chosen ones with their places, divided by their sum; returns the rows' weights."""
    scores, chosen = tokens * kind.routed, tokens * kind.active
    adapted = bool(style.adapter and style.adapter.ranks.get("router"))
    wanted = tokens * hidden * (4 if style.float_router else style.width)
    for size in dict.fromkeys((wanted, tokens * hidden * style.width) if style.autocast else (wanted,)):
        source = source if abs(tape.sizes[source] - size) < 1 else tape.run("router.cast", [source], size)
    trained = style.trains or adapted
    logits = tape.run("router", [source], scores * style.width, saves=[source] if trained else [], trains=trained)
    softmax = tape.run("router.softmax", [logits], scores * 4, scratch=scores * 4, saves_output=True)
    top = tape.run("router.top", [softmax], chosen * 4, keeps=chosen * INDEX)
    return tape.run("router.divide", [top], chosen * 4, saves=[], saves_output=True, keeps=tokens * 4)


def _product(tape: Tape, style: Style, kind: Experts, up: int, size: float) -> int:
    if not kind.gated:
        return tape.run("activation", [up], size, saves=[up])
    if style.clamped_glu:
        return _clamped(tape, up, size)
    activated = tape.run("activation", [up], size, saves=[up])
    return tape.run("product", [activated, up], size, saves=[activated, up])


def _clamped(tape: Tape, up: int, size: float) -> int:
    """GPT-OSS: both halves clamped, gate x sigmoid(1.702 gate), times up + 1 (transformers, models/gpt_oss, _apply_gate)."""
    gate = tape.run("clamp.gate", [up], size, saves=[up])
    linear = tape.run("clamp.up", [up], size, saves=[up])
    sigmoid = tape.run("sigmoid", [tape.run("scale", [gate], size)], size, saves_output=True)
    glu = tape.run("activation", [gate, sigmoid], size, saves=[gate, sigmoid])
    shifted = tape.run("shift", [linear], size, aliases=True)
    return tape.run("product", [shifted, glu], size, saves=[shifted, glu])


def _matmul(
    tape: Tape, style: Style, kind: Experts, source: int, *, rows: float, inputs: float, outputs: float, role: str
) -> int:
    """One grouped matmul. An adapter on the expert tensor writes out the adapted tensor, which is saved for backward."""
    weight = kind.routed / style.ep * inputs * outputs
    ranks = style.adapter.ranks if style.adapter else {}
    if not ranks.get(role):
        return tape.run(
            role, [source], rows * outputs * style.expert_width, saves=[source] if style.trains else [],
            weight_gradient=weight * style.gradient_width if style.trains else 0, trains=style.trains,
        )  # fmt: skip
    assert style.adapter is not None
    whole = weight * style.expert_width
    rank = ranks[role] * (2 if role == "expert.gate" and kind.gated else 1)  # gate and up in one tensor: twice the rank
    factors = rank * kind.routed * (inputs + outputs) * style.adapter.width
    cast = factors * style.expert_width / style.adapter.width if style.expert_width < style.adapter.width else 0
    return tape.run(
        role, [source], rows * outputs * style.expert_width, saves=[source], keeps=whole + cast, scratch=whole,
        back_scratch=whole, weight_gradient=factors, trains=True,
    )  # fmt: skip
