"""Steps of a trace: how long each took on the host, and how the GPU spent the time between the steps' first kernels.

A step is a range named ProfilerStep#N (torch.profiler's schedule), or an NVTX or record_function range such as ``step 12``.
The GPU lags behind the host, so its window of step i runs from the first work launched in step i to the first work launched in
step i + 1 (to the end of its own work for the last).
"""

import re
from typing import Any

import msgspec

from vramcast.profiling.breakdown import Work
from vramcast.profiling.events import Trace
from vramcast.profiling.intervals import covered

_NAMES = re.compile(r"^(?:ProfilerStep#|(?:train(?:ing)?[ _])?(?:step|iter(?:ation)?)[ _:#=]*)(\d+)$", re.IGNORECASE)


class StepRow(msgspec.Struct, frozen=True, kw_only=True):
    """One step; seconds. ``gpu_s`` is the length of the GPU's window, of which the others are parts."""

    number: int
    host_s: float
    gpu_s: float
    busy_s: float
    compute_s: float
    communication_s: float
    exposed_communication_s: float

    @property
    def idle_s(self) -> float:
        """The window's time without any work."""
        return self.gpu_s - self.busy_s


def step_rows(trace: Trace, work: Work) -> tuple[StepRow, ...]:
    """The steps in their order; without launches in the trace the windows are the host's."""
    import numpy as np

    found = steps(trace)
    if not found:
        return ()
    starts = np.array([start for _, start, _ in found])
    begins, ends = _windows(trace, work, starts, np.array([end for _, _, end in found]))
    parts = {name: covered(getattr(work, name), begins, ends) for name in ("busy", "compute", "communication")}
    hidden = _both(work, begins, ends)
    return tuple(
        StepRow(
            number=number,
            host_s=(end - start) / 1e9,
            gpu_s=float(ends[i] - begins[i]) / 1e9,
            busy_s=float(parts["busy"][i]) / 1e9,
            compute_s=float(parts["compute"][i]) / 1e9,
            communication_s=float(parts["communication"][i]) / 1e9,
            exposed_communication_s=float(parts["communication"][i] - hidden[i]) / 1e9,
        )
        for i, (number, start, end) in enumerate(found)
    )


def steps(trace: Trace) -> list[tuple[int, int, int]]:
    """Number, start and end of each step, in order; the outermost range of each number counts."""
    numbers = {i: int(match[1]) for i, name in enumerate(trace.names) if (match := _NAMES.match(name)) and len(match[1]) < 12}
    spans: dict[int, tuple[int, int]] = {}
    columns = (trace.range_name.tolist(), trace.range_start.tolist(), trace.range_end.tolist())
    for name, start, end in zip(*columns, strict=True):
        if name in numbers:
            known = spans.get(numbers[name], (start, end))
            spans[numbers[name]] = (min(start, known[0]), max(end, known[1]))
    return sorted(((number, *span) for number, span in spans.items()), key=lambda step: step[1])


def _windows(trace: Trace, work: Work, starts: Any, ends: Any) -> tuple[Any, Any]:
    """The GPU's window of each step."""
    import numpy as np

    call = trace.launch
    mine = np.flatnonzero(work.chosen & (call >= 0))
    launched = trace.call_start[call[mine]] if mine.size else np.zeros(0, dtype=np.int64)
    step = np.searchsorted(starts, launched, side="right") - 1
    step = np.where((step >= 0) & (launched <= ends[np.maximum(step, 0)]), step, -1)
    begins, closes = starts.copy(), ends.copy()
    for i in range(len(starts)):
        own = mine[step == i]
        if own.size:
            begins[i], closes[i] = trace.start[own].min(), trace.end[own].max()
    for i in range(len(starts) - 1):
        closes[i] = max(begins[i], begins[i + 1])
    return begins, np.maximum(begins, closes)


def _both(work: Work, begins: Any, ends: Any) -> Any:
    """Ns of each window in which communication runs behind compute: the two lengths less that of their union."""
    from vramcast.profiling.intervals import joined

    either = joined(work.compute, work.communication)
    lengths = (covered(spans, begins, ends) for spans in (work.compute, work.communication, either))
    compute, talk, union = lengths
    return compute + talk - union
