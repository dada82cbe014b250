"""From an event log to the ledger: what stood at the peak, at each instant, and what other settings would have reserved.

The terms carry the names of the contract, so that a trace stands beside a forecast line by line.
"""

from collections import Counter, defaultdict

import msgspec

from vramcast.ledger import Instant, RankMemory, Term
from vramcast.tracing.allocator.replay import Usage, replay
from vramcast.tracing.allocator.settings import AllocatorSettings
from vramcast.tracing.eventlog import Allocation, EventLog
from vramcast.tracing.reports.terms import TERMS, Naming, kind_of_module
from vramcast.units import gib

SOURCE = "traced: the real step on fake tensors"
_LARGEST_PARTS = 12


class TopTensor(msgspec.Struct, frozen=True, kw_only=True):
    """Allocations of one origin that are alive at the peak: how many, how large together, who made them."""

    bytes: int
    count: int
    op: str
    module: str
    phase: str
    line: str = ""


class TraceReport(msgspec.Struct, frozen=True, kw_only=True):
    """The reading of one log under one allocator setting.

    ``expandable``: the same log with expandable segments (None when they were on). ``top``: the largest origins at the peak.
    ``by_module``: bytes at the peak per module, layers of one kind taken together.
    """

    settings: AllocatorSettings
    memory: RankMemory
    usage: Usage
    expandable: Usage | None
    top: tuple[TopTensor, ...]
    by_module: tuple[tuple[str, int], ...]

    @property
    def expandable_saves_bytes(self) -> int:
        """Reserved bytes that expandable segments would save."""
        return self.usage.peak_reserved_bytes - self.expandable.peak_reserved_bytes if self.expandable else 0


def report(
    log: EventLog, settings: AllocatorSettings | None = None, *, context_bytes: int = 0, serving: bool = False
) -> TraceReport:
    """Read a log: replay it, and name what stands at its peak and at the peak of every phase."""
    settings = settings or AllocatorSettings()
    usage = replay(log, settings)
    expandable = None
    if not settings.expandable_segments:
        expandable = replay(log, msgspec.structs.replace(settings, expandable_segments=True))
    reading = _Reading(log, serving=serving)
    peak = log.alive_at(usage.peak_allocated_at)
    slack = usage.peak_allocated_bytes - sum(a.size for a in peak)
    return TraceReport(
        settings=settings,
        memory=_memory(reading, usage, slack, context_bytes),
        usage=usage,
        expandable=expandable,
        top=_top(peak),
        by_module=_by_module(peak),
    )


def _memory(reading: "_Reading", usage: Usage, slack: int, context_bytes: int) -> RankMemory:
    places = reading.peaks(usage.peak_allocated_at).items()
    device = usage.peak_reserved_bytes + context_bytes
    return RankMemory(
        rank="0",
        instants=tuple(Instant(name=name, terms=reading.terms(place)) for name, place in places),
        allocated_bytes=usage.peak_allocated_bytes,
        reserved_bytes=usage.peak_reserved_bytes,
        device_bytes=device,
        needed_bytes=device,
        claimed_bytes=device,
        outside=_outside(usage.peak_reserved_bytes - usage.peak_allocated_bytes, slack, context_bytes),
    )


def _outside(idle: int, slack: int, context_bytes: int) -> tuple[Term, ...]:
    """What no tensor fills: idle parts of segments, blocks rounded up to 512 bytes, and the context."""
    why = f"reserved and idle {gib(idle)} + blocks rounded up {gib(slack)}"
    fragmentation = Term(name="fragmentation", bytes=idle + slack, why=why, source="replayed: the caching allocator's own rules")
    context = Term(name="context", bytes=context_bytes, why="CUDA context, kernels and libraries, outside the allocator")
    return tuple(term for term in (fragmentation, context) if term.bytes)


class _Reading:
    """What stands at the places of a log, by term of the contract."""

    def __init__(self, log: EventLog, *, serving: bool) -> None:
        self.log = log
        self._naming = Naming(log, serving=serving)

    def peaks(self, peak: int) -> dict[str, int]:
        """Place of the largest total in each phase of the last step; the peak itself in its own phase."""
        log, live, best, places = self.log, 0, defaultdict[str, int](int), dict[str, int]()
        marks = {m.place: m.name for m in log.marks if m.name != "setup"}
        phase = "setup"
        for place, event in enumerate(log.order):
            phase = marks.get(place, phase)
            size = log.allocations[abs(event) - 1].size
            live += size if event > 0 else -size
            if live >= best[phase]:
                best[phase], places[phase] = live, place
        places[log.moment(peak) or "setup"] = peak
        return {name: place for name, place in places.items() if name not in {"ready", "between steps"} or place == peak}

    def terms(self, place: int) -> tuple[Term, ...]:
        """The terms alive after event ``place`` with their largest parts."""
        parts: dict[str, Counter[str]] = defaultdict(Counter)
        for allocation in self.log.alive_at(place):
            term, part = self._naming.name(allocation)
            parts[term][part] += allocation.size
        return tuple(_term(name, parts[name]) for name in TERMS if parts[name])


def _term(name: str, parts: Counter[str]) -> Term:
    largest = parts.most_common(_LARGEST_PARTS)
    rest = sum(parts.values()) - sum(size for _, size in largest)
    terms = [Term(name=part, bytes=size, why=SOURCE) for part, size in largest]
    if rest:
        terms.append(Term(name="smaller parts", bytes=rest, why=f"{len(parts) - len(largest)} more"))
    origin, size = largest[0]
    why = f"alive at this instant, largest of {len(parts)}: {origin} {gib(size)}" if len(parts) > 1 else f"{origin} {gib(size)}"
    return Term.total(name, terms, why=why, source=SOURCE)


def _top(peak: list[Allocation], most: int = 15) -> tuple[TopTensor, ...]:
    groups: dict[tuple[str, str, str, str], list[int]] = defaultdict(list)
    for a in peak:
        groups[a.category or a.op, kind_of_module(a.module), a.phase, a.line].append(a.size)
    ranked = sorted(groups.items(), key=lambda item: -sum(item[1]))[:most]
    return tuple(
        TopTensor(bytes=sum(sizes), count=len(sizes), op=op, module=module, phase=phase, line=line)
        for (op, module, phase, line), sizes in ranked
    )


def _by_module(peak: list[Allocation], most: int = 20) -> tuple[tuple[str, int], ...]:
    sizes: Counter[str] = Counter()
    for allocation in peak:
        sizes[kind_of_module(allocation.module) or "(no module)"] += allocation.size
    return tuple(sizes.most_common(most))
