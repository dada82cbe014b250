"""The life of a job: the peaks of each of its stages, in the order in which they first came."""

from itertools import accumulate, pairwise

import msgspec

from vramcast.tracing.allocator.replay import counters_over
from vramcast.tracing.allocator.settings import AllocatorSettings
from vramcast.tracing.eventlog import EventLog, Mark


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """A stage with its peaks; ``times``: how often it came, the peaks being the highest of all."""

    name: str
    times: int
    allocated_bytes: int
    reserved_bytes: int


def life(log: EventLog, settings: AllocatorSettings | None = None) -> tuple[Stage, ...]:
    """The stages of a log that has marks of them, else none. What is held when a stage begins counts as its own."""
    if not log.stages:
        return ()
    allocated, reserved = counters_over(log, settings)
    sizes = (log.allocations[abs(event) - 1].size * (1 if event > 0 else -1) for event in log.order)
    live = [0, *accumulate(sizes)]
    found: dict[str, Stage] = {}
    for begin, end in pairwise([*log.stages, Mark(len(log.order), "")]):
        part = slice(begin.place, end.place)
        before = found.get(begin.name, Stage(name=begin.name, times=0, allocated_bytes=0, reserved_bytes=0))
        held = reserved[begin.place - 1] if begin.place else 0
        found[begin.name] = Stage(
            name=begin.name,
            times=before.times + 1,
            allocated_bytes=max(before.allocated_bytes, live[begin.place], *allocated[part]),
            reserved_bytes=max(before.reserved_bytes, held, *reserved[part]),
        )
    return tuple(found.values())
