"""Mamba 1's scan in plain torch operations, token by token, as transformers runs it where no kernels are installed.

Source: transformers 5.23, models/mamba/modeling_mamba.py (MambaMixer.forward, mamba_selective_scan), which Falcon-Mamba and Jamba
share. A state of every token is kept, in float and narrowed for the product with its output matrix.
"""

from vramcast.models.layers import Mamba1
from vramcast.training.activations.choice import Style
from vramcast.training.activations.dense import linear
from vramcast.training.activations.sizes import FLOAT, Amount
from vramcast.training.activations.tape import Tape


def mamba1_scan(tape: Tape, style: Style, kind: Mamba1, source: int, *, tokens: Amount, seq: Amount, hidden: float) -> int:
    """The whole mixer from the normed input to the output projection's result."""
    inner, width = kind.inner / style.tp, style.width
    joint = linear(tape, style, source, tokens=tokens, inputs=hidden, outputs=2 * inner, role="mixer")
    half = tape.sizes[joint] / 2
    mixed, gate = tape.slices("mixer.split", joint, (half, half), joined=True)
    longer = (seq + kind.conv - 1) / seq
    convolved = tape.run("conv", [mixed], half * longer, saves=[mixed], trains=style.trains)
    x = tape.run("conv.activation", [convolved], half, saves=[convolved])
    few = linear(tape, style, x, tokens=tokens, inputs=inner, outputs=kind.dt_rank + 2 * kind.state, role="mixer")
    shifted = tape.run("dt", [few], half, saves=[few] if style.trains else [], trains=style.trains)
    shifted = tape.run("dt.shift", [shifted], half, trains=style.trains)
    steps = tape.run("dt.softplus", [shifted], half, saves=[shifted])
    scanned = _scan(tape, (x, few, steps), tokens * inner * FLOAT, kind.state, width / FLOAT)
    skipped = tape.run("scan.skip", [x], tokens * inner * FLOAT, saves=[x] if style.trains else [], trains=style.trains)
    joined = tape.run("scan.join", [scanned, skipped], tokens * inner * FLOAT)
    active = tape.run("gate.activation", [gate], half, saves=[gate])
    gated = tape.run("gate.product", [joined, active], tokens * inner * FLOAT, saves=[joined, active])
    made = linear(tape, style, tape.cast(gated, tokens * inner * width), tokens=tokens, inputs=inner, outputs=hidden, role="o")
    tape.hold(source, joint, x, few, scanned, joined)
    return made


def _scan(tape: Tape, parts: tuple[int, int, int], values: Amount, state: float, narrow: float) -> int:
    """Decays and inputs of every token's state in float, then the states one after another.

    Each token's slice gets its gradient in zeros of the whole (torch, derivatives.yaml: select), one such tensor at a time.
    """
    x, few, steps = parts
    states = values * state
    decays = tape.run("scan.decay", [tape.run("scan.rates", [steps], states, saves=[steps])], states, saves_output=True)
    matrix = tape.run("scan.matrix", [steps, few], states, saves=[steps])
    wide = tape.run("scan.float", [x], values)
    inputs = tape.run("scan.inputs", [matrix, wide], states, saves=[matrix, wide], back_scratch=states)
    out = tape.run(
        "scan", [decays, inputs, few], values * narrow, saves=[decays], pieces=states * (1 + narrow), back_scratch=states
    )
    tape.hold(decays, matrix, inputs, steps)
    return tape.run("scan.stack", [out], values * narrow)
