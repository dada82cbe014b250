"""A trace as files that other viewers open: Chrome's trace viewer (and Perfetto), and PyTorch's memory_viz."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from vramcast.errors import QuestionError
from vramcast.tracing.allocator.blocks import Block
from vramcast.tracing.allocator.caching import CachingAllocator
from vramcast.tracing.allocator.device import Device
from vramcast.tracing.allocator.replay import new_allocator
from vramcast.tracing.allocator.settings import AllocatorSettings
from vramcast.tracing.eventlog import Allocation, EventLog


def check_timeline(path: Path, *, pictures: tuple[str, ...] = ()) -> None:
    """Raises QuestionError for an ending that is neither a viewer's nor a picture's, or a folder that is not there."""
    if path.suffix.lower() not in (*_VIEWERS, *pictures):
        kinds = ".png, .svg or .html (a picture), .json (Chrome trace) or .pickle (memory_viz)"
        raise QuestionError(f"a timeline is written as {kinds}, not {path.name!r}")
    if not path.absolute().parent.is_dir():
        raise QuestionError(f"the folder of {str(path)!r} does not exist")


def write_timeline(log: EventLog, path: Path, settings: AllocatorSettings | None = None) -> None:
    """Write a log as ``.json`` (Chrome trace: allocated and reserved over events) or ``.pickle`` (memory_viz snapshot)."""
    check_timeline(path)
    if path.suffix.lower() == ".json":
        path.write_bytes(msgspec.json.encode(chrome_trace(log, settings)))
    else:
        path.write_bytes(pickle.dumps(snapshot(log, settings), protocol=4))


def chrome_trace(log: EventLog, settings: AllocatorSettings | None = None) -> dict[str, Any]:
    """Counters of allocated and reserved bytes over the events, one microsecond each, with the phases as spans."""
    allocator = new_allocator(settings)
    events: list[dict[str, Any]] = []
    for place, _ in _blocks(log, allocator):
        counters = {"allocated": allocator.allocated_bytes, "reserved": allocator.reserved_bytes}
        events.append({"name": "memory", "ph": "C", "ts": place, "pid": 0, "args": counters})
    ends = [m.place for m in log.marks[1:]] + [len(log.order)]
    spans = [
        {"name": mark.name, "ph": "X", "ts": mark.place, "dur": max(end - mark.place, 1), "pid": 0, "tid": 0}
        for mark, end in zip(log.marks, ends, strict=True)
    ]
    return {"traceEvents": spans + events, "displayTimeUnit": "ms", "otherData": {"unit of time": "one allocator event"}}


def snapshot(log: EventLog, settings: AllocatorSettings | None = None) -> dict[str, Any]:
    """The log in the form of ``torch.cuda.memory._snapshot()``, with operator, module and line as the stack."""
    device = _NotingDevice()
    allocator = new_allocator(settings, device=device)
    live: dict[int, tuple[Block, Allocation]] = {}
    for place, (number, block) in _blocks(log, allocator):
        allocation = log.allocations[abs(number) - 1]
        event = {"addr": block.address, "size": allocation.size, "stream": allocation.stream, "time_us": place}
        if number > 0:
            live[number] = (block, allocation)
            device.trace.append({"action": "alloc", "frames": _frames(allocation), **event})
        else:
            live.pop(-number)
            device.trace += [{"action": a, "frames": [], **event} for a in ("free_requested", "free_completed")]
    segments = _segments(allocator, live)
    return {"segments": segments, "device_traces": [device.trace], "allocator_settings": {}, "external_annotations": []}


_VIEWERS = (".json", ".pickle")
# What stands in the stacks of real snapshots where memory of that category or phase is asked for.
_CALLERS = {
    "weights": "from_pretrained", "optimizer": "step", "setup": "from_pretrained", "backward": "torch::autograd::Engine",
    "recompute": "torch::autograd::Engine", "prefill": "forward", "decode": "forward",
}  # fmt: skip


class _NotingDevice(Device):
    """Notes the segments it hands out and takes back, between the allocations that made it do so."""

    def __init__(self) -> None:
        super().__init__()
        self.trace: list[dict[str, Any]] = []

    def allocate(self, size: int) -> int | None:
        address = super().allocate(size)
        self.trace.append({"action": "segment_alloc", "addr": address, "size": size, "stream": 0, "time_us": 0, "frames": []})
        return address

    def release(self, address: int, size: int) -> None:
        super().release(address, size)
        self.trace.append({"action": "segment_free", "addr": address, "size": size, "stream": 0, "time_us": 0, "frames": []})


def _blocks(log: EventLog, allocator: Any) -> Iterator[tuple[int, tuple[int, Block]]]:
    """Every event with its place, its signed number and its block, the allocator being in the state after it."""
    blocks: dict[int, Block] = {}
    emptied = frozenset(log.emptied)
    for place, number in enumerate(log.order):
        if place in emptied:
            allocator.empty_cache()
        allocation = log.allocations[abs(number) - 1]
        if not allocation.size:
            continue
        if number > 0:
            block = blocks[number] = allocator.malloc(allocation.size, allocation.stream)
        else:
            block = blocks.pop(-number)
            address = Block(block.address, block.size, block.pool)
            allocator.free(block)
            block = address
        yield place, (number, block)


def _frames(allocation: Allocation) -> list[dict[str, Any]]:
    """Innermost first: the operator in its module, the user's line, and the caller that makes readers of stacks see the phase."""
    file, _, line = allocation.line.rpartition(":")
    module, caller = allocation.module, _CALLERS.get(allocation.category) or _CALLERS.get(allocation.phase, allocation.phase)
    frames = [{"name": allocation.op, "filename": module, "line": 1 if module else 0}]
    if file:
        frames.append({"name": "", "filename": file, "line": int(line)})
    return [*frames, {"name": caller, "filename": "", "line": 0}]


def _segments(allocator: CachingAllocator, live: dict[int, tuple[Block, Allocation]]) -> list[dict[str, Any]]:
    """Every segment, found from the blocks in use and the free ones."""
    heads: dict[int, Block] = {}
    used = {block.address: allocation for block, allocation in live.values()}
    free = [block for pool in allocator.pools.values() for block in pool.ascending()]
    for block in (*free, *(block for block, _ in live.values())):
        while block.previous is not None:
            block = block.previous  # noqa: PLW2901 - walks to the head of the segment
        heads[block.address] = block
    return [_segment(head, used) for _, head in sorted(heads.items())]


def _segment(head: Block, used: dict[int, Allocation]) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = []
    block: Block | None = head
    while block is not None and block.mapped:
        allocation = used.get(block.address)
        state = "active_allocated" if allocation else "inactive"
        requested = allocation.size if allocation else 0
        frames = _frames(allocation) if allocation else []
        blocks.append(
            {"address": block.address, "size": block.size, "requested_size": requested, "state": state, "frames": frames}
        )
        block = block.next
    active = sum(b["size"] for b in blocks if b["state"] != "inactive")
    kind = "small" if head.pool.small else "large"
    return {
        "device": 0, "address": head.address, "total_size": sum(b["size"] for b in blocks), "stream": head.pool.stream,
        "segment_type": kind, "allocated_size": active, "active_size": active, "requested_size": active,
        "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks,
    }  # fmt: skip
