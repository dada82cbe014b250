"""What one layer of a traced model costs: bytes saved for the backward pass, and the extra bytes while it runs.

The figures come from a log of one training step. They are the oracle for the forecast's activation formulas.
"""

from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from vramcast.tracing.eventlog import Allocation, EventLog

_NOT_ACTIVATIONS = frozenset({"weights", "gradients", "optimizer", "inputs", "workspace"})


class LayerCost(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of one layer (or of what stands outside all layers).

    ``saved``: made in the layer's forward and alive when the backward pass begins. ``saved_by_part``: the same by submodule.
    ``forward_extra``: the most that the layer's forward made and held together, less what it saves. ``backward_peak``: the most
    that its backward (recomputation included) made and held together, weight gradients left out; the saved bytes that it frees
    meanwhile are not subtracted. ``backward_net``: how far everything alive rises above its level at the start of the layer's
    backward, weight gradients and freed tensors included. ``recomputed``: the most that recomputation alone made and held.
    Libraries' workspaces are left out of all of them.
    """

    saved: int
    saved_by_part: dict[str, int]
    forward_extra: int
    backward_peak: int
    backward_net: int
    recomputed: int


def layer_cost(log: EventLog, prefix: str) -> LayerCost:
    """The cost of the layer whose module paths start with ``prefix``, in the last backward pass of the log."""

    def inside(allocation: Allocation) -> bool:
        return allocation.module == prefix or allocation.module.startswith(prefix + ".")

    return _cost(log, inside, prefix)


def _cost(log: EventLog, belongs: Callable[[Allocation], bool], prefix: str) -> LayerCost:
    forward, backward, end = step_places(log)
    alive = [a for a in log.alive_at(backward) if belongs(a) and a.phase == "forward" and a.start >= forward and _activation(a)]
    parts: Counter[str] = Counter()
    for allocation in alive:
        parts[allocation.module.removeprefix(prefix).strip(".") or "."] += allocation.size
    saved = sum(a.size for a in alive)
    rise_forward = _rise(log, forward, backward, lambda a: belongs(a) and a.phase == "forward")
    rise_backward = _rise(log, backward, end, lambda a: belongs(a) and a.phase in {"backward", "recompute"})
    recomputed = _rise(log, backward, end, lambda a: belongs(a) and a.phase == "recompute")
    return LayerCost(
        saved=saved,
        saved_by_part=dict(sorted(parts.items())),
        forward_extra=max(0, rise_forward - saved),
        backward_peak=rise_backward,
        backward_net=_net(log, backward, end, belongs),
        recomputed=recomputed,
    )


def _net(log: EventLog, start: int, end: int, belongs: Callable[[Allocation], bool]) -> int:
    """The highest rise of all that is alive between the first and the last thing a layer's backward makes."""

    def made(event: int) -> bool:
        return event > 0 and belongs(log.allocations[event - 1]) and log.allocations[event - 1].phase != "forward"

    places = [p for p in range(start, end) if made(log.order[p])]
    level = highest = 0
    for event in log.order[places[0] : places[-1] + 1] if places else ():
        allocation = log.allocations[abs(event) - 1]
        if allocation.category != "workspace" and not allocation.op.startswith("cublas"):
            level += allocation.size if event > 0 else -allocation.size
            highest = max(highest, level)
    return highest


def step_places(log: EventLog) -> tuple[int, int, int]:
    """Places where the last forward pass, its backward pass, and what follows it begin."""
    names = [(m.name, m.place) for m in log.marks]
    last = max(i for i, (name, _) in enumerate(names) if name == "backward")
    start = max(place for name, place in names[:last] if name == "forward")
    end = names[last + 1][1] if last + 1 < len(names) else len(log.order)
    return start, names[last][1], end


def _rise(log: EventLog, start: int, end: int, counts: Callable[[Allocation], bool]) -> int:
    """The most bytes of the counted kind made in a window and alive together."""
    level = highest = 0
    for size in _changes(log, start, end, counts):
        level += size
        highest = max(highest, level)
    return highest


def _changes(log: EventLog, start: int, end: int, counts: Callable[[Allocation], bool]) -> Iterator[int]:
    for event in log.order[start:end]:
        allocation = log.allocations[abs(event) - 1]
        if allocation.start >= start and _activation(allocation) and counts(allocation):
            yield allocation.size if event > 0 else -allocation.size


def _activation(allocation: Allocation) -> bool:
    return allocation.category not in _NOT_ACTIVATIONS and not allocation.op.startswith("cublas")
