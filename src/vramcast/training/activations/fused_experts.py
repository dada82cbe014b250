"""Experts as two three-dimensional tensors, multiplied by grouped matmuls (transformers 5), on the tape.

Source: transformers 5.23, integrations/moe.py (grouped_mm_experts_forward); for adapters peft/tuners/lora/layer.py, ParamWrapper:
the expert tensor is replaced by its sum with the product of both factors.
"""

from vramcast.models.layers import Experts
from vramcast.training.activations.choice import Style
from vramcast.training.activations.routers import PLACE, router
from vramcast.training.activations.sizes import Amount
from vramcast.training.activations.tape import Tape


def fused_experts(
    tape: Tape, style: Style, kind: Experts, source: int, *, rows: Amount, tokens: Amount, hidden: float, width: float
) -> int:
    """Rows sorted by expert, two grouped matmuls, the weighted sum of each token's rows in the width of the routes."""
    held, inner = style.expert_width, kind.intermediate / style.expert_tp
    weights = router(tape, style, kind, source, tokens=tokens, hidden=hidden)
    route = tape.sizes[weights] / (tokens * kind.active)
    wide = max(route, held)
    places, biased = rows * PLACE, style.kernels.clamped_glu
    kept = places * (4 if biased else 3) + rows * route
    given = tape.sizes[source] / tokens / width
    gathered = tape.run("permute", [source], rows * width * given, keeps=kept, scratch=places)
    x = gathered if held == given else tape.run("expert.cast", [gathered], rows * width * held)
    biases = tape.run("expert.bias", [], rows * 2 * inner * held) if biased else 0
    up = _matmul(tape, style, kind, x, rows=rows, inputs=width, outputs=inner * (2 if kind.gated else 1), role="expert.gate")
    mid = _product(tape, style, kind, up, rows * inner * held)
    tape.hold(up)
    if biased:
        more = tape.run("expert.bias", [], rows * width * held)
        tape.hold(biases)
        biases = more
    out = _matmul(tape, style, kind, mid, rows=rows, inputs=inner, outputs=width, role="expert.down")
    product = rows * width * wide
    weighted = tape.run("route.weight", [out, weights], product, saves=[out], back_scratch=product * (2 if wide > held else 1))
    ordered = tape.run("unpermute", [weighted], product)
    summed = tape.run("route.sum", [ordered], tokens * width * wide)
    result = summed if wide == given else tape.run("route.back", [summed], tokens * width * given)
    tape.hold(source, gathered, out, ordered, summed, *([biases] if biased else []))
    return result


def every_expert(tape: Tape, style: Style, kind: Experts, source: int, *, tokens: Amount, hidden: float) -> int:
    """Llama 4: every expert sees every token, times a score that is zero unless it was chosen.

    Source: transformers 5.23, models/llama4/modeling_llama4.py, Llama4TextMoe and Llama4TextExperts.
    """
    rows, width, scores = tokens * kind.routed, style.width, tokens * kind.routed * style.width
    logits = tape.run("router", [source], scores, saves=[source] if style.trains else [], trains=style.trains)
    sigmoid = tape.run("router.sigmoid", [logits], scores * 2, saves_output=True, keeps=tokens * kind.active * PLACE)
    weights = tape.run("router.back", [sigmoid], scores)
    repeated = tape.run("repeat", [source], rows * hidden * width)
    weighed = tape.run(
        "route.weight", [repeated, weights], rows * hidden * width, saves=[repeated, weights], back_scratch=rows * hidden * width
    )
    inner = kind.intermediate / style.expert_tp
    up = _matmul(tape, style, kind, weighed, rows=rows, inputs=hidden, outputs=2 * inner, role="expert.gate")
    mid = _product(tape, style, kind, up, rows * inner * style.expert_width)
    out = _matmul(tape, style, kind, mid, rows=rows, inputs=inner, outputs=hidden, role="expert.down")
    return tape.run("route.sum", [out], tokens * hidden * width)


def _product(tape: Tape, style: Style, kind: Experts, up: int, size: Amount) -> int:
    if not kind.gated:
        return tape.run("activation", [up], size, saves=[up])
    if style.kernels.clamped_glu:
        return _clamped(tape, up, size)
    gate, linear = tape.slices("glu.split", up, (size, size), joined=True)
    activated = tape.run("activation", [gate], size, saves=[gate])
    return tape.run("product", [activated, linear], size, saves=[activated, linear])


def _clamped(tape: Tape, up: int, size: Amount) -> int:
    """GPT-OSS: both halves clamped, gate x sigmoid(1.702 gate), times up + 1 (transformers, models/gpt_oss, _apply_gate)."""
    first, second = tape.slices("glu.slice", up, (size, size))
    gate = tape.run("clamp.gate", [first], size, saves=[first])
    linear = tape.run("clamp.up", [second], size, saves=[second])
    sigmoid = tape.run("sigmoid", [tape.run("scale", [gate], size)], size, saves_output=True)
    glu = tape.run("activation", [gate, sigmoid], size, saves=[gate, sigmoid])
    shifted = tape.run("shift", [linear], size, aliases=True)
    made = tape.run("product", [shifted, glu], size, saves=[shifted, glu])
    tape.hold(gate, linear, glu)
    return made


def _matmul(
    tape: Tape, style: Style, kind: Experts, source: int, *, rows: Amount, inputs: float, outputs: float, role: str
) -> int:
    """One grouped matmul. An adapter on the expert tensor writes the adapted tensor out, saved where rows want a gradient."""
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
    kept = whole if tape.needs_grad[source] else 0
    return tape.run(
        role, [source], rows * outputs * style.expert_width, saves=[source], keeps=kept + cast, scratch=2 * whole - kept,
        back_scratch=whole, weight_gradient=factors, trains=True,
    )  # fmt: skip
