"""Kernels that only move bytes: norms, activations, residuals, rotary embedding, softmax, quantisation, casts."""

from typing import Any

from vramcast.hardware.accelerator import Accelerator
from vramcast.speed.kernels.law import Estimate, law_for
from vramcast.speed.kernels.machine import Machine, machine

FORMULA = "launch + bandwidth"


def elementwise(*, card: Accelerator, size_bytes: Any, eager: bool = False, kind: str = "add") -> Estimate:
    """Seconds of a kernel that moves ``size_bytes`` (read and written); ``eager``: launched from Python rather than in a graph.

    ``kind``: "add" (pointwise), "softmax" or "norm", whose reductions reach a smaller part of the bandwidth.
    """
    chosen = law_for("elementwise", "eager" if eager else "graph", kind, card)
    parts = elementwise_parts(chosen.constants, machine(card), moved_bytes=size_bytes)
    return Estimate(seconds=parts["launch"] + parts["bandwidth"], parts=parts, formula=FORMULA, chosen=chosen)


def elementwise_parts(constants: dict[str, float], on: Machine, *, moved_bytes: Any) -> dict[str, Any]:
    """Seconds of launch and of the bytes; what fits in L2 was written by the kernel before and is read from there."""
    resident = (moved_bytes <= on.l2_bytes) * 1.0
    rate = constants["bandwidth"] + resident * (constants["l2"] - constants["bandwidth"])
    return {
        "launch": constants["launch_us"] * 1e-6,
        "bandwidth": moved_bytes / (on.bandwidth_bytes_per_s * rate),
    }
