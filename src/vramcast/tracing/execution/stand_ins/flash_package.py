"""The ``flash_attn`` package on fake tensors: its functions, with the tensors that its CUDA kernels keep and take.

The package holds compiled CUDA and cannot even be imported without it, yet training code asks for it by name. PyTorch carries the
same kernels as operators of its own, whose autograd formulas save what the package's functions save.
"""

import importlib.machinery
import importlib.metadata
import importlib.util
import math
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import torch

from vramcast.tracing.execution.stand_ins import flash_layers
from vramcast.tracing.execution.stand_ins.imported import refusing

VERSION = "2.8.3"
aten = torch.ops.aten


def install() -> None:
    """Make ``import flash_attn`` work, unless the real package is there."""
    if "flash_attn" in sys.modules or importlib.util.find_spec("flash_attn") is not None:
        return
    functions: tuple[Callable[..., Any], ...] = (
        flash_attn_func, flash_attn_varlen_func, flash_attn_qkvpacked_func, flash_attn_kvpacked_func,
        flash_attn_varlen_qkvpacked_func, flash_attn_varlen_kvpacked_func,
    )  # fmt: skip
    padding: tuple[Callable[..., Any], ...] = (index_first_axis, pad_input, unpad_input)
    _module("flash_attn", functions).__version__ = VERSION
    _module("flash_attn.flash_attn_interface", functions)
    _module("flash_attn.bert_padding", padding)
    _module("flash_attn.layers", ())
    _module("flash_attn.layers.rotary", (apply_rotary_emb,))
    for name in ("ops", "ops.triton", "losses"):
        _module(f"flash_attn.{name}", ())
    norms = (flash_layers.layer_norm_fn, flash_layers.rms_norm_fn, flash_layers.RMSNorm)
    _module("flash_attn.ops.triton.layer_norm", norms)
    _module("flash_attn.ops.rms_norm", (flash_layers.rms_norm, flash_layers.RMSNorm))
    _module("flash_attn.losses.cross_entropy", (flash_layers.CrossEntropyLoss,))
    sys.meta_path.append(_Metadata())


def flash_attn_func(  # noqa: PLR0917 - the package's own signature
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> torch.Tensor:
    """Attention of (batch, length, heads, width), as the package's function of this name."""
    del softcap, deterministic, return_attn_probs
    lengths = (None, None, q.shape[1], k.shape[1])
    return _forward(q, k, v, lengths, dropout_p, causal, softmax_scale, window_size, alibi_slopes)


def flash_attn_varlen_func(  # noqa: PLR0917 - the package's own signature
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention of packed (tokens, heads, width), as the package's function of this name."""
    del softcap, deterministic, return_attn_probs, block_table
    lengths = (cu_seqlens_q, cu_seqlens_k, int(max_seqlen_q), int(max_seqlen_k))
    return _forward(q, k, v, lengths, dropout_p, causal, softmax_scale, window_size, alibi_slopes)


def flash_attn_qkvpacked_func(qkv: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
    """``flash_attn_func`` of one tensor of (batch, length, 3, heads, width)."""
    return flash_attn_func(*qkv.unbind(-3), *args, **options)


def flash_attn_kvpacked_func(q: torch.Tensor, kv: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
    """``flash_attn_func`` of keys and values in one tensor."""
    return flash_attn_func(q, *kv.unbind(-3), *args, **options)


def flash_attn_varlen_qkvpacked_func(
    qkv: torch.Tensor, cu_seqlens: torch.Tensor, max_seqlen: int, *args: Any, **options: Any
) -> torch.Tensor:
    """``flash_attn_varlen_func`` of one packed tensor of (tokens, 3, heads, width)."""
    q, k, v = qkv.unbind(-3)
    return flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, *args, **options)


def flash_attn_varlen_kvpacked_func(q: torch.Tensor, kv: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
    """``flash_attn_varlen_func`` of keys and values in one packed tensor."""
    return flash_attn_varlen_func(q, *kv.unbind(-3), *args, **options)


def unpad_input(hidden: torch.Tensor, mask: torch.Tensor, unused_mask: torch.Tensor | None = None) -> tuple[Any, ...]:
    """The tokens that a mask keeps, their indices, their cumulative counts, the longest count, and the counts."""
    kept = mask if unused_mask is None else mask + unused_mask
    counts, used = kept.sum(-1, dtype=torch.int32), mask.sum(-1, dtype=torch.int32)
    indices = torch.nonzero(kept.flatten(), as_tuple=False).flatten()
    cumulative = torch.nn.functional.pad(torch.cumsum(counts, 0, dtype=torch.int32), (1, 0))
    return index_first_axis(hidden.flatten(0, 1), indices), indices, cumulative, int(counts.max().item()), used


def pad_input(hidden: torch.Tensor, indices: torch.Tensor, batch: int, seqlen: int) -> torch.Tensor:
    """The inverse of ``unpad_input``."""
    output = torch.zeros(batch * seqlen, *hidden.shape[1:], device=hidden.device, dtype=hidden.dtype)
    output[indices] = hidden
    return output.unflatten(0, (batch, seqlen))


def index_first_axis(values: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Rows by index."""
    return values[indices]


def apply_rotary_emb(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *_: Any, **options: Any) -> torch.Tensor:
    """Positions turned into an output of its own, unless in place; the kernel keeps no copy of its input."""
    rotated: torch.Tensor = _Rotary.apply(x, cos, sin, options.get("inplace", False))
    return rotated


class _Rotary(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(context: Any, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, inplace: bool) -> torch.Tensor:
        context.save_for_backward(cos, sin)
        return x if inplace else torch.empty_like(x)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        del context
        return torch.empty_like(gradient), None, None, None


def _forward(  # noqa: PLR0917 - the two public functions differ in ``lengths`` alone
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lengths: tuple[torch.Tensor | None, torch.Tensor | None, int, int],
    dropout: float,
    causal: bool,
    scale: float | None,
    window: tuple[int, int],
    slopes: torch.Tensor | None,
) -> torch.Tensor:
    width = q.shape[-1]
    pad = -width % 8
    if pad:
        q, k, v = (torch.nn.functional.pad(t, (0, pad)) for t in (q, k, v))
    left, right = (None if w < 0 else w for w in window)
    out: torch.Tensor = aten._flash_attention_forward(
        q, k, v, *lengths, dropout, causal, False,
        scale=1 / math.sqrt(width) if scale is None else scale,
        window_size_left=left, window_size_right=right, alibi_slopes=slopes,
    )[0]  # fmt: skip
    return out[..., :width] if pad else out


def _module(name: str, functions: Iterable[Callable[..., Any]]) -> Any:
    made = ModuleType(name)
    made.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    made.__path__ = []
    made.__dict__.update({f.__name__: f for f in functions}, __getattr__=refusing(name))
    sys.modules[name] = made
    return made


class _Metadata(importlib.metadata.DistributionFinder):
    """Answers ``importlib.metadata.version("flash_attn")``, by which libraries look for the package."""

    def find_distributions(self, context: Any = importlib.metadata.DistributionFinder.Context()) -> Iterable[Any]:  # noqa: B008
        """See importlib.metadata."""
        return [_Distribution()] if context.name in {None, "flash_attn", "flash-attn"} else []


class _Distribution(importlib.metadata.Distribution):
    def read_text(self, filename: str) -> str | None:
        """See importlib.metadata."""
        files = {"METADATA": f"Metadata-Version: 2.1\nName: flash_attn\nVersion: {VERSION}\n", "top_level.txt": "flash_attn\n"}
        return files.get(filename)

    def locate_file(self, path: Any) -> Any:
        """See importlib.metadata."""
        return path
