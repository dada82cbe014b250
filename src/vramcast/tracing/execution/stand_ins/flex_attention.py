"""Flex attention on fake tensors: what its compiled kernels return and keep, with no score matrix.

Under a tracing mode the operator is not compiled, and its eager form would make all scores. The shapes of its results are those
that PyTorch itself states for fake tensors.
"""

import functools
import importlib
from typing import Any

import torch

from vramcast.tracing.execution.fusion import graph_is_made
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


def _attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of (batch, heads, length, width) and the logarithms of its sums."""
    del key
    out = query.new_empty((*query.shape[:-1], value.shape[-1]))
    return out, query.new_empty(query.shape[:-1], dtype=torch.float32)


def _back(  # noqa: PLR0917 - an operator takes them by place
    gradient: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, out: torch.Tensor, sums: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of the three."""
    del gradient, out, sums
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


@functools.cache
def _operator() -> Any:
    """``_attend`` as an operator that no graph looks into, with a backward of its own."""
    forward = torch.library.custom_op("vramcast::flex", _attend, mutates_args=())
    backward = torch.library.custom_op("vramcast::flex_backward", _back, mutates_args=())
    forward.register_fake(_attend)
    backward.register_fake(_back)

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs, *output)

    forward.register_autograd(lambda ctx, gradient, _: backward(gradient, *ctx.saved_tensors), setup_context=keep)
    return forward


def opaque_in_graphs() -> None:
    """Where a graph is made, flex attention is one operator of it; its masks are small and stay with whoever made them."""
    module: Any = importlib.import_module("torch.nn.attention.flex_attention")
    original = module.flex_attention

    @functools.wraps(original)
    def attend(query: Any, key: Any, value: Any, *args: Any, **options: Any) -> Any:
        if not graph_is_made():
            return original(query, key, value, *args, **options)
        out, sums = _operator()(query, key, value)
        if options.get("return_aux") is not None:
            return out, module.AuxOutput(lse=sums)
        return (out, sums) if options.get("return_lse") else out

    module.flex_attention = attend
