"""The ``xformers.ops`` that training code asks for, on fake tensors: attention and SwiGLU with what their kernels keep.

Attention of half types without an added bias runs FlashAttention's kernels there, any other the memory-efficient ones of cutlass
(xformers 0.0.30, ops/fmha/dispatch.py); both are operators of torch.
"""

from types import ModuleType
from typing import Any

import torch

from vramcast.tracing.execution.stand_ins import flash_package
from vramcast.tracing.execution.stand_ins.imported import refusing

aten = torch.ops.aten
VERSION = "0.0.30"


class AttentionBias:
    """A mask that a kernel knows by its kind."""

    causal = False


class LowerTriangularMask(AttentionBias):
    """Every place sees itself and those before."""

    causal = True

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


class BlockDiagonalMask(AttentionBias):
    """Sequences of ``lengths`` packed into one."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    @classmethod
    def from_seqlens(cls, q_seqlen: list[int], kv_seqlen: Any = None, **_: Any) -> "BlockDiagonalMask":
        """A mask for sequences of these lengths."""
        del kv_seqlen
        return cls(list(q_seqlen))

    def make_causal(self) -> "BlockDiagonalMask":
        """The same, each place blind to those after it."""
        return BlockDiagonalCausalMask(self.lengths)


class BlockDiagonalCausalMask(BlockDiagonalMask):
    """Packed sequences in which every place sees itself and those before."""

    causal = True


def memory_efficient_attention(  # noqa: PLR0917 - the package's own signature
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: Any = None,
    p: float = 0.0,
    scale: float | None = None,
    **_: Any,
) -> torch.Tensor:
    """Attention of (batch, length, heads, width), of (batch, length, width), or in groups of heads."""
    if query.dim() == 3:
        q, k, v = (t.unsqueeze(2) for t in (query, key, value))
        return memory_efficient_attention(q, k, v, _of_one_head(attn_bias), p, scale).squeeze(2)
    if query.dim() == 5:
        q, k, v = (t.flatten(2, 3) for t in (query, key, value))
        return memory_efficient_attention(q, k, v, attn_bias, p, scale).unflatten(2, query.shape[2:4])
    causal = getattr(attn_bias, "causal", False)
    plain = attn_bias is None or isinstance(attn_bias, AttentionBias)
    if plain and query.dtype in (torch.float16, torch.bfloat16):
        return flash_package.flash_attn_func(query, key, value, p, scale, causal)
    bias = None if plain else attn_bias
    lengths = (None, None, query.shape[1], key.shape[1])
    out: torch.Tensor = aten._efficient_attention_forward(query, key, value, bias, *lengths, p, int(causal), True, scale=scale)[0]
    return out


def _of_one_head(bias: Any) -> Any:
    return bias.unsqueeze(1) if isinstance(bias, torch.Tensor) and bias.dim() == 3 else bias


def unbind(packed: torch.Tensor, dim: int) -> tuple[torch.Tensor, ...]:
    """Views of one tensor."""
    parts: tuple[torch.Tensor, ...] = packed.unbind(dim)
    return parts


class _Gate(torch.autograd.Function):  # type: ignore[misc]
    """``silu(x1) * x2``, of which the fused kernel keeps the two halves alone (ops/swiglu_op.py, _SwiGLUFusedFunc)."""

    @staticmethod
    def forward(context: Any, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(first, second)
        return torch.empty_like(first)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first, second = context.saved_tensors
        return torch.empty_like(first), torch.empty_like(second)


class SwiGLU(torch.nn.Module):  # type: ignore[misc]
    """A gated feed-forward layer, its first two matrices in one."""

    def __init__(
        self, in_features: int, hidden_features: int, out_features: int | None = None, bias: bool = True, **_: Any
    ) -> None:
        super().__init__()
        self.w12 = torch.nn.Linear(in_features, 2 * hidden_features, bias=bias)
        self.w3 = torch.nn.Linear(hidden_features, out_features or in_features, bias=bias)
        self.in_features, self.hidden_features, self.out_features = in_features, hidden_features, out_features or in_features

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The layer."""
        first, second = self.w12(hidden).chunk(2, -1)
        out: torch.Tensor = self.w3(_Gate.apply(first, second))
        return out


_MASKS = (AttentionBias, LowerTriangularMask, BlockDiagonalMask, BlockDiagonalCausalMask)
_HELD: dict[str, tuple[Any, ...]] = {
    "xformers": (),
    "xformers.ops": (memory_efficient_attention, unbind, SwiGLU, *_MASKS),
    "xformers.ops.fmha": (memory_efficient_attention, *_MASKS),
    "xformers.ops.fmha.attn_bias": _MASKS,
}


def make(name: str) -> ModuleType:
    """The module of the package that has this name. Raises ModuleNotFoundError for one that is not known."""
    if name not in _HELD:
        raise ModuleNotFoundError(f"No module named {name!r}: the tracer knows {', '.join(_HELD)}", name=name)
    module = ModuleType(name)
    module.__path__ = []
    module.__dict__.update({part.__name__: part for part in _HELD[name]}, __version__=VERSION, __getattr__=refusing(name))
    return module
