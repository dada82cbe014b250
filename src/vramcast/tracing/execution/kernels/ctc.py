"""The CTC loss on a card: no shape function of PyTorch knows it, since its table is as wide as the longest target.

aten/native/cuda/LossCTC.cu: the forward keeps a table of log-probabilities (batch, time, 2 x longest target + 1), the backward
makes the gradient of the log-probabilities and a second table of that size while it runs. cuDNN's own loss, which wants 32-bit
targets on the host, is not modelled.
"""

import functools
from typing import Any

import torch

from vramcast.tracing.execution.kernels.shadows import CpuTwins

aten = torch.ops.aten
_FORWARD = (aten._ctc_loss.default, aten._ctc_loss.Tensor)
_BACKWARD = (aten._ctc_loss_backward.default, aten._ctc_loss_backward.Tensor)
_CHOICE = tuple(
    getattr(getattr(aten, name), overload)
    for name in ("_use_cudnn_ctc_loss", "_use_miopen_ctc_loss")
    if hasattr(aten, name)
    for overload in getattr(aten, name).overloads()
)
OPERATORS = frozenset({*_FORWARD, *_BACKWARD, *_CHOICE})


def run(func: Any, args: Any, shadows: CpuTwins) -> tuple[Any, list[int]]:
    """The result of one of ``OPERATORS`` as new tensors, and the bytes that it takes for as long as it runs."""
    if func in _CHOICE:
        return False, []
    if func in _BACKWARD:
        log_probabilities, table = args[1], args[6]
        return log_probabilities.new_empty(log_probabilities.shape), [table.numel() * table.element_size()]
    log_probabilities, targets, _, lengths = args[:4]
    time, batch = log_probabilities.shape[0], log_probabilities.shape[1] if log_probabilities.dim() == 3 else 1
    longest = max(_numbers(lengths, targets.shape[-1], shadows), default=0)
    table = log_probabilities.new_empty((batch, time, 2 * longest + 1))
    return (log_probabilities.new_empty((batch,)), table), []


def with_plain_lengths(shadows: CpuTwins) -> None:
    """Let ``torch.ctc_loss`` read its lengths as a GPU build does: brought to the host, as numbers.

    Lengths that nobody knows are taken as long as what they measure.
    """
    original = torch.ctc_loss

    @functools.wraps(original)
    def loss(sounds: torch.Tensor, targets: torch.Tensor, times: Any, lengths: Any, *args: Any, **options: Any) -> torch.Tensor:
        times = _numbers(times, sounds.shape[0], shadows)
        return original(sounds, targets, times, _numbers(lengths, targets.shape[-1], shadows), *args, **options)

    torch.ctc_loss = loss


def _numbers(lengths: Any, longest: int, shadows: CpuTwins) -> list[int]:
    if not isinstance(lengths, torch.Tensor):
        return list(lengths)
    known = shadows.of(lengths)
    return [longest] * lengths.numel() if known is None else known.reshape(-1).tolist()
