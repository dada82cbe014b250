"""From an event log to the ledger: what stood at the peak, at each instant, and what other settings would have reserved.

The terms carry the names of the contract, so that a trace stands beside a forecast line by line.
"""

from collections import Counter, defaultdict

import msgspec

from vramcast.ledger import Instant, RankMemory, Term
from vramcast.tracing.eventlog import Allocation, EventLog
from vramcast.tracing.replay import Usage, replay
from vramcast.tracing.settings import AllocatorSettings
from vramcast.units import gib

SOURCE = "traced: the real step on fake tensors"
_TERMS = ("weights", "gradients", "optimizer", "activations", "kv_cache", "loss", "gathered", "temporaries", "communication")
_GATHERED_OPS = ("resize_", "fsdp.")
_HEADS = ("lm_head", "embed_out", "output")
_PEFT_ROOT = "base_model.model"
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
    context = Term(name="context", bytes=context_bytes, why="CUDA context, kernels and libraries, outside the allocator")
    unused = usage.peak_reserved_bytes - usage.peak_allocated_bytes
    instants = []
    for name, place in reading.peaks(usage.peak_allocated_at).items():
        binding = place == usage.peak_allocated_at
        beside = {"rounding of blocks": slack, "fragmentation": unused} if binding else {}
        instants.append(Instant(name=name, terms=(*reading.terms(place, beside), context)))
    device = usage.peak_reserved_bytes + context_bytes
    return RankMemory(
        rank="0",
        instants=tuple(instants),
        allocated_bytes=usage.peak_allocated_bytes,
        reserved_bytes=usage.peak_reserved_bytes,
        device_bytes=device,
        needed_bytes=device,
        claimed_bytes=device,
    )


class _Reading:
    """Assigns every allocation of a log to a term of the contract."""

    def __init__(self, log: EventLog, *, serving: bool) -> None:
        self.log = log
        self.serving = serving
        self.backwards = [m.place for m in log.marks if m.name == "backward"]

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

    def terms(self, place: int, beside: dict[str, int]) -> tuple[Term, ...]:
        """The terms alive after event ``place`` with their largest parts; ``beside``: what the allocator holds for no tensor."""
        parts: dict[str, Counter[str]] = defaultdict(Counter)
        for allocation in self.log.alive_at(place):
            term, part = self._name(allocation, place)
            parts[term][part] += allocation.size
        parts["temporaries"].update({name: size for name, size in beside.items() if size})
        return tuple(_term(name, parts[name]) for name in _TERMS if parts[name])

    def _name(self, allocation: Allocation, place: int) -> tuple[str, str]:
        if allocation.category in {"weights", "gradients", "optimizer"}:
            return allocation.category, _kind_of_module(allocation.module) or allocation.category
        if allocation.category == "workspace":
            return "temporaries", allocation.op
        if allocation.category == "inputs":
            return "activations", "inputs"
        if allocation.category in {"gathered", "communication"}:
            return allocation.category, allocation.phase
        if any(name in allocation.op for name in _GATHERED_OPS):
            return "gathered", allocation.phase
        return self._by_life(allocation, place)

    def _by_life(self, allocation: Allocation, place: int) -> tuple[str, str]:
        module = _kind_of_module(allocation.module)
        if allocation.phase in {"forward", "backward"} and _is_loss(module):
            return "loss", f"{allocation.phase}: {module}"
        if allocation.phase == "recompute":
            return "activations", f"recomputed: {module}"
        if allocation.phase == "forward":
            return self._forward(allocation, module, place)
        if allocation.phase == "setup":
            return "weights", "made while the model was built"
        return "temporaries", f"{allocation.phase}: {module or allocation.op}"

    def _forward(self, allocation: Allocation, module: str, place: int) -> tuple[str, str]:
        if self.serving:
            kept = allocation.end < 0 or allocation.end - allocation.start > len(self.log.order) // 8
            return ("kv_cache" if kept else "activations"), module
        end = allocation.end if allocation.end >= 0 else len(self.log.order)
        saved = any(allocation.start < backward <= end for backward in self.backwards)
        return ("activations" if saved else "temporaries"), f"{'' if saved else 'forward: '}{module}"


def _term(name: str, parts: Counter[str]) -> Term:
    largest = parts.most_common(_LARGEST_PARTS)
    rest = sum(parts.values()) - sum(size for _, size in largest)
    terms = [Term(name=part, bytes=size, why=SOURCE) for part, size in largest]
    if rest:
        terms.append(Term(name="smaller parts", bytes=rest, why=f"{len(parts) - len(largest)} more"))
    return Term.total(name, terms, why=f"{gib(sum(parts.values()))} alive at this instant", source=SOURCE)


def _top(peak: list[Allocation], most: int = 15) -> tuple[TopTensor, ...]:
    groups: dict[tuple[str, str, str, str], list[int]] = defaultdict(list)
    for a in peak:
        groups[a.category or a.op, _kind_of_module(a.module), a.phase, a.line].append(a.size)
    ranked = sorted(groups.items(), key=lambda item: -sum(item[1]))[:most]
    return tuple(
        TopTensor(bytes=sum(sizes), count=len(sizes), op=op, module=module, phase=phase, line=line)
        for (op, module, phase, line), sizes in ranked
    )


def _by_module(peak: list[Allocation], most: int = 20) -> tuple[tuple[str, int], ...]:
    sizes: Counter[str] = Counter()
    for allocation in peak:
        sizes[_kind_of_module(allocation.module) or "(no module)"] += allocation.size
    return tuple(sizes.most_common(most))


def _kind_of_module(module: str) -> str:
    """A module's path with layer and expert numbers replaced by ``*``."""
    return ".".join("*" if part.isdigit() else part for part in module.split("."))


def _is_loss(module: str) -> bool:
    """The head, the loss, and what the whole model's own class computes (its path is the class name, or PEFT's wrapping)."""
    last = module.rsplit(".", 1)[-1]
    whole = module == _PEFT_ROOT or ("." not in module and module[:1].isupper())
    return not module or whole or last in _HEADS or "Loss" in last
