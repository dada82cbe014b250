"""Kernels that the ``kernels`` package would fetch compiled from the hub, and the ``flash_attn_interface`` of FlashAttention 3.

FlashAttention's functions are known (``flash_package``): the third generation keeps what the second does, less the state of a
random generator (24 bytes; hopper/flash_attn_interface.py, FlashAttnFunc). Any other kernel is refused by name.
"""

import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Any

import torch

from vramcast.tracing.execution.stand_ins import flash_package
from vramcast.tracing.execution.stand_ins.imported import when_imported

_PLAIN = ("softmax_scale", "causal", "window_size", "deterministic")


def install() -> None:
    """Answer for FlashAttention 3 by both of its doors."""
    when_imported("kernels", _patch)
    if "flash_attn_interface" not in sys.modules and importlib.util.find_spec("flash_attn_interface") is None:
        sys.modules["flash_attn_interface"] = _interface()


def flash_attn_func(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *given: Any, **options: Any) -> Any:
    """Attention of (batch, length, heads, width) by FlashAttention 3."""
    plain = _plain(given, options)
    return _with_sums(flash_package.flash_attn_func(q, k, v, **plain), q, options)


def flash_attn_varlen_func(  # noqa: PLR0917 - the package's own signature
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    seqused_q: Any = None,
    seqused_k: Any = None,
    *given: Any,
    **options: Any,
) -> Any:
    """Attention of packed (tokens, heads, width) by FlashAttention 3."""
    del seqused_q, seqused_k
    lengths = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    return _with_sums(flash_package.flash_attn_varlen_func(q, k, v, *lengths, **_plain(given, options)), q, options)


def _plain(given: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """What both generations take, by name; the third puts scale and causality first."""
    named = dict(zip(("softmax_scale", "causal"), given, strict=False)) | options
    return {name: named[name] for name in _PLAIN if name in named}


def _with_sums(out: torch.Tensor, q: torch.Tensor, options: dict[str, Any]) -> Any:
    if not (options.get("return_attn_probs") or options.get("return_softmax_lse")):
        return out
    heads_first = (*q.shape[:-3], q.shape[-2], q.shape[-3])
    return out, torch.empty(heads_first, dtype=torch.float32, device=q.device)


def _interface() -> Any:
    made = ModuleType("flash_attn_interface")
    made.__spec__ = importlib.machinery.ModuleSpec("flash_attn_interface", None)
    made.__dict__.update({f.__name__: f for f in (flash_attn_func, flash_attn_varlen_func)})
    return made


def _patch(module: Any) -> None:
    def get_kernel(repo_id: str, *_: Any, **__: Any) -> Any:
        if not _is_flash(repo_id):
            raise ImportError(f"the hub kernel {repo_id} is compiled for a GPU and is not traced, only FlashAttention's are")
        made = _interface()
        made.flash_attn_interface = made
        return made

    module.get_kernel = get_kernel
    module.has_kernel = lambda repo_id, *_, **__: _is_flash(repo_id)


def _is_flash(repo_id: str) -> bool:
    name = repo_id.rpartition("/")[2].lower()
    return "flash-att" in name or "flash_att" in name
