"""scaled_dot_product_attention as a GPU would run it: the kernel chosen by card and version, with that kernel's saved tensors.

On fake tensors the choice falls to a C++ stub that only knows "math", which keeps the whole score matrix. The operator is
therefore given an implementation that chooses as ``sdp_utils.cpp`` does and calls the kernel's own operator, whose autograd
formula and shape function exist in every build.
"""

import math
from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten
_HALF = (torch.float16, torch.bfloat16)
_registered: list[Any] = []


class Attention:
    """The choice of kernel under an order of preference; ``counts`` says how often each one was taken."""

    def __init__(self, order: tuple[str, ...]) -> None:
        self.order = order
        self.counts: dict[str, int] = {}

    def __call__(  # noqa: PLR0917 - the operator's own signature
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        """The operator, with its own signature."""
        chosen = self.choose(query, key, value, attn_mask, enable_gqa)
        self.counts[chosen] = self.counts.get(chosen, 0) + 1
        if chosen == "flash":
            return _flash(query, key, value, dropout=dropout_p, causal=is_causal, scale=scale)
        if enable_gqa and chosen != "cudnn":
            groups = query.shape[-3] // key.shape[-3]
            key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
        saves = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
        if chosen == "math":
            return aten._scaled_dot_product_attention_math(query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale)[
                0
            ]
        mask = None if attn_mask is None else _additive(attn_mask, query, key)
        if chosen == "cudnn":
            return aten._scaled_dot_product_cudnn_attention(
                query, key, value, mask, saves, dropout_p, is_causal, False, scale=scale
            )[0]
        return aten._scaled_dot_product_efficient_attention(query, key, value, mask, saves, dropout_p, is_causal, scale=scale)[0]

    def choose(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, gqa: bool) -> str:
        """The first kernel of the order that accepts these inputs."""
        allowed = {
            "flash": torch.backends.cuda.flash_sdp_enabled(),
            "efficient": torch.backends.cuda.mem_efficient_sdp_enabled(),
            "cudnn": torch.backends.cuda.cudnn_sdp_enabled(),
        }
        accepts = next((n for n in self.order if allowed.get(n) and _ACCEPTS[n](query, key, value, mask, gqa)), None)
        return accepts or "math"


def install(attention: Attention, keys: tuple[str, ...]) -> None:
    """Register the implementation for dispatch keys of the traced device."""
    library = torch.library.Library("aten", "IMPL")
    _registered.append(library)
    for key in keys:
        library.impl("scaled_dot_product_attention", attention, key)


def _flash(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, dropout: float, causal: bool, scale: float | None
) -> torch.Tensor:
    width = query.shape[-1]
    pad = -width % 8
    scale = 1 / math.sqrt(width) if scale is None else scale
    if pad:
        query, key, value = (torch.nn.functional.pad(t, (0, pad)) for t in (query, key, value))
    out: torch.Tensor = aten._scaled_dot_product_flash_attention(query, key, value, dropout, causal, False, scale=scale)[0]
    return out[..., :width] if pad else out


def _additive(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """A mask as the efficient and cuDNN kernels want it: additive, its rows padded to 16 bytes, expanded without a copy."""
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), -math.inf)
    if mask.shape[-1] % 8:
        mask = torch.nn.functional.pad(mask, (0, 16 - mask.shape[-1] % 16))[..., : key.shape[-2]]
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])


def _flash_accepts(query: Any, key: Any, value: Any, mask: Any, gqa: bool) -> bool:
    del gqa, key
    half = query.dtype in _HALF and query.dim() == 4
    return bool(half and mask is None and query.shape[-1] <= 256 and query.shape[-1] == value.shape[-1])


def _cudnn_accepts(query: Any, key: Any, value: Any, mask: Any, gqa: bool) -> bool:
    del gqa, key
    half = query.dtype in _HALF and query.dim() == 4
    return bool(half and mask is None and query.shape[-1] <= 128 and not query.shape[-1] % 8 and value.shape[-1] <= 128)


def _efficient_accepts(query: Any, key: Any, value: Any, mask: Any, gqa: bool) -> bool:
    """The efficient kernel takes no grouped heads: PyTorch then falls to math, whose kernel repeats them."""
    del key, value
    return bool(query.dim() == 4 and not gqa and not (mask is not None and mask.requires_grad))


_ACCEPTS: dict[str, Callable[..., bool]] = {
    "flash": _flash_accepts,
    "cudnn": _cudnn_accepts,
    "efficient": _efficient_accepts,
    "math": lambda *_: True,
}
