"""Matmuls, attentions and collectives of a trace: their work, their time on the GPU, and the rates they reached.

A matmul's or an attention's shapes come from the host operator (record_shapes=True); its kernels are those whose launching call
lies inside the operator on the same thread. A collective's sizes stand on its own kernel (NCCL 2.17 and PyTorch 2.2 on).
FLOPs: 2·M·N·K of a matmul (TraceLens adds M·N for a bias); 4·B·H·Sq·Skv·d of an attention, half of it when causal, and 2.5 times
that in its backward pass, which computes the scores again.
"""

import math
import re
from typing import Any

import msgspec

from vramcast.profiling.events import KERNEL, Collective, Signature, Trace
from vramcast.profiling.intervals import distinct
from vramcast.profiling.kernels import on_matrix_units, short_name

_DTYPES = {
    "c10::BFloat16": ("bf16", 2), "c10::Half": ("fp16", 2), "float": ("fp32", 4), "double": ("fp64", 8),
    "c10::Float8_e4m3fn": ("fp8", 1), "c10::Float8_e4m3fnuz": ("fp8", 1), "c10::Float8_e5m2": ("fp8", 1),
    "c10::Float8_e5m2fnuz": ("fp8", 1), "c10::Float4_e2m1fn_x2": ("fp4", 1), "signed char": ("int8", 1),
}  # fmt: skip
# Bytes of an element by the name that PyTorch's NCCL metadata gives its type.
_WIRE_BYTES = {
    "Float": 4, "Double": 8, "Half": 2, "BFloat16": 2, "Int": 4, "Long": 8, "Char": 1, "Byte": 1, "Bool": 1, "Short": 2,
    "Float8_e4m3fn": 1, "Float8_e5m2": 1, "Float8_e4m3fnuz": 1, "Float8_e5m2fnuz": 1,
}  # fmt: skip
_FIRST_MATRIX = {"aten::addmm": 1, "aten::baddbmm": 1}
_MATMULS = re.compile(r"aten::(?:mm|addmm|bmm|baddbmm|_scaled_mm|_int_mm|_grouped_mm|_scaled_grouped_mm)$")
_HEADS_FIRST = re.compile(r"cudnn_attention")
# Where is_causal stands among an operator's inputs (ATen's and flash-attn's signatures); 1 of the efficient kernel's mask type.
_CAUSAL_AT = (
    (re.compile(r"_flash_attention_forward"), 8),
    (re.compile(r"_flash_attention_backward"), 11),
    (re.compile(r"_efficient_attention_forward"), 9),
    (re.compile(r"_efficient_attention_backward"), 15),
    (re.compile(r"cudnn_attention$"), 6),
    (re.compile(r"flash_attn::_flash_attn_forward"), 5),
)


class ShapeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One matmul or attention shape: calls, seconds of its kernels, FLOPs and bytes of one call.

    ``shape``: (batch, m, n, k) of a matmul, (batch, heads, queries, keys, head size) of an attention. ``peak_share``: of the
    card's dense rate for the type; ``attainable_s``: what the card's law gives one call, None where there is none.
    """

    operator: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
    matrix_units: bool
    calls: int
    seconds: float
    flops: float
    bytes: float
    kernel: str
    causal: bool | None = None
    kv_heads: int = 0
    peak_share: float | None = None
    attainable_s: float | None = None

    @property
    def flops_per_s(self) -> float:
        """The rate over all calls."""
        return self.flops * self.calls / self.seconds if self.seconds else 0.0


class CollectiveRow(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one collective with one size; ``bytes`` is the whole message as nccl-tests count it.

    ``bus_bytes_per_s`` is of the fastest call, because the time of a slower one holds its wait for other ranks too.
    """

    name: str
    group: str
    ranks: int
    dtype: str
    bytes: int
    calls: int
    seconds: float
    fastest_s: float
    bus_bytes_per_s: float | None
    attainable_s: float | None = None


def shaped_work(trace: Trace, chosen: Any) -> tuple[ShapeRow, ...]:
    """Matmuls and attentions by shape, longest first; calls whose kernels are not in the trace are left out."""
    if not trace.signatures:
        return ()
    rows: dict[tuple[Any, ...], list[Any]] = {}
    for signature, kernel, calls, ns in _kernel_times(trace, chosen):
        call = trace.signatures[signature]
        described = _described(call)
        if described is None:
            continue
        key = (call.name, *described[:4], on_matrix_units(trace.names[kernel]))
        row = rows.setdefault(key, [0, 0, described, trace.names[kernel]])
        row[0] += calls
        row[1] += ns
    found = (_shaped(key, *row) for key, row in rows.items())
    return tuple(sorted(found, key=lambda s: -s.seconds))


def _shaped(key: tuple[Any, ...], calls: int, ns: int, described: tuple[Any, ...], kernel: str) -> ShapeRow:
    kind, shape, dtype, causal, flops, moved, kv_heads = described
    if dtype == "fp32" and key[-1]:
        dtype = "tf32"
    return ShapeRow(
        operator=key[0],
        kind=kind,
        shape=shape,
        dtype=dtype,
        matrix_units=key[-1],
        calls=calls,
        seconds=ns / 1e9,
        flops=flops,
        bytes=moved,
        kernel=short_name(kernel),
        causal=causal,
        kv_heads=kv_heads,
    )


def _kernel_times(trace: Trace, chosen: Any) -> list[tuple[int, int, int, int]]:
    """By signature and longest kernel: how many calls launched kernels, and the ns of all of those."""
    import numpy as np

    owner = owners(trace)
    work = np.flatnonzero((owner >= 0) & chosen & (trace.kind == KERNEL) & ~trace.talks)
    length = (trace.end - trace.start)[work]
    ns = np.bincount(owner[work], weights=length, minlength=len(trace.op_start)).astype(np.int64)
    longest = np.zeros(len(trace.op_start), dtype=np.int64)
    order = np.argsort(length, kind="stable")
    longest[owner[work][order]] = trace.name[work][order]
    called = np.flatnonzero(ns)
    pairs = trace.op_signature[called].astype(np.int64) * len(trace.names) + longest[called]
    keys = distinct(pairs)
    where = np.searchsorted(keys, pairs)
    calls, sums = np.bincount(where), np.bincount(where, weights=ns[called])
    return [
        (int(key) // len(trace.names), int(key) % len(trace.names), int(calls[i]), int(sums[i])) for i, key in enumerate(keys)
    ]


def owners(trace: Trace) -> Any:
    """By GPU event: the index of the operator that launched it, -1 when none with shapes did."""
    import numpy as np

    call = trace.launch
    found = np.full(len(call), -1)
    if not len(trace.call_start):
        return found
    begun, thread = trace.call_start[call], trace.call_thread[call]
    starts, ends, threads = trace.op_start, trace.op_end, trace.op_thread
    for one in distinct(threads):
        mine = np.flatnonzero(threads == one)
        mine = mine[np.argsort(starts[mine], kind="stable")]
        launched = np.flatnonzero((thread == one) & (call >= 0))
        at = np.searchsorted(starts[mine], begun[launched], side="right") - 1
        inside = (at >= 0) & (begun[launched] <= ends[mine][np.maximum(at, 0)])
        found[launched[inside]] = mine[at[inside]]
    return found


_Described = tuple[str, tuple[int, ...], str, bool | None, float, float, int]
"""Kind, shape, type, causal, FLOPs and bytes of one call, KV heads of an attention."""


def _described(op: Signature) -> _Described | None:
    """What one call computes; None when the shapes do not tell."""
    try:
        return _matmul(op) if _MATMULS.match(op.name) else _attention(op)
    except (IndexError, ValueError):
        return None


def _matmul(op: Signature) -> _Described | None:
    at = _FIRST_MATRIX.get(op.name, 0)
    left, right = op.shapes[at], op.shapes[at + 1]
    dtype, width = _dtype(op, at)
    *batches, m, k = left
    n = right[-1]
    batch = math.prod(batches) if len(left) == len(right) else 1
    if len(left) < 2 or len(right) < 2 or k != right[-2] or min(m, n, k, batch) < 1:
        return None
    weights = math.prod(right)
    moved = width * (batch * m * k + weights) + 2.0 * batch * m * n
    return "GEMM", (batch, m, n, k), dtype, None, 2.0 * batch * m * n * k, moved, 0


def _attention(op: Signature) -> _Described | None:
    at = 1 if "backward" in op.name.lower() else 0
    query, key = op.shapes[at], op.shapes[at + 1]
    if len(query) != 4 or len(key) != 4:
        return None
    dtype, width = _dtype(op, at)
    (batch, queries, heads, size), (keys, key_heads) = query, key[1:3]
    if _HEADS_FIRST.search(op.name):
        (batch, heads, queries, size), (key_heads, keys) = query, key[1:3]
    causal = _causal(op)
    flops = 4.0 * batch * heads * queries * keys * size * (0.5 if causal and queries == keys else 1)
    moved = width * batch * size * 2.0 * (heads * queries + key_heads * keys)
    back = 2.5 if at else 1.0
    shape = (batch, heads, queries, keys, size)
    return "attention", shape, dtype, causal, flops * back, moved * (2 if at else 1), key_heads


def _causal(op: Signature) -> bool | None:
    """Whether the mask is causal; None when the trace does not say (no concrete inputs)."""
    at = next((index for pattern, index in _CAUSAL_AT if pattern.search(op.name)), None)
    told = op.values[at] if at is not None and at < len(op.values) else ""
    return None if not told else told in ("True", "1", "2")


def _dtype(op: Signature, at: int) -> tuple[str, int]:
    return _DTYPES.get(op.dtypes[at] if at < len(op.dtypes) else "", ("unknown", 2))


def collective_rows(trace: Trace, chosen: Any) -> tuple[CollectiveRow, ...]:
    """Collectives by name, group and size, longest first; kernels that say nothing of themselves go by their own name."""
    import numpy as np

    rows: dict[Collective, list[int]] = {}
    for i in np.flatnonzero(chosen & trace.talks).tolist():
        told = trace.collectives.get(i) or Collective(_plain(trace.names[trace.name[i]]), "", 0, 0, 0, "")
        rows.setdefault(told, []).append(i)
    found = (_collective_row(trace, told, members) for told, members in rows.items())
    return tuple(sorted(found, key=lambda row: -row.seconds))


def _collective_row(trace: Trace, told: Collective, members: list[int]) -> CollectiveRow:
    length = (trace.end - trace.start)[members]
    size = message_bytes(told)
    fastest = int(length.min()) / 1e9
    rate = size * _bus_factor(told) / fastest if size and fastest and told.group_size > 1 else None
    return CollectiveRow(
        name=told.name,
        group=told.group,
        ranks=told.group_size,
        dtype=told.dtype,
        bytes=size,
        calls=len(members),
        seconds=int(length.sum()) / 1e9,
        fastest_s=fastest,
        bus_bytes_per_s=rate,
    )


def message_bytes(told: Collective) -> int:
    """The size that nccl-tests put in their first column: the larger of what a rank gives and gets."""
    return max(told.in_elements, told.out_elements) * _WIRE_BYTES.get(told.dtype, 0)


def _bus_factor(told: Collective) -> float:
    """Bus bandwidth over algorithm bandwidth (nccl-tests, PERFORMANCE.md)."""
    n, name = told.group_size, told.name.lower()
    if "allreduce" in name or "all_reduce" in name:
        return 2 * (n - 1) / n
    return (n - 1) / n if re.search(r"gather|scatter|to_?all", name) else 1.0


def _plain(kernel: str) -> str:
    """``ncclDevKernel_AllReduce_Sum_bf16_RING_LL(...)`` -> ``AllReduce``, other names shortened."""
    match = re.match(r"(?:nccl|rccl)\w*?Kernel_([A-Za-z]+)", kernel)
    return match[1] if match else short_name(kernel)
