"""The parts of SyncBatchNorm, which only CUDA builds have: their results, by which a step over several ranks is traced.

Shapes and types after ``aten/src/ATen/native/cuda/Normalization.cu`` (torch 2.13): statistics are float32 for half types, one of
them for each channel.
"""

from typing import Any

import torch

_registered: list[Any] = []


def install() -> None:
    """Give the five operators results on meta tensors, which fake ones take too."""
    library = torch.library.Library("aten", "IMPL")
    _registered.append(library)
    for name, shapes in {
        "batch_norm_stats": lambda source, eps: _statistics(source, source, 2),
        "batch_norm_gather_stats_with_counts": lambda source, mean, *_: _statistics(source, mean, 2),
        "batch_norm_gather_stats": lambda source, mean, *_: _statistics(source, mean, 2),
        "batch_norm_elemt": lambda source, *_: torch.empty_like(source),
        "batch_norm_backward_reduce": _reduced,
        "batch_norm_backward_elemt": lambda gradient, source, *_: torch.empty_like(source),
    }.items():
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "Meta"):
            library.impl(name, shapes, "Meta")


def _statistics(source: torch.Tensor, like: torch.Tensor, count: int) -> tuple[torch.Tensor, ...]:
    """Float tensors with an element for every channel of ``source``, on the device of ``like``."""
    kind = torch.float32 if source.dtype in (torch.float16, torch.bfloat16) else source.dtype
    return tuple(like.new_empty((source.shape[1],), dtype=kind) for _ in range(count))


def _reduced(
    gradient: torch.Tensor, source: torch.Tensor, mean: torch.Tensor, _: Any, weight: Any, *wanted: bool
) -> tuple[torch.Tensor | None, ...]:
    sums = _statistics(gradient, mean, 2)
    of_weight = torch.empty_like(weight) if weight is not None else mean.new_empty((source.shape[1],))
    needs_input, needs_weight, needs_bias = wanted
    first = sums if needs_input else (mean.new_empty((0,)),) * 2
    empty = mean.new_empty((0,))
    return (*first, of_weight if needs_weight else empty, torch.empty_like(of_weight) if needs_bias else empty)
