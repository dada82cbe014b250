"""The same quantities under the definitions of two well-known tools, for those who hold their figures.

HolisticTraceAnalysis (HTA 0.5): with more than one ProfilerStep it keeps the GPU work whose launching call began before the last
step (or, when asked, before its end); times with decimals are narrowed to whole microseconds (start up, end down); a kernel
communicates when its name begins with "nccl" and holds "Kernel". Idle time by stream: ``host_wait`` when the launch
came after the end of the work before, ``kernel_wait`` when the gap is shorter than a threshold, else ``other``.

HTA also counts a host operator that names a stream as GPU work (Triton's, in some traces); here it is not.

TraceLens: only work whose launching call is in the trace, and memset counts as compute.
"""

import re
from typing import Any

import msgspec

from vramcast.profiling.events import KERNEL, MEMCPY, MEMSET, SYNC, Trace
from vramcast.profiling.intervals import Spans, distinct, joined, overlap, union

_STEP = re.compile(r"ProfilerStep")
_HTA_TALKS = re.compile(r"nccl.*Kernel")
_HTA_MEMORY = re.compile(r"Memcpy|Memset|dma")
_HTA_NOT_COMPUTE = re.compile(r".*Memcpy|Memset|.*Sync")
_COUNTED_CALLS = frozenset({"cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaMemsetAsync"})
_QUEUED_CALLS = _COUNTED_CALLS | {"cuLaunchKernel"}
_CONSECUTIVE_US = 30  # HTA's default threshold of kernel_wait, in the units of the trace


class HtaStream(msgspec.Struct, frozen=True):
    """Idle time of one stream by HTA's categories, us."""

    stream: str
    host_wait: int
    kernel_wait: int
    other: int


class HtaLaunches(msgspec.Struct, frozen=True):
    """HTA's launch statistics, sums: calls, their time, that of the work they launched, and the delay between; us."""

    calls: int
    cpu_us: int
    gpu_us: int
    delay_us: int


class HtaQueue(msgspec.Struct, frozen=True):
    """HTA's queue length of one stream: its changes, and mean and maximum over them.

    Where a call and a kernel have the same microsecond HTA's order of the two is by chance; here the call is first, so that the
    mean may lie 1 % above HTA's.
    """

    stream: str
    changes: int
    mean: float
    longest: int


class Hta(msgspec.Struct, frozen=True, kw_only=True):
    """HTA's temporal breakdown, overlap, kernel types, idle times, launches and queues; microseconds, percent."""

    idle_us: int
    compute_us: int
    non_compute_us: int
    kernel_time_us: int
    overlap_percent: float | None
    kernel_types_us: dict[str, int]
    streams: tuple[HtaStream, ...]
    launches: HtaLaunches
    queues: tuple[HtaQueue, ...]
    last_step_included: bool


class TraceLens(msgspec.Struct, frozen=True, kw_only=True):
    """TraceLens' GPU timeline, ms."""

    computation_time: float
    exposed_comm_time: float
    exposed_memcpy_time: float
    busy_time: float
    idle_time: float
    total_time: float
    total_comm_time: float
    total_memcpy_time: float


def as_hta(trace: Trace, *, include_last_step: bool = False) -> Hta | None:
    """HTA's figures; None where it has none (no work on a GPU)."""
    chosen = _kept_by_hta(trace, include_last_step=include_last_step)
    if not chosen.any():
        return None
    start, end = _whole_microseconds(trace, chosen)
    talks, memory, computes = _hta_types(trace)
    spans = {
        "COMPUTATION": _union(start, end, computes[chosen]),
        "COMMUNICATION": _union(start, end, talks[chosen]),
        "MEMORY": _union(start, end, memory[chosen]),
    }
    busy = union(start, end)
    if not busy.start.size:
        return None
    kernel_time = int(busy.end[-1] - busy.start[0])
    idle = kernel_time - busy.length
    compute, comm = spans["COMPUTATION"], spans["COMMUNICATION"]
    return Hta(
        idle_us=idle,
        compute_us=compute.length,
        non_compute_us=kernel_time - compute.length - idle,
        kernel_time_us=kernel_time,
        overlap_percent=round(100 * overlap(comm, compute) / comm.length, 2) if comm.length else None,
        kernel_types_us=_exclusive(spans),
        streams=_idle_by_stream(trace, chosen, start, end),
        launches=_launches(trace, chosen),
        queues=_queues(trace, chosen),
        last_step_included=include_last_step,
    )


def _union(start: Any, end: Any, chosen: Any) -> Spans:
    return union(start[chosen], end[chosen])


def _hta_types(trace: Trace) -> tuple[Any, Any, Any]:
    """By GPU event: communicates, moves memory, computes, as HTA tells them from names."""
    import numpy as np

    talks = np.array([bool(_HTA_TALKS.match(n)) for n in trace.names], dtype=bool)[trace.name]
    memory = np.array([bool(_HTA_MEMORY.match(n)) for n in trace.names], dtype=bool)[trace.name]
    other = np.array([bool(_HTA_NOT_COMPUTE.match(n)) for n in trace.names], dtype=bool)[trace.name]
    return talks, memory & ~talks, ~talks & ~memory & ~other


def _kept_by_hta(trace: Trace, *, include_last_step: bool) -> Any:
    import numpy as np

    steps = np.array([bool(_STEP.search(n)) for n in trace.names], dtype=bool)
    which = steps[trace.range_name] if len(trace.names) else np.zeros(0, dtype=bool)
    if len(set(trace.range_name[which].tolist())) < 2:
        return np.ones(len(trace.start), dtype=bool)
    call = trace.launch
    begun = trace.call_start[np.maximum(call, 0)] if len(trace.call_start) else np.zeros(len(call))
    if include_last_step:
        return (call >= 0) & (begun <= trace.range_end[which].max())
    return (call >= 0) & (begun < trace.range_start[which].max())


def _whole_microseconds(trace: Trace, chosen: Any) -> tuple[Any, Any]:
    """Start up and end down to whole microseconds; times that are whole already stay."""
    start = -(-trace.start[chosen] // 1000)
    return start, trace.end[chosen] // 1000


def _exclusive(spans: dict[str, Spans]) -> dict[str, int]:
    """Time by which types ran together, HTA's kernel type breakdown ("A overlapping B")."""
    names = list(spans)
    both = {(a, b): _meet(spans[a], spans[b]) for a in names for b in names if names.index(a) < names.index(b)}
    every = overlap(both[names[0], names[1]], spans[names[2]])
    found = {" overlapping ".join(names): every}
    for pair, met in both.items():
        found[" overlapping ".join(pair)] = met.length - every
    for name in names:
        found[name] = spans[name].length - sum(us for key, us in found.items() if name in key.split(" overlapping "))
    return {name: us for name, us in found.items() if us}


def _meet(first: Spans, second: Spans) -> Spans:
    """The instants in both sets: what each leaves uncovered is taken away."""
    import numpy as np

    edges = distinct(np.concatenate([*first, *second]))
    start, end = edges[:-1], edges[1:]
    inside = np.ones(start.size, dtype=bool)
    for spans in (first, second):
        at = np.searchsorted(spans.start, start, side="right") - 1
        inside &= (at >= 0) & (start < spans.end[np.maximum(at, 0)]) if spans.start.size else False
    return union(start[inside], end[inside])


def _idle_by_stream(trace: Trace, chosen: Any, start: Any, end: Any) -> tuple[HtaStream, ...]:
    import numpy as np

    call = trace.launch[chosen]
    launched = np.where(call >= 0, -(-trace.call_start[np.maximum(call, 0)] // 1000) if len(trace.call_start) else 0, -1)
    streams, work = trace.stream[chosen], trace.kind[chosen] != SYNC
    found = []
    for stream in distinct(streams[work]):
        mine = np.flatnonzero((streams == stream) & work)
        mine = mine[np.argsort(start[mine], kind="stable")]
        gap = start[mine][1:] - end[mine][:-1]
        host = launched[mine][1:] > end[mine][:-1]
        short = ~host & (gap < _CONSECUTIVE_US)
        sums = [int(gap[which].sum()) for which in (host, short, ~host & ~short)]
        found.append(HtaStream(trace.streams[stream], *sums))
    return tuple(found)


def _launched(trace: Trace, chosen: Any, names: frozenset[str]) -> tuple[Any, Any]:
    """Indices of the work that calls of these names launched, and of those calls."""
    import numpy as np

    known = np.array([name in names for name in trace.names], dtype=bool)
    mine = np.flatnonzero(chosen & (trace.launch >= 0) & (trace.kind != SYNC))
    mine = mine[known[trace.call_name[trace.launch[mine]]]] if mine.size else mine
    return mine, trace.launch[mine]


def _launches(trace: Trace, chosen: Any) -> HtaLaunches:
    import numpy as np

    work, call = _launched(trace, chosen, _COUNTED_CALLS)
    cpu = trace.call_end[call] // 1000 + (-trace.call_start[call] // 1000)
    gpu = trace.end[work] // 1000 + (-trace.start[work] // 1000)
    delay = np.maximum(0, (-(-trace.start[work] // 1000)) + (-trace.call_start[call] // 1000) - cpu)
    return HtaLaunches(calls=len(work), cpu_us=int(cpu.sum()), gpu_us=int(gpu.sum()), delay_us=int(delay.sum()))


def _queues(trace: Trace, chosen: Any) -> tuple[HtaQueue, ...]:
    """Up by one at each launch, down by one at each start."""
    import numpy as np

    work, call = _launched(trace, chosen, _QUEUED_CALLS)
    found = []
    for stream in distinct(trace.stream[work]).tolist():
        mine = trace.stream[work] == stream
        at = -(-np.concatenate([trace.call_start[call[mine]], trace.start[work[mine]]]) // 1000)
        step = np.repeat([1, -1], int(mine.sum()))
        length = np.cumsum(step[np.lexsort((-step, at))])
        found.append(HtaQueue(trace.streams[stream], length.size, float(length.mean()), int(length.max())))
    return tuple(found)


def as_tracelens(trace: Trace) -> TraceLens | None:
    """TraceLens' GPU timeline; None where no launching call is in the trace."""
    linked = (trace.launch >= 0) & (trace.kind != SYNC)
    if not linked.any():
        return None
    talks = trace.talks
    start, end, kind = trace.start, trace.end, trace.kind
    compute = _union(start, end, linked & ~talks & ((kind == KERNEL) | (kind == MEMSET)))
    comm, copies = _union(start, end, linked & talks), _union(start, end, linked & (kind == MEMCPY))
    busy = joined(compute, comm, copies)
    if not busy.start.size:
        return None
    total = int(busy.end[-1] - busy.start[0])
    ns = {
        "computation_time": compute.length,
        "exposed_comm_time": comm.length - overlap(comm, compute),
        "exposed_memcpy_time": copies.length - overlap(copies, joined(compute, comm)),
        "busy_time": busy.length,
        "idle_time": total - busy.length,
        "total_time": total,
        "total_comm_time": comm.length,
        "total_memcpy_time": copies.length,
    }
    return TraceLens(**{name: round(value / 1e6, 4) for name, value in ns.items()})
