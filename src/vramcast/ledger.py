"""The ledger: every estimate is an ordered tree of named terms that sums to its total; nobody types a total by hand.

A ``Term`` carries bytes, the formula with its numbers in it (``why``) and where the rule comes from (``source``).
An ``Instant`` is a moment of a run (start-up, steady state, end of forward, optimizer step ...) with the terms alive at it;
a peak is a maximum over instants, never a sum of maxima. Three counters are never mixed: ``allocated`` (tensors),
``reserved`` (the allocator's segments) and ``device`` (what nvidia-smi shows); nor what a run *needs* with what an engine
*claims*.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from vramcast.units import gib


class Term(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A named number of bytes with its reason; ``terms`` are its parts and sum to it."""

    name: str
    bytes: int
    why: str
    source: str = ""
    terms: tuple["Term", ...] = ()

    @classmethod
    def total(cls, name: str, parts: Iterable["Term"], *, why: str = "", source: str = "") -> "Term":
        """The term whose bytes are the sum of its parts."""
        terms = tuple(parts)
        return cls(name=name, bytes=sum(t.bytes for t in terms), why=why or _sum_text(terms), source=source, terms=terms)

    def walk(self, depth: int = 0) -> Iterator[tuple[int, "Term"]]:
        """This term and everything below it, with depths, in order."""
        yield depth, self
        for term in self.terms:
            yield from term.walk(depth + 1)

    def find(self, name: str) -> "Term | None":
        """The first term of that name in this tree, or None."""
        return next((t for _, t in self.walk() if t.name == name), None)


class Instant(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of a run and what is alive then."""

    name: str
    terms: tuple[Term, ...]

    @property
    def bytes(self) -> int:
        """Sum of the terms alive at this moment."""
        return sum(t.bytes for t in self.terms)

    def without(self, *names: str) -> int:
        """Bytes of this instant less the top-level terms of those names."""
        return sum(t.bytes for t in self.terms if t.name not in names)


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """Where the measured value falls with probability ``coverage``, learned from ``cases`` measured runs of this kind."""

    low_bytes: int
    high_bytes: int
    coverage: float
    cases: int


class Assumption(msgspec.Struct, frozen=True):
    """Something the question left open and what was taken for it."""

    name: str
    value: object
    because: str


class Unmodelled(msgspec.Struct, frozen=True):
    """Something known to exist that no rule covers, with the largest size it can have when that is known."""

    what: str
    bound_bytes: int | None = None


class RankMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of one GPU: its instants, its three counters, what it needs and what its engine claims.

    ``first_step_bytes``: allocated peak of the very first training step, before the optimizer has states; None for serving.
    ``outside``: what the instants do not hold (library workspaces, idle segments, context); with the peak it is ``device_bytes``.
    """

    rank: str
    instants: tuple[Instant, ...]
    allocated_bytes: int
    reserved_bytes: int
    device_bytes: int
    needed_bytes: int
    claimed_bytes: int
    interval: Interval | None = None
    first_step_bytes: int | None = None
    outside: tuple[Term, ...] = ()

    @property
    def terms(self) -> tuple[Term, ...]:
        """The ledger of the peak: what is alive then and what lies outside any tensor, one term a name."""
        named: dict[str, list[Term]] = {}
        for term in (*self.peak.terms, *self.outside):
            named.setdefault(term.name, []).append(term)
        return tuple(same[0] if len(same) == 1 else _joined(name, same) for name, same in named.items())

    @property
    def peak(self) -> Instant:
        """The instant that binds: the largest."""
        return max(self.instants, key=lambda i: i.bytes)

    @property
    def runner_up(self) -> Instant | None:
        """The instant that would bind if the peak were lowered; None where there is only one."""
        return max((i for i in self.instants if i is not self.peak), key=lambda i: i.bytes, default=None)


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict: ``fits``, ``tight`` (probability between 5 and 95 %), ``no`` or ``unknown`` (no card named).

    ``refused``: the engine does not start on the card or with a format, whatever memory there is; ``error`` says why.
    """

    verdict: str
    probability: float | None = None
    capacity_bytes: int | None = None
    binding: str = ""
    margin_bytes: int | None = None
    error: str = ""
    refused: bool = False


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """One change that would help: what it saves, what it costs, whether the run surely fits after it, and the verdict then."""

    change: str
    saves_bytes: int
    costs: str
    then_fits: bool
    then_verdict: str = ""


def _joined(name: str, same: list[Term]) -> Term:
    return Term.total(name, same, why="; ".join(t.why for t in same))


def _sum_text(terms: tuple[Term, ...]) -> str:
    return " + ".join(f"{t.name} {gib(t.bytes)}" for t in terms)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How far the question can be pushed before it stops fitting; None where a limit does not apply."""

    max_context: int | None = None
    max_concurrency: float | None = None
    max_micro_batch: int | None = None
    cache_tokens: int | None = None
    cache_bytes: int | None = None


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The model in the answer: what it is and what it was read from."""

    id: str
    parameters: int
    active_parameters: int
    layers: int
    source: str


class CardRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table of cards (and, in training, layouts) that hold the workload."""

    gpu: str
    gpus: int
    verdict: str
    needed_bytes: int
    capacity_bytes: int
    probability: float | None = None
    cloud_usd_per_hour: float = 0
    layout: str = ""


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer, from any level of evidence: resolved inputs, ledgers per rank, verdict, limits, speed, advice."""

    workload: dict[str, Any]
    model: ModelFacts
    ranks: tuple[RankMemory, ...]
    fit: Fit
    limits: Limits
    assumed: tuple[Assumption, ...] = ()
    unmodelled: tuple[Unmodelled, ...] = ()
    advice: tuple[Advice, ...] = ()
    speed: dict[str, Any] = {}
    host: tuple[Term, ...] = ()
    cards: tuple[CardRow, ...] = ()

    @property
    def worst(self) -> RankMemory:
        """The rank that needs most."""
        return max(self.ranks, key=lambda r: r.needed_bytes)
