"""What the ``flash_attn`` package has beside attention: its Triton norms and its loss, with what they keep and take.

Kept after the package's source (2.8.3, ops/triton/layer_norm.py and losses/cross_entropy.py): a norm keeps the sum that it
normalised and one float32 for each row; the loss keeps its logits and one float32 for each row, and its gradient is written over
them where ``inplace_backward`` says so.
"""

from typing import Any

import torch


def layer_norm_fn(  # noqa: PLR0917 - the package's own signature
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None = None,
    x1: Any = None,
    weight1: Any = None,
    bias1: Any = None,
    eps: float = 1e-6,
    dropout_p: float = 0.0,
    rowscale: Any = None,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    is_rms_norm: bool = False,
    **_: Any,
) -> Any:
    """A norm after an optional sum; with ``prenorm`` the sum too. Two inputs, two weights and row scales are refused by name."""
    del eps
    if x1 is not None or weight1 is not None or bias1 is not None or rowscale is not None or dropout_p:
        raise NotImplementedError("flash_attn's layer_norm_fn with a second input, row scales or dropout is not traced")
    kept = torch.float32 if residual_in_fp32 else x.dtype
    total = x if residual is None else _sum(x, residual)
    if total.dtype != kept:
        total = total.to(kept)
    out = _Norm.apply(total, weight, bias, x.dtype, is_rms_norm)
    return (out, total) if prenorm else out


def rms_norm_fn(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *args: Any, **options: Any) -> Any:
    """``layer_norm_fn`` without a mean."""
    return layer_norm_fn(x, weight, bias, *args, **(options | {"is_rms_norm": True}))


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> Any:
    """The same, without a sum."""
    return layer_norm_fn(x, weight, None, eps=eps, is_rms_norm=True)


class RMSNorm(torch.nn.Module):  # type: ignore[misc]
    """The module of this name, of both ``ops.rms_norm`` and ``ops.triton.layer_norm``."""

    def __init__(self, hidden_size: int, eps: float = 1e-5, device: Any = None, dtype: Any = None, **_: Any) -> None:
        super().__init__()
        self.eps = eps
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, device=device, dtype=dtype))
        self.register_parameter("bias", None)

    def forward(self, x: torch.Tensor, residual: torch.Tensor | None = None, prenorm: bool = False, **options: Any) -> Any:
        """See ``layer_norm_fn``."""
        return layer_norm_fn(x, self.weight, None, residual=residual, prenorm=prenorm, is_rms_norm=True, **options)


class CrossEntropyLoss(torch.nn.Module):  # type: ignore[misc]
    """The module of this name of ``losses.cross_entropy``."""

    def __init__(self, ignore_index: int = -100, reduction: str = "mean", inplace_backward: bool = False, **_: Any) -> None:
        super().__init__()
        self.ignore_index, self.reduction, self.inplace_backward = ignore_index, reduction, inplace_backward

    def forward(self, logits: torch.Tensor, target: torch.Tensor, *_: Any) -> torch.Tensor:
        """The loss of (rows, vocabulary) and labels."""
        losses: torch.Tensor = _Loss.apply(logits, target, self.inplace_backward)
        if self.reduction == "none":
            return losses
        return losses.sum() / (target != self.ignore_index).sum() if self.reduction == "mean" else losses.sum()


def _sum(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return left + right


class _Norm(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(  # noqa: PLR0917 - autograd gives them by place
        context: Any, x: torch.Tensor, weight: torch.Tensor, bias: Any, kind: torch.dtype, rms: bool
    ) -> torch.Tensor:
        per_row = [torch.empty(x.shape[:-1], device=x.device, dtype=torch.float32) for _ in range(1 if rms else 2)]
        context.save_for_backward(x, weight, bias, *per_row)
        return torch.empty_like(x, dtype=kind)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        del gradient
        x, weight, bias = context.saved_tensors[:3]
        of_bias = None if bias is None else torch.empty_like(bias)
        return torch.empty_like(x), torch.empty_like(weight), of_bias, None, None


class _Loss(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(context: Any, logits: torch.Tensor, target: torch.Tensor, inplace: bool) -> torch.Tensor:
        each = torch.empty(logits.shape[:-1], device=logits.device, dtype=torch.float32)
        context.save_for_backward(logits, torch.empty_like(each), target)
        context.inplace = inplace
        return each

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[Any, None, None]:
        del gradient
        logits = context.saved_tensors[0]
        return logits if context.inplace else torch.empty_like(logits), None, None
