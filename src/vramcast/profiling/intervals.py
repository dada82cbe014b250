"""Sets of time as sorted, disjoint intervals [start, end): union, length, overlap and gaps, on whole columns at once.

Times are int64 nanoseconds. A set is a ``Spans``; every function here is linear after one sort.
"""

from typing import Any, NamedTuple


class Spans(NamedTuple):
    """Disjoint intervals in rising order: two int64 arrays of one length."""

    start: Any
    end: Any

    @property
    def length(self) -> int:
        """The time in the set, ns."""
        return int((self.end - self.start).sum())


def union(start: Any, end: Any) -> Spans:
    """The set of instants in at least one of the intervals; touching intervals become one, empty ones vanish."""
    import numpy as np

    kept = end > start
    start, end = start[kept], end[kept]
    if not start.size:
        return Spans(start, end)
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    opens = np.empty(start.size, dtype=bool)
    opens[0] = True
    np.greater(start[1:], end[:-1], out=opens[1:])
    closes = np.append(opens[1:], True)
    return Spans(start[opens], end[closes])


def covered(spans: Spans, start: Any, end: Any) -> Any:
    """How much of each interval [start, end) lies in the set: int64 ns, one per interval."""
    import numpy as np

    if not spans.start.size:
        return np.zeros(len(start), dtype=np.int64)
    before = np.concatenate(([0], np.cumsum(spans.end - spans.start)))

    def measure(at: Any) -> Any:
        index = np.searchsorted(spans.start, at, side="right")
        inside = np.minimum(at, spans.end[np.maximum(index - 1, 0)]) - spans.start[np.maximum(index - 1, 0)]
        return np.where(index > 0, before[np.maximum(index - 1, 0)] + inside, 0)

    return np.maximum(measure(np.maximum(start, end)) - measure(start), 0)


def overlap(first: Spans, second: Spans) -> int:
    """The time in both sets, ns."""
    return int(covered(first, second.start, second.end).sum())


def gaps(spans: Spans) -> Spans:
    """The time between the intervals, from the first start to the last end."""
    return Spans(spans.end[:-1], spans.start[1:])


def joined(*sets: Spans) -> Spans:
    """The union of several sets."""
    import numpy as np

    return union(np.concatenate([s.start for s in sets]), np.concatenate([s.end for s in sets]))


def holds(spans: Spans, at: Any) -> Any:
    """Whether each instant lies in the set (a start counts, an end does not): bool array."""
    import numpy as np

    if not spans.start.size:
        return np.zeros(len(at), dtype=bool)
    index = np.searchsorted(spans.start, at, side="right") - 1
    return (index >= 0) & (at < spans.end[np.maximum(index, 0)])


def distinct(values: Any) -> Any:
    """The values in rising order, each once; ``numpy.unique`` would import numpy.ma, which costs more than a small trace."""
    import numpy as np

    ordered = np.sort(values)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if ordered.size else ordered
