"""Where the time of a GPU went: compute, exposed and hidden communication, memory copies, and idle by its cause.

Every figure is a length of a union of intervals, so nothing that overlaps is counted twice, and
compute + exposed communication + exposed copies + idle is exactly the span from the first work to the end of the last.

Causes of idle time are told from the call that launched the work which ended the gap:

* ``data``: the host was in a data loader;
* ``synchronisation``: when the GPU fell idle the host was blocked in a call that waits for it (cudaDeviceSynchronize, .item(),
  a copy to pageable memory), so nothing was queued;
* ``host``: the work was not launched yet, and the host was doing something else (Python, dispatch, launch: launch-bound);
* ``dependency``: the work had been launched before the gap began, and waited in its stream for an event or a resource;
* ``unknown``: no launch of that work is in the trace.
"""

import re
from typing import Any

import msgspec

from vramcast.profiling.events import KERNEL, MEMCPY, SYNC, Trace
from vramcast.profiling.intervals import Spans, covered, gaps, holds, joined, overlap, union

CAUSES = ("host", "data", "synchronisation", "dependency", "unknown")
_WAITS = re.compile(r"(?:Device|Stream|Event|Ctx)Synchronize|^(?:cuda|hip)Memcpy(?!Async)|MemcpyWithStream", re.IGNORECASE)
_DATA = re.compile(r"DataLoader|data_loader|get_batch|next_batch|fetch_next", re.IGNORECASE)


class GpuTime(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of one GPU over a window. ``idle`` by cause sums to ``idle_s``; hidden = communication - exposed."""

    span_s: float
    busy_s: float
    compute_s: float
    communication_s: float
    exposed_communication_s: float
    copies_s: float
    exposed_copies_s: float
    idle_s: float
    idle: dict[str, float]

    @property
    def hidden_share(self) -> float | None:
        """The share of communication that computation hides (HTA's overlap), None without communication."""
        return 1 - self.exposed_communication_s / self.communication_s if self.communication_s else None


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one GPU as unions: what it computed, communicated and copied, and when it had nothing to do."""

    chosen: Any
    compute: Spans
    communication: Spans
    copies: Spans
    busy: Spans


def work_of(trace: Trace, chosen: Any) -> Work:
    """The unions over the chosen GPU events (bool array); synchronisation records are no work."""
    start, end, kind = trace.start, trace.end, trace.kind
    talks = trace.talks
    pick = {
        "compute": chosen & (kind == KERNEL) & ~talks,
        "communication": chosen & talks,
        "copies": chosen & (kind != KERNEL) & (kind != SYNC),
    }
    unions = {name: union(start[mask], end[mask]) for name, mask in pick.items()}
    return Work(chosen=chosen & (kind != SYNC), busy=joined(*unions.values()), **unions)


def where_time_went(trace: Trace, work: Work) -> GpuTime:
    """The breakdown of one GPU from its first work to the end of its last."""
    busy = work.busy
    span = int(busy.end[-1] - busy.start[0]) if busy.start.size else 0
    computing_or_talking = joined(work.compute, work.communication)
    causes = idle_causes(trace, work)
    return GpuTime(
        span_s=span / 1e9,
        busy_s=busy.length / 1e9,
        compute_s=work.compute.length / 1e9,
        communication_s=work.communication.length / 1e9,
        exposed_communication_s=(work.communication.length - overlap(work.communication, work.compute)) / 1e9,
        copies_s=work.copies.length / 1e9,
        exposed_copies_s=(work.copies.length - overlap(work.copies, computing_or_talking)) / 1e9,
        idle_s=(span - busy.length) / 1e9,
        idle={cause: float(causes[i].sum()) / 1e9 for i, cause in enumerate(CAUSES)},
    )


def idle_causes(trace: Trace, work: Work) -> Any:
    """Ns of every gap by cause: one row per entry of CAUSES, one column per gap of the GPU."""
    import numpy as np

    idle = gaps(work.busy)
    ns = np.zeros((len(CAUSES), idle.start.size), dtype=np.int64)
    if not idle.start.size:
        return ns
    call = _call_that_ended(trace, work, idle.end)
    length = idle.end - idle.start
    launched = np.where(call >= 0, trace.call_start[call] if len(trace.call_start) else 0, 0)
    late = (call >= 0) & (launched >= idle.start)
    waited = holds(waiting(trace), idle.start)
    until = np.minimum(np.maximum(launched, idle.start), idle.end)
    in_data = np.where(late, covered(loading(trace), idle.start, until), 0)
    rest = np.where(late, length - in_data, 0)
    ns[CAUSES.index("data")] = in_data
    ns[CAUSES.index("synchronisation")] = np.where(waited, rest, 0)
    ns[CAUSES.index("host")] = np.where(waited, 0, rest)
    ns[CAUSES.index("dependency")] = np.where((call >= 0) & ~late, length, 0)
    ns[CAUSES.index("unknown")] = np.where(call < 0, length, 0)
    return ns


def _call_that_ended(trace: Trace, work: Work, ends: Any) -> Any:
    """The call that launched the work beginning at each gap's end; of several the one launched last."""
    import numpy as np

    chosen = np.flatnonzero(work.chosen)
    call = trace.launch[chosen]
    launched = np.where(call >= 0, trace.call_start[call] if len(trace.call_start) else 0, -1)
    order = np.lexsort((launched, trace.start[chosen]))
    begins = trace.start[chosen][order]
    last = np.searchsorted(begins, ends, side="right") - 1
    return call[order][last]


def waiting(trace: Trace) -> Spans:
    """When the host was blocked in a call that waits for the GPU."""
    import numpy as np

    waits = np.array([bool(_WAITS.search(name)) for name in trace.names], dtype=bool)
    named = waits[trace.call_name] if len(trace.names) else np.zeros(0, dtype=bool)
    call = trace.launch
    copies = (trace.kind == MEMCPY) & (call >= 0)
    blocking = call[copies][trace.call_end[call[copies]] >= trace.end[copies]] if copies.any() else np.zeros(0, dtype=int)
    chosen = named.copy()
    chosen[blocking] = True
    return union(trace.call_start[chosen], trace.call_end[chosen])


def loading(trace: Trace) -> Spans:
    """When the host was in a data loader."""
    import numpy as np

    loads = np.array([bool(_DATA.search(name)) for name in trace.names], dtype=bool)
    chosen = loads[trace.range_name] if len(trace.names) else np.zeros(0, dtype=bool)
    return union(trace.range_start[chosen], trace.range_end[chosen])
