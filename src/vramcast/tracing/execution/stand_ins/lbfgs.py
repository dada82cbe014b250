"""torch.optim.LBFGS where nobody knows the loss: iterations go on until its history is full, searches end at their first point.

Its tests for an end (torch/optim/lbfgs.py) compare values that are made up, and would end a step before it holds any of its
history, which is most of its memory: two tensors as long as the parameters for each of ``history_size`` iterations.
"""

import functools
from math import inf
from typing import Any

import torch
from torch.optim import lbfgs

from vramcast.tracing.execution.session import Session

_MORE = 2  # iterations beside the history: the first makes none of it, the last holds a new pair beside a full one


def install(session: Session) -> None:
    """Let no tolerance end a step on the card; the settings are the program's again after it."""
    original, search = torch.optim.LBFGS.step, lbfgs._strong_wolfe
    first_point = functools.partial(search, c1=inf, c2=-inf)

    @functools.wraps(original)
    def step(optimizer: Any, closure: Any) -> Any:
        group = optimizer.param_groups[0]
        if not session.backend.is_device(group["params"][0]):
            return original(optimizer, closure)
        most = min(group["max_iter"], group["history_size"] + _MORE)
        session.notes[f"LBFGS makes {most} iterations in a step: what would end it sooner hangs on the loss"] = None
        given = dict(group)
        group.update(max_iter=most, tolerance_grad=-inf, tolerance_change=-inf)
        lbfgs._strong_wolfe = first_point
        try:
            return original(optimizer, closure)
        finally:
            group.update(given)
            lbfgs._strong_wolfe = search

    torch.optim.LBFGS.step = step
