"""Triton kernels on fake tensors: launched, they do nothing, and need to do nothing.

A Triton kernel cannot allocate: what it reads and fills are tensors that Python made before the launch, and those are traced. So
the fused norms, losses and optimizers of Liger, Unsloth and others run with every byte they hold.
"""

import importlib.util
from typing import Any


def install() -> None:
    """Make every launch a no-op, where Triton is installed."""
    if importlib.util.find_spec("triton") is None:
        return
    from triton.runtime import autotuner, jit

    jit.JITFunction.run = _nothing
    autotuner.Autotuner.run = autotuner.Heuristics.run = _nothing


def _nothing(*_: Any, **__: Any) -> None:
    """What a launch returns that nobody waits for."""
