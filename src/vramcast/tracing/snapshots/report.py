"""What a memory snapshot tells: the peak and what stood at it, fragmentation, what seems to leak, the stacks behind it all.

Everything is arithmetic on the recorded actions, so it holds for any allocator setting. Categories are read from the stacks,
which is a heuristic; each rule is a row.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise

import msgspec

from vramcast.tracing.allocator.replay import replay
from vramcast.tracing.allocator.settings import AllocatorSettings, round_to_block
from vramcast.tracing.eventlog import Allocation, EventLog
from vramcast.tracing.snapshots.file import Frame, Segment, Snapshot, TraceEvent, recorded_conf, stack
from vramcast.tracing.snapshots.rewind import rewind

_CATEGORIES = (
    ("optimizer", re.compile(r"/optim/|optimi[sz]er[^/]*\.py|[Aa]dam\w*\.py:|:_?step$")),
    ("backward", re.compile(r"torch::autograd::Engine|_engine_run_backward|autograd/\w+\.py:backward")),
    ("weights", re.compile(r":from_pretrained$|load_state_dict|:_apply$|:reset_parameters$|:__init__$")),
    ("forward", re.compile(r":forward$|:_call_impl$")),
)
_NATIVE = re.compile(r"^(\?\?)?$|\.(cpp|cc|cu|h|c)$")
_LIBRARY = re.compile(r"/site-packages/|/torch/|/runpy\.py|/importlib/|<frozen|<string>")
_MOST_ORIGINS, _MOST_FRAMES = 15, 3
_VALLEY_DEPTH = 0.3  # of the whole swing: a smaller dip is not the end of a step


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Allocations from one place of the program: their bytes together, their number, and the program's own frames."""

    bytes: int
    count: int
    category: str
    frames: tuple[str, ...]


class Leak(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that grows from step to step: floors after each step, and the origins of what stayed."""

    floors: tuple[int, ...]
    origins: tuple[Origin, ...]


class SnapshotReport(msgspec.Struct, frozen=True, kw_only=True):
    """The reading of one device's snapshot; all sizes in bytes.

    ``peak_allocated`` (blocks as requested and rounded) and ``peak_reserved``: over the recording; ``peak_at``: the action of
    the allocated peak, -1 when it came before the first. ``categories``: bytes at the peak. ``split_free``: free parts of
    segments that also hold something, which emptying the cache does not give back; ``whole_free``: wholly free segments.
    ``expandable_saves``: reserved bytes that the recorded requests would need less with expandable segments, both replayed from
    an empty cache. ``leak``: None when nothing suggests one.
    """

    device: int
    actions: int
    allocated: int
    reserved: int
    peak_allocated: int
    peak_reserved: int
    peak_at: int
    categories: tuple[tuple[str, int], ...]
    top: tuple[Origin, ...]
    split_free: int
    whole_free: int
    largest_free: int
    segments: int
    out_of_memory: tuple[int, ...]
    leak: Leak | None
    settings: str = ""
    expandable_saves: int = 0


class _Live(msgspec.Struct):
    """A block in use: its bytes, its raw stack, and the action that made it (-1: before the recording)."""

    size: int
    frames: object = ()
    made_at: int = -1


def explain_snapshot(snapshot: Snapshot, device: int | None = None) -> SnapshotReport:
    """Read the snapshot of one device (default: the one with most reserved memory)."""
    device = snapshot.busiest_device() if device is None else device
    segments, trace = snapshot.on(device)
    start = _at_start(segments, trace)
    totals = _totals(start, trace)
    peak_at = max(range(len(totals)), key=totals.__getitem__, default=-1)
    if totals and totals[peak_at] <= sum(b.size for b in start.values()):
        peak_at = -1
    at_peak = _alive_after(start, trace, peak_at)
    whole, split, largest = _free_parts(segments)
    return SnapshotReport(
        device=device,
        actions=len(trace),
        allocated=sum(b.size for s in segments for b in s.blocks if b.used),
        reserved=sum(s.total_size for s in segments),
        peak_allocated=sum(b.size for b in at_peak),
        peak_reserved=_peak_reserved(segments, trace),
        peak_at=peak_at,
        categories=_categories(at_peak),
        top=_origins(at_peak),
        split_free=split,
        whole_free=whole,
        largest_free=largest,
        segments=len(segments),
        out_of_memory=tuple(e.size for e in trace if e.action == "oom"),
        leak=_leak(totals, _alive_after(start, trace, len(trace) - 1)),
        settings=recorded_conf(snapshot),
        expandable_saves=_expandable_saves(start, trace) if not any(s.is_expandable for s in segments) else 0,
    )


def _at_start(segments: list[Segment], trace: list[TraceEvent]) -> dict[int, _Live]:
    """Blocks in use before the first action; those that outlive the recording have their stacks in its final state."""
    stacks = {address: block.frames for segment in segments for address, block in segment.placed() if block.used}
    _, before = rewind(segments, trace)
    return {
        address: _Live(block.size or round_to_block(block.requested), stacks.get(address, ()) if block.size else ())
        for address, block in before.items()
    }


def _totals(start: dict[int, _Live], trace: list[TraceEvent]) -> list[int]:
    """Bytes in use after each action."""
    sizes = {address: block.size for address, block in start.items()}
    total, totals = sum(sizes.values()), []
    for event in trace:
        if event.action == "alloc":
            sizes[event.addr] = round_to_block(event.size)
            total += sizes[event.addr]
        elif event.action == "free_completed":
            total -= sizes.pop(event.addr, 0)
        totals.append(total)
    return totals


def _alive_after(start: dict[int, _Live], trace: list[TraceEvent], place: int) -> list[_Live]:
    live = dict(start)
    for made_at, event in enumerate(trace[: place + 1]):
        if event.action == "alloc":
            live[event.addr] = _Live(round_to_block(event.size), event.frames, made_at)
        elif event.action == "free_completed":
            live.pop(event.addr, None)
    return list(live.values())


def _expandable_saves(start: dict[int, _Live], trace: list[TraceEvent]) -> int:
    log = EventLog(allocations=[], order=[], marks=[])
    numbers = {address: log.allocate(Allocation(size=block.size)) for address, block in start.items()}
    for event in trace:
        if event.action == "alloc":
            numbers[event.addr] = log.allocate(Allocation(size=event.size, stream=event.stream))
        elif event.action == "free_completed" and event.addr in numbers:
            log.free(numbers.pop(event.addr))
    native, expandable = replay(log), replay(log, AllocatorSettings(expandable_segments=True))
    return max(0, native.peak_reserved_bytes - expandable.peak_reserved_bytes)


def _peak_reserved(segments: list[Segment], trace: list[TraceEvent]) -> int:
    reserved = highest = sum(s.total_size for s in segments)
    for event in reversed(trace):
        if event.action in {"segment_alloc", "segment_map"}:
            reserved -= event.size
        elif event.action in {"segment_free", "segment_unmap"}:
            reserved += event.size
        highest = max(highest, reserved)
    return highest


def _free_parts(segments: Iterable[Segment]) -> tuple[int, int, int]:
    """Bytes of wholly free segments, of free parts of used segments, and of the largest free block."""
    whole = split = largest = 0
    for segment in segments:
        free = [b.size for b in segment.blocks if not b.used]
        largest = max([largest, *free])
        if len(free) == len(segment.blocks):
            whole += sum(free)
        else:
            split += sum(free)
    return whole, split, largest


def _category(frames: list[Frame]) -> str:
    """What a block is for, from its stack, innermost frame first: the first rule that a frame meets decides."""
    for frame in frames:
        where = f"{frame.filename}:{frame.name}"
        for name, pattern in _CATEGORIES:
            if pattern.search(where):
                return name
    return "unknown" if frames else "before the recording"


def _categories(live: list[_Live]) -> tuple[tuple[str, int], ...]:
    sizes: Counter[str] = Counter()
    known: dict[int, str] = {}
    for block in live:
        key = id(block.frames)
        if key not in known:
            known[key] = _category(stack(block.frames))
        sizes[known[key]] += block.size
    return tuple(sizes.most_common())


def _origins(live: list[_Live]) -> tuple[Origin, ...]:
    groups: dict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(list)
    known: dict[int, tuple[str, tuple[str, ...]]] = {}
    for block in live:
        key = id(block.frames)
        if key not in known:
            frames = stack(block.frames)
            known[key] = (_category(frames), _own_frames(frames))
        groups[known[key]].append(block.size)
    ranked = sorted(groups.items(), key=lambda item: -sum(item[1]))[:_MOST_ORIGINS]
    return tuple(
        Origin(bytes=sum(sizes), count=len(sizes), category=category, frames=frames) for (category, frames), sizes in ranked
    )


def _own_frames(frames: list[Frame]) -> tuple[str, ...]:
    """The innermost frames that belong to the program rather than to PyTorch; PyTorch's own when there are no others."""
    named = [f for f in frames if f.line and not _NATIVE.search(f.filename)]
    own = [f for f in named if not _LIBRARY.search(f.filename)] or named
    return tuple(f"{f.filename}:{f.line} {f.name}" for f in own[:_MOST_FRAMES])


def _leak(totals: list[int], final: list[_Live]) -> Leak | None:
    """Floors between steps that rise every time, and what was made between the first and the last of them and stayed."""
    valleys = _valleys(totals)
    floors = [totals[v] for v in valleys]
    if len(floors) < 3 or any(b <= a for a, b in pairwise(floors)):
        return None
    stayed = [b for b in final if valleys[0] < b.made_at <= valleys[-1]]
    return Leak(floors=tuple(floors), origins=_origins(stayed)) if stayed else None


def _valleys(totals: list[int]) -> list[int]:
    """Places of the lowest point between two rises that are each large against the whole swing."""
    if not totals:
        return []
    depth = _VALLEY_DEPTH * (max(totals) - min(totals))
    valleys, lowest, highest, rising = [], 0, 0, True
    for place, total in enumerate(totals):
        if rising:
            highest = place if total >= totals[highest] else highest
            if total < totals[highest] - depth:
                rising, lowest = False, place
        else:
            lowest = place if total <= totals[lowest] else lowest
            if total > totals[lowest] + depth:
                valleys.append(lowest)
                rising, highest = True, place
    return valleys if rising else [*valleys, lowest]
