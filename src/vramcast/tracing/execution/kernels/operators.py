"""What the tracer must know of each operator, found once per operator: whether it allocates, aliases, asks for values."""

from enum import IntEnum
from math import prod
from typing import Any

import torch

from vramcast.tracing.execution.kernels import ctc

aten = torch.ops.aten
_LEAST_WEIGHT_ELEMENTS = 1 << 16  # embeddings and matrices; indices and masks are smaller


class Kind(IntEnum):
    """How the tracer treats an operator."""

    ALLOCATES = 0
    VIEW = 1
    IN_PLACE = 2
    VALUE = 3
    ATTENTION = 4
    DATA_SHAPED = 5
    TOP_K = 6
    COMPOSITE = 7
    SAMPLE = 8
    EXCHANGE = 9
    CTC = 10


_NAMED = {
    Kind.VALUE: (aten._local_scalar_dense.default, aten.item.default, aten.is_nonzero.default, aten.equal.default),
    Kind.ATTENTION: (aten.scaled_dot_product_attention.default,),
    Kind.DATA_SHAPED: (
        aten.nonzero.default, aten.masked_select.default, aten._unique2.default, aten.repeat_interleave.Tensor,
        aten.bincount.default, aten.unique_consecutive.default,
    ),
    Kind.TOP_K: (aten.topk.default,),
    Kind.CTC: tuple(ctc.OPERATORS),
    Kind.EXCHANGE: (torch.ops.c10d.alltoall_base_.default,) if hasattr(torch.ops.c10d, "alltoall_base_") else (),
    Kind.SAMPLE: (aten.argmax.default, aten.multinomial.default),
}  # fmt: skip
VALUES = frozenset(_NAMED[Kind.VALUE])
# What programs ask of a loss or a norm before they go on: answered for the value 1.0, so that "loss < 100" and "isfinite" hold.
JUDGEMENTS = frozenset({
    *(getattr(getattr(aten, name), kind) for name in ("lt", "le", "gt", "ge", "eq", "ne") for kind in ("Scalar", "Tensor")),
    aten.isnan.default, aten.isinf.default, aten.all.default, aten.any.default, aten.logical_not.default,
    aten.logical_and.default, aten.logical_or.default, aten.bitwise_not.default,
})  # fmt: skip
_BY_NAME = {op: kind for kind, ops in _NAMED.items() for op in ops}
_VIEWS = (aten._unsafe_view.default, aten.view.default)

INDEXED = frozenset({
    aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default, aten._unsafe_index.Tensor,
    aten._unsafe_index_put.default,
})  # fmt: skip
MATRIX_PRODUCTS = frozenset({aten.mm.default, aten.bmm.default, aten.addmm.default, aten.baddbmm.default})
ACCUMULATE = aten.add.Tensor
SCATTERS = {
    aten.scatter.src: aten.scatter_.src,
    aten.scatter.value: aten.scatter_.value,
    aten.scatter_add.default: aten.scatter_add_.default,
    aten.index_put.default: aten.index_put_.default,
    aten.index_add.default: aten.index_add_.default,
}
CPU_FACTORIES = frozenset({
    aten.empty.memory_format, aten.zeros.default, aten.ones.default, aten.full.default, aten.randn.default, aten.rand.default,
})  # fmt: skip
ZEROS = frozenset({"aten.new_zeros.default", "aten.zeros.default", "aten.zeros_like.default"})


def kind_of(func: Any) -> Kind:
    """The kind of an operator overload."""
    if func in _BY_NAME:
        return _BY_NAME[func]
    returns = func._schema.returns
    kind = Kind.ALLOCATES
    if func in _VIEWS or getattr(func, "is_view", False):
        kind = Kind.VIEW
    elif returns and all(r.alias_info is not None for r in returns):
        kind = Kind.IN_PLACE
    return Kind.COMPOSITE if _decomposes_on_cuda(func) else kind


def _decomposes_on_cuda(func: Any) -> bool:
    """Composite operators without a CUDA kernel reach a mode whole under inference_mode; a CUDA build takes them apart."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return bool(has(func.name(), "CompositeImplicitAutograd") and not has(func.name(), "CUDA"))


def onto_cpu(options: Any) -> bool:
    """Whether a call names the CPU as its device."""
    named = options.get("device")
    return named is not None and torch.device(named).type == "cpu"


def is_weight_sized(args: Any, kwargs: Any) -> bool:
    """A floating-point tensor of the size of a weight: only those become fake on the CPU, data keeps its values."""
    kind = kwargs.get("dtype") or torch.get_default_dtype()
    sizes = args[0] if args and isinstance(args[0], list | tuple | torch.Size) else ()
    return kind.is_floating_point and all(isinstance(n, int) for n in sizes) and prod(sizes) >= _LEAST_WEIGHT_ELEMENTS


def least_squares(left: torch.Tensor, right: torch.Tensor, *_: Any) -> tuple[torch.Tensor, ...]:
    """Results of ``linalg_lstsq`` with the driver of GPUs (gels), which gives no rank and no singular values."""
    *batch, rows, columns = left.shape
    wide = right if right.dim() == left.dim() else right.unsqueeze(-1)
    solution = left.new_empty((*batch, columns, wide.shape[-1]))
    residuals = left.new_empty((*batch, wide.shape[-1]) if rows > columns else (0,))
    solution = solution if wide is right else solution.squeeze(-1)
    return solution, residuals, left.new_empty((0,), dtype=torch.int64), left.new_empty((0,))
