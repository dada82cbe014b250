"""Flex attention on fake tensors: what its compiled kernels return and keep, with no score matrix.

Under a tracing mode the operator is not compiled, and its eager form would make all scores. The shapes of its results are those
that PyTorch itself states for fake tensors.
"""

import importlib
from typing import Any

from vramcast.tracing.execution.mode import TracingMode


def install() -> None:
    """Give the operator and its backward their results under a tracing mode."""
    operators = importlib.import_module("torch._higher_order_ops.flex_attention")
    shapes = importlib.import_module("torch._higher_order_ops.utils").registered_hop_fake_fns
    for operator in (operators.flex_attention, operators.flex_attention_backward):
        operator.py_impl(TracingMode)(_recorded(shapes[operator]))


def _recorded(shapes: Any) -> Any:
    def run(mode: TracingMode, *args: Any, **kwargs: Any) -> Any:
        with mode:
            return shapes(*args, **kwargs)

    return run
