"""Kernels by class and by name, memory copies, launches and the host's named ranges: what a table of a trace is made of."""

import re
from typing import Any

import msgspec

from vramcast.profiling.breakdown import Work
from vramcast.profiling.events import KERNEL, SYNC, Trace
from vramcast.profiling.intervals import distinct, holds, union
from vramcast.profiling.kernels import COMMUNICATION, kernel_class, on_matrix_units, short_name

_SHORT_NS = 10_000  # a kernel that ends before the host could launch the next one (6 to 10 us in eager PyTorch)
_STEP = re.compile(r"ProfilerStep")
_MOST_RANGES = 60


class ClassRow(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of one class; ``share`` and ``matrix_share`` are of the time of all kernels and of this class."""

    name: str
    seconds: float
    share: float
    kernels: int
    matrix_share: float


class KernelRow(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one kernel."""

    name: str
    full_name: str
    kind: str
    matrix_units: bool
    calls: int
    seconds: float
    share: float
    mean_s: float
    longest_s: float


class CopyRow(msgspec.Struct, frozen=True, kw_only=True):
    """Copies of one direction; bytes 0 when the trace does not tell."""

    name: str
    calls: int
    bytes: int
    seconds: float
    bytes_per_s: float | None


class Launching(msgspec.Struct, frozen=True, kw_only=True):
    """How the host keeps the GPU fed.

    ``short_share``: kernels under 10 us among all; ``call_s``: mean length of a launching call; ``delay_s``: median time from
    launch to start; ``empty_queue_share``: of the span in which nothing waited to be started. ``graph_kernels`` were launched
    many at once (CUDA graphs).
    """

    kernels: int
    mean_kernel_s: float
    short_share: float
    call_s: float | None
    delay_s: float | None
    empty_queue_share: float | None
    graph_kernels: int


class RangeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A named range of the host: its time there, and the GPU work that was launched inside it."""

    name: str
    calls: int
    host_s: float
    gpu_s: float
    kernels: int

    @property
    def launch_bound(self) -> bool:
        """More host than GPU time, with kernels that are short: the GPU waits for launches."""
        return self.kernels >= 20 and self.host_s > 1.2 * self.gpu_s and self.gpu_s / self.kernels < 2 * _SHORT_NS / 1e9


class _ByName(msgspec.Struct):
    """Sums over the kernels by name index: ns, calls, longest."""

    ns: Any
    calls: Any
    longest: Any


def _by_name(trace: Trace, work: Work) -> _ByName:
    import numpy as np

    mine = work.chosen & (trace.kind == KERNEL)
    names, length = trace.name[mine], (trace.end - trace.start)[mine]
    size = len(trace.names)
    longest = np.zeros(size, dtype=np.int64)
    np.maximum.at(longest, names, length)
    ns = np.bincount(names, weights=length, minlength=size).astype(np.int64)
    return _ByName(ns=ns, calls=np.bincount(names, minlength=size), longest=longest)


def class_rows(trace: Trace, work: Work) -> tuple[ClassRow, ...]:
    """Kernels by class, longest first."""
    sums = _by_name(trace, work)
    total = max(1, int(sums.ns.sum()))
    rows: dict[str, list[int]] = {}
    for i in sums.calls.nonzero()[0].tolist():
        row = rows.setdefault(kernel_class(trace.names[i]), [0, 0, 0])
        row[0] += int(sums.ns[i])
        row[1] += int(sums.calls[i])
        row[2] += int(sums.ns[i]) if on_matrix_units(trace.names[i]) else 0
    found = [
        ClassRow(name=name, seconds=ns / 1e9, share=ns / total, kernels=calls, matrix_share=matrix / max(1, ns))
        for name, (ns, calls, matrix) in rows.items()
    ]
    return tuple(sorted(found, key=lambda row: -row.seconds))


def matrix_share(classes: tuple[ClassRow, ...]) -> float | None:
    """The share of computing kernels' time that is spent on matrix units, None without such kernels."""
    computing = [row for row in classes if row.name != COMMUNICATION]
    total = sum(row.seconds for row in computing)
    return sum(row.seconds * row.matrix_share for row in computing) / total if total else None


def kernel_rows(trace: Trace, work: Work, *, most: int) -> tuple[KernelRow, ...]:
    """The kernels that take most time, by name."""
    sums = _by_name(trace, work)
    total = max(1, int(sums.ns.sum()))
    order = sorted(sums.calls.nonzero()[0].tolist(), key=lambda i: -int(sums.ns[i]))
    return tuple(
        KernelRow(
            name=short_name(trace.names[i]),
            full_name=trace.names[i],
            kind=kernel_class(trace.names[i]),
            matrix_units=on_matrix_units(trace.names[i]),
            calls=int(sums.calls[i]),
            seconds=int(sums.ns[i]) / 1e9,
            share=int(sums.ns[i]) / total,
            mean_s=int(sums.ns[i]) / int(sums.calls[i]) / 1e9,
            longest_s=int(sums.longest[i]) / 1e9,
        )
        for i in order[:most]
    )


def copy_rows(trace: Trace, work: Work) -> tuple[CopyRow, ...]:
    """Copies and fills by kind, longest first."""
    mine = work.chosen & (trace.kind != KERNEL)
    rows: dict[str, list[int]] = {}
    columns = (trace.name[mine], (trace.end - trace.start)[mine], trace.bytes[mine])
    for name, ns, size in zip(*(c.tolist() for c in columns), strict=True):
        row = rows.setdefault(trace.names[name], [0, 0, 0])
        row[0] += 1
        row[1] += ns
        row[2] += size
    found = [
        CopyRow(name=name, calls=calls, bytes=size, seconds=ns / 1e9, bytes_per_s=size / ns * 1e9 if size and ns else None)
        for name, (calls, ns, size) in rows.items()
    ]
    return tuple(sorted(found, key=lambda row: -row.seconds))


def launching(trace: Trace, work: Work) -> Launching:
    """How launches and kernels follow each other."""
    import numpy as np

    kernels = work.chosen & (trace.kind == KERNEL)
    length = (trace.end - trace.start)[kernels]
    call = trace.launch[kernels]
    linked = call >= 0
    shared = np.bincount(call[linked]) if linked.any() else np.zeros(0, dtype=int)
    told = bool(linked.any())
    called = np.flatnonzero(shared)
    return Launching(
        kernels=int(kernels.sum()),
        mean_kernel_s=float(length.mean()) / 1e9 if length.size else 0.0,
        short_share=float((length < _SHORT_NS).mean()) if length.size else 0.0,
        call_s=float((trace.call_end - trace.call_start)[called].mean()) / 1e9 if told else None,
        delay_s=float(np.median((trace.start[kernels] - trace.call_start[call])[linked])) / 1e9 if told else None,
        empty_queue_share=_empty_queue(trace, work) if told and work.busy.start.size else None,
        graph_kernels=int(shared[shared > 1].sum()),
    )


def _empty_queue(trace: Trace, work: Work) -> float:
    """The share of the GPU's span in which no launched work waited for its start."""
    call = trace.launch
    linked = work.chosen & (call >= 0)
    begun = trace.call_start[call[linked]]
    queued = union(begun, trace.start[linked])
    first, last = int(work.busy.start[0]), int(work.busy.end[-1])
    inside = (queued.end.clip(first, last) - queued.start.clip(first, last)).sum()
    return 1 - float(inside) / max(1, last - first)


def range_rows(trace: Trace, work: Work) -> tuple[RangeRow, ...]:
    """The host's named ranges (record_function, NVTX), longest first; steps have a table of their own."""
    import numpy as np

    call = trace.launch
    mine = np.flatnonzero(work.chosen & (call >= 0) & (trace.kind != SYNC))
    launched = trace.call_start[call[mine]] if mine.size else np.zeros(0, dtype=np.int64)
    length = (trace.end - trace.start)[mine]
    found = []
    for name in distinct(trace.range_name).tolist():
        if _STEP.search(trace.names[name]):
            continue
        which = trace.range_name == name
        spans = union(trace.range_start[which], trace.range_end[which])
        inside = holds(spans, launched)
        found.append(
            RangeRow(
                name=trace.names[name],
                calls=int(which.sum()),
                host_s=spans.length / 1e9,
                gpu_s=float(length[inside].sum()) / 1e9,
                kernels=int(inside.sum()),
            )
        )
        if len(found) >= 10_000:
            break
    return tuple(sorted(found, key=lambda row: -row.host_s)[:_MOST_RANGES])
