"""Linear attention and state-space layers: gated delta nets, Kimi delta attention, Mamba-2.

Decoding reads and writes the whole state once per sequence; prefilling streams chunks of 64 tokens through several kernels.
``t = launch + bandwidth + compute``. FLOPs and bytes: SPEED 2.
"""

from typing import Any

from vramcast.errors import unknown_name
from vramcast.hardware.accelerator import Accelerator
from vramcast.speed.kernels.law import Estimate, law_for
from vramcast.speed.kernels.machine import Machine, machine

CHUNK = 64  # tokens of one chunk in the published Triton and FlashInfer kernels
KINDS = ("gdn", "kda", "mamba2")
FORMULA = "launch + bandwidth + compute"


def recurrent(
    *, card: Accelerator, kind: str, phase: str, batch: Any, new: Any = 1, heads: Any, key_dim: Any, value_dim: Any,
    key_heads: Any = 0, state_bytes: float = 4, backend: str = "",
) -> Estimate:  # fmt: skip
    """Seconds of the core of one recurrent layer (convolution and projections apart) on one rank.

    ``kind``: gdn, kda or mamba2. ``phase``: "prefill" or "decode". ``heads`` carry a state of ``key_dim x value_dim`` numbers of
    ``state_bytes`` each (Mamba-2: d_state x head_dim). ``new``: tokens of each of the ``batch`` sequences.
    """
    if kind not in KINDS:
        raise unknown_name("recurrent layer", kind, KINDS)
    chosen = law_for(f"{kind}_{phase}", backend or "triton", "bf16", card)
    parts = recurrent_parts(
        chosen.law.constants, machine(card), phase=phase, tokens=batch * new, sequences=batch, heads=heads,
        key_heads=key_heads or heads, key_dim=key_dim, value_dim=value_dim, state_bytes=state_bytes,
    )  # fmt: skip
    return Estimate(seconds=sum(parts.values()), parts=parts, formula=FORMULA, chosen=chosen)


def recurrent_parts(
    constants: dict[str, float], on: Machine, *, phase: str, tokens: Any, sequences: Any, heads: Any, key_heads: Any,
    key_dim: Any, value_dim: Any, state_bytes: float,
) -> dict[str, Any]:  # fmt: skip
    """Seconds of launch, of states and token vectors moved, and of the chunks' products."""
    state = 2 * sequences * heads * key_dim * value_dim * state_bytes
    vectors = tokens * 2 * (2 * key_heads * key_dim + 2 * heads * value_dim)
    chunked = 2 * heads * tokens * (CHUNK * (key_dim + value_dim) + 3 * key_dim * value_dim)
    work = chunked if phase == "prefill" else 8 * heads * tokens * key_dim * value_dim
    return {
        "launch": constants["launch_us"] * 1e-6,
        "bandwidth": (state + vectors) / (on.bandwidth_bytes_per_s * constants["bandwidth"]),
        "compute": work / (on.flops_per_s * constants["compute"]),
    }
