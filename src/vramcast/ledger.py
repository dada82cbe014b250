"""The ledger: every estimate is an ordered tree of named terms that sums to its total; nobody types a total by hand.

A ``Term`` carries bytes or seconds, the formula with its numbers in it (``why``) and where the rule comes from (``source``).
An ``Instant`` is a moment of a run (start-up, steady state, end of forward, optimizer step ...) with the terms alive at it;
a peak is a maximum over instants, never a sum of maxima. Three counters are never mixed: ``allocated`` (tensors),
``reserved`` (the allocator's segments) and ``device`` (what nvidia-smi shows); nor what a run *needs* with what an engine
*claims*.
"""

import importlib
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from vramcast.quantity import BYTES, SECONDS, Number, Quantity, Unit, element, is_array, where, whole
from vramcast.units import gib, time_text


class Term:
    """A named amount with its reason: bytes in a ledger of memory, seconds in one of time; ``terms`` are its parts and sum to it.

    Give the amount as ``bytes``, as ``seconds``, or as ``amount``, a quantity that knows its unit and writes its own formula; a
    value may be an array, one element per layout. ``why`` is text, or a function that writes it when it is read.
    ``slack``: how far the amount may be off because a factor in it rests on few cases, in its unit; 0 where none does.
    Terms are values: never change one, ``renamed`` and ``at`` make another.
    """

    __slots__ = ("_why", "name", "slack", "source", "terms", "unit", "value")

    def __init__(
        self,
        *,
        name: str,
        bytes: Number = None,  # noqa: A002 (the field's own word)
        seconds: Number = None,
        amount: Quantity | None = None,
        why: str | Quantity | Callable[[], str] = "",
        source: str = "",
        terms: tuple["Term", ...] = (),
        slack: float = 0,
    ) -> None:
        self.name, self.source, self.terms, self.slack = name, source, terms, slack
        if amount is not None:
            self.unit, self.value = amount.unit, whole(amount.value) if amount.unit == BYTES else amount.value
            self._why: str | Quantity | Callable[[], str] = why or amount
        else:
            self.unit, self.value = (BYTES, bytes) if seconds is None else (SECONDS, seconds)
            self._why = why

    @classmethod
    def total(
        cls, name: str, parts: Iterable["Term"], *, why: str | Callable[[], str] = "", source: str = "", unit: Unit = BYTES
    ) -> "Term":
        """The term whose amount is the sum of its parts. Raises TypeError when their units differ."""
        terms = tuple(parts)
        units = {t.unit for t in terms}
        if len(units) > 1:
            raise TypeError(f"{name}: parts of different units cannot be added")
        value = sum(t.value for t in terms)
        text = why or (lambda: _sum_text(terms))
        if (units or {unit}) == {SECONDS}:
            return cls(name=name, seconds=value, why=text, source=source, terms=terms)
        return cls(name=name, bytes=value, why=text, source=source, terms=terms)

    @property
    def bytes(self) -> int:
        """The amount in bytes (an array of them where layouts are asked together). Raises TypeError for a term of time."""
        if self.unit != BYTES:
            raise TypeError(f"{self.name} is no number of bytes")
        size: int = self.value
        return size

    @property
    def seconds(self) -> float:
        """The amount in seconds (an array of them where layouts are asked together). Raises TypeError for a term of memory."""
        if self.unit != SECONDS:
            raise TypeError(f"{self.name} is no time")
        time: float = self.value
        return time

    @property
    def why(self) -> str:
        """The formula with its numbers in it, written when it is read."""
        if isinstance(self._why, str):
            return self._why
        return self._why.why if isinstance(self._why, Quantity) else self._why()

    @property
    def amount(self) -> Quantity:
        """The amount as a quantity: its expression where it was given as one, else one named number."""
        if isinstance(self._why, Quantity) and self._why.unit == self.unit:
            return self._why
        return Quantity(self.value, self.unit, "leaf", (self.name,))

    def renamed(self, name: str) -> "Term":
        """The same amount under another name."""
        return self._with(name=name)

    def at(self, index: Any) -> "Term":
        """The term of one element where amounts are arrays; ``index`` as NumPy takes it."""
        why = self._why.at(index) if isinstance(self._why, Quantity) else self._why
        value = element(self.value, index)
        return self._with(value=value, why=why, terms=tuple(t.at(index) for t in self.terms))

    def walk(self, depth: int = 0) -> Iterator[tuple[int, "Term"]]:
        """This term and everything below it, with depths, in order."""
        yield depth, self
        for term in self.terms:
            yield from term.walk(depth + 1)

    def find(self, name: str) -> "Term | None":
        """The first term of that name in this tree, or None."""
        return next((t for _, t in self.walk() if t.name == name), None)

    def _with(self, **changed: Any) -> "Term":
        term = object.__new__(Term)
        given = {"name": self.name, "source": self.source, "terms": self.terms, "unit": self.unit, "value": self.value}
        given["slack"] = self.slack
        for field, value in {**given, "why": self._why, **changed}.items():
            setattr(term, "_why" if field == "why" else field, value)
        return term

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Term):
            return NotImplemented
        same = self.name == other.name and self.unit == other.unit and self.source == other.source
        return same and bool(self.value == other.value) and self.why == other.why and self.terms == other.terms

    def __hash__(self) -> int:
        return hash((self.name, self.unit, self.source, self.terms))

    def __repr__(self) -> str:
        return f"Term({self.name}: {self.amount!r})"


def either(condition: Number, yes: Iterable[Term], no: Iterable[Term]) -> tuple[Term, ...]:
    """The terms that hold: ``yes`` or ``no``, and for an array of conditions both by name, each element with its own amount."""
    if not is_array(condition):
        return tuple(yes if condition else no)
    kept, other = {t.name: t for t in yes}, {t.name: t for t in no}
    return tuple(_one_of(condition, name, kept.get(name), other.get(name)) for name in {**kept, **other})


def _one_of(condition: Number, name: str, yes: Term | None, no: Term | None) -> Term:
    value = where(condition, yes.value if yes else 0, no.value if no else 0)
    return Term(name=name, bytes=value, why=lambda: " or ".join(t.why for t in (yes, no) if t))


class Instant(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of a run and what is alive then."""

    name: str
    terms: tuple[Term, ...]

    @property
    def bytes(self) -> int:
        """Sum of the terms alive at this moment."""
        return sum(t.bytes for t in self.terms)

    def at(self, index: Any) -> "Instant":
        """The moment of one element where amounts are arrays."""
        return Instant(name=self.name, terms=tuple(t.at(index) for t in self.terms))

    def without(self, *names: str) -> int:
        """Bytes of this instant less the top-level terms of those names."""
        return sum(t.bytes for t in self.terms if t.name not in names)


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """Where the measured value falls with probability ``coverage``, learned from ``cases`` measured runs of this kind.

    ``low`` and ``high`` are in the unit of what they stand beside: bytes, seconds, tokens per second.
    """

    low: float
    high: float
    coverage: float
    cases: int

    @property
    def low_bytes(self) -> int:
        """The lower end of a number of bytes."""
        return math.floor(self.low)

    @property
    def high_bytes(self) -> int:
        """The upper end of a number of bytes."""
        return math.ceil(self.high)

    def as_dict(self, unit: str = "bytes") -> dict[str, Any]:
        """The contract's object, the unit in the names: low_bytes and high_bytes, low_s and high_s, or low and high."""
        if unit == "bytes":
            return {"low_bytes": self.low_bytes, "high_bytes": self.high_bytes, "coverage": self.coverage, "cases": self.cases}
        mark = f"_{unit}" if unit else ""
        return {f"low{mark}": self.low, f"high{mark}": self.high, "coverage": self.coverage, "cases": self.cases}


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

    def at(self, index: Any) -> "RankMemory":
        """The memory of one element where amounts are arrays (one layout of many)."""
        counters = ("allocated_bytes", "reserved_bytes", "device_bytes", "needed_bytes", "claimed_bytes")
        return msgspec.structs.replace(
            self,
            instants=tuple(i.at(index) for i in self.instants),
            outside=tuple(t.at(index) for t in self.outside),
            **{name: element(getattr(self, name), index) for name in counters},
        )

    @property
    def peak(self) -> Instant:
        """The instant that binds: the largest."""
        return max(self.instants, key=lambda i: i.bytes)

    @property
    def runner_up(self) -> Instant | None:
        """The instant that would bind if the peak were lowered; None where there is only one."""
        return max((i for i in self.instants if i is not self.peak), key=lambda i: i.bytes, default=None)


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict: ``fits``, ``tight`` (50 to 95 % likely), ``partly`` (starts, serves less than asked), ``no`` or ``unknown``.

    ``refused``: the engine does not start on the card or with a format, whatever memory there is; ``error`` says why, and with
    ``partly`` how much is served, or what of the model the engine leaves on the host. ``unknown``: no card was named. The rules
    are in ``planning/verdict.py``.
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
    return Term.total(name, same, why=lambda: "; ".join(t.why for t in same))


def _sum_text(terms: tuple[Term, ...]) -> str:
    return " + ".join(f"{t.name} {time_text(t.value) if t.unit == SECONDS else gib(t.value)}" for t in terms)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How far the question can be pushed before it stops fitting; None where a limit does not apply.

    ``max_concurrency``: sequences of the whole context at once on all cards; ``max_requests``: requests of the prompt and output
    asked. ``cache_tokens``, ``cache_bytes``: of one cache, as an engine's log prints them; data-parallel ranks have one each.
    """

    max_context: int | None = None
    max_concurrency: float | None = None
    max_requests: float | None = None
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
    bandwidth_bytes_per_s: float = 0


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

    def to_dict(self) -> dict[str, Any]:
        """The object that ``--json`` prints."""
        contract: dict[str, Any] = shown_in("output").as_contract(self)
        return contract

    def __str__(self) -> str:
        return str(shown_in("pages.answer").answer_page(self, terminal=False).text())

    def __repr__(self) -> str:
        on = f" on {self.workload['gpu']}" if self.workload.get("gpu") else ""
        return f"<Forecast {self.model.id}{on}: {self.fit.verdict}, needs {gib(self.worst.needed_bytes)}>"

    def _repr_html_(self) -> str:
        return str(shown_in("pages.html").answer_html(self))


def shown_in(name: str) -> Any:
    """The module that shows answers so: it stands above the ledger, and is loaded only when an answer is shown."""
    return importlib.import_module(f"vramcast.cli.{name}")
