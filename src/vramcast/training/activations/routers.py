"""Routers on the tape: scores of the experts, the chosen ones and their weights (transformers 5.23, each family's TopKRouter)."""

from vramcast.models.layers import Experts
from vramcast.training.activations.choice import Style
from vramcast.training.activations.sizes import Amount
from vramcast.training.activations.tape import Tape

PLACE = 8  # bytes of a token's or an expert's place


def router(tape: Tape, style: Style, kind: Experts, source: int, *, tokens: Amount, hidden: float) -> int:
    """The weights of the chosen experts of every token."""
    scores, chosen, written = tokens * kind.routed, tokens * kind.active, style.written
    logits = _logits(tape, style, kind, source, tokens=tokens, hidden=hidden)
    if written.router == "top":
        top = tape.run("router.top", [logits], tape.sizes[logits] / kind.routed * kind.active, keeps=chosen * PLACE)
        return tape.run("router.softmax", [top], tape.sizes[top], saves_output=True)
    if written.router == "softmax":
        wide = logits if tape.sizes[logits] >= scores * 4 else tape.run("router.float", [logits], scores * 4)
        softmax = tape.run("router.softmax", [wide], scores * 4, saves_output=True)
        top = tape.run("router.top", [softmax], chosen * 4, keeps=chosen * PLACE)
    else:
        held = tape.sizes[logits] if written.router == "groups" else scores * 4
        sigmoid = tape.run("router.sigmoid", [logits], held, saves_output=True)
        top = tape.run("router.gather", [sigmoid], held * kind.active / kind.routed, keeps=chosen * PLACE)
    size = tape.sizes[top]
    made = tape.run("router.divide", [top], size, keeps=size + size / kind.active) if written.normalised else top
    tape.hold(logits, top)
    if written.float_routes:
        return made
    return tape.run("router.back", [made], chosen * style.width)


def _logits(tape: Tape, style: Style, kind: Experts, source: int, *, tokens: Amount, hidden: float) -> int:
    """A score of every expert; float routers cast their input and their weight."""
    adapted = bool(style.adapter and style.adapter.ranks.get("router"))
    width = 4 if style.kernels.float_router and not style.autocast else style.width
    wanted = tokens * hidden * (4 if style.kernels.float_router else style.width)
    for size in (wanted, tokens * hidden * width):
        source = source if abs(tape.sizes[source] - size) < 1 else tape.run("router.cast", [source], size)
    trained = style.trains or adapted
    weight = kind.routed * hidden * (4 if style.kernels.float_router else style.width)
    copied = weight if style.cast_weights or (style.kernels.float_router and style.residual < 4) else 0
    return tape.run(
        "router", [source], tokens * kind.routed * width, saves=[source] if trained else [], keeps=copied, trains=trained
    )
