"""A row held against its class: one field after the other, then several at once; what does not hold is refused at run time."""

import inspect
import random
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import rows
import switches
from rows import Raw, Study
from tracing import Trace

from vramcast.errors import VramcastError
from vramcast.models.config import Config
from vramcast.models.families.derived import Condition, Row, described, unmet
from vramcast.models.families.derived_fields import Fields

_ACTIVATIONS = ("gelu", "relu", "silu")
_SEEDS = 10


def agrees(row: Row, raw: Raw, trace: Trace, architecture: str) -> bool:
    """Whether the row gives each parameter of that build its name and shape."""
    try:
        model = described(Config({**raw, "architectures": [architecture]}), row)
    except VramcastError:
        return False
    ours = {name: t.shape for name, t in model.all_tensors() if t.kind != "buffer"}
    if row.text is None:
        return ours == trace.shapes
    prefix = row.text[1]
    outside = [{n: s for n, s in each.items() if not n.startswith(prefix)} for each in (ours, trace.shapes)]
    return outside[0] == outside[1] and model.parameters == sum(_size(s) for s in trace.shapes.values())


def _size(shape: tuple[int, ...]) -> int:
    total = 1
    for each in shape:
        total *= each
    return total


def bare(row: Row) -> Row:
    """The row without what it refuses."""
    return msgspec.structs.replace(row, conditions=(), only={})


def other_values(study: Study, path: str) -> Iterator[Any]:
    """Values to try in place of a field's own."""
    value = study.base.fields.get(path)
    name = path.rpartition(".")[2]
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (v for v in (value * 2, value + 1, value // 2, value + 2, value + 8, value - 1) if v > 0 and v != value)
    elif isinstance(value, float):
        yield from (value * 2, value / 2)
    elif isinstance(value, str) and "act" in name:
        yield from (v for v in _ACTIVATIONS if v != value)
    elif isinstance(value, str):
        yield from (v for v in _options(study, name) if v != value)
    elif isinstance(value, list | tuple) and value:
        yield from _other_lists([*value])
    elif value is None:
        yield from (64, 4, True)


def _other_lists(value: list[Any]) -> Iterator[list[Any]]:
    if all(isinstance(v, int) and not isinstance(v, bool) for v in value):
        yield [v * 2 for v in value]
        yield [v + 1 for v in value]
    if len({*map(str, value)}) > 1:
        yield value[::-1]


def _options(study: Study, name: str) -> list[str]:
    """The words that the class's file compares such a field with."""
    written = inspect.getsource(inspect.getmodule(study.cls))  # type: ignore[arg-type]
    found = re.findall(rf"config\.{re.escape(name)}\s*(?:==|!=)\s*\"([^\"]+)\"", written)
    return [*dict.fromkeys(found)]


class Check:
    """One row under examination."""

    def __init__(self, study: Study, row: Row, drop: str | None) -> None:
        self.study, self.row, self.drop = study, row, drop
        self.values: dict[str, Any] = {}
        self.compared = 0

    def holds(self, raw: Raw, trace: Trace) -> bool:
        """Whether the row is right of that build, or refuses it; conditions that a right answer breaks are dropped."""
        self.compared += 1
        fields = Fields(Config(raw), self.row.fields, self.row.aliases)
        try:
            broken = [*unmet(self.row, fields)]
        except VramcastError:
            return True
        if not agrees(bare(self.row), raw, trace, self.study.cls.__name__):
            return bool(broken)
        kept = tuple(c for c in self.row.conditions if c not in broken)
        self.row = msgspec.structs.replace(self.row, conditions=kept)
        return True

    def field(self, path: str) -> None:
        """Try other values of one field: what they change is joined to the row where it can be, else only its own is admitted."""
        tried = 0
        for value in other_values(self.study, path):
            raw = rows.put(self.study.raw, path, value)
            trace = self.study.tried(raw)
            if trace is None:
                continue
            tried += 1
            if not self.holds(raw, trace) and not self._switch(path, value, raw, trace):
                self._keep(path)
                return
            self.values[path] = value
            if not isinstance(value, str):
                break
        base = self.study.base.fields.get(path)
        if isinstance(base, str) and "act" not in path:
            self._admit(path, [base, *(other_values(self.study, path) if tried else ())])
        elif not tried and path not in self._used():
            self._keep(path)

    def _switch(self, path: str, value: Any, raw: Raw, trace: Trace) -> bool:
        base = self.study.base.fields.get(path)
        if not isinstance(value, bool | str) and base is not None:
            return False
        put = ((rows.put(old, path, value), grown) for old, _, grown in self.study.seen[1:])
        seen = [(r, t, grown) for r, grown in put if (t := self.study.tried(r)) is not None]
        when = (path, "set" if base is None and not isinstance(value, bool) else value)
        try:
            other = rows.row_of(self.study, trace, [(raw, trace, frozenset()), *seen], self.drop)
            joined = switches.joined(self.row, other, (path, base), when, self.study.base.fields)
        except LookupError:
            return False
        if not agrees(bare(joined), raw, trace, self.study.cls.__name__):
            return False
        self.row = msgspec.structs.replace(joined, conditions=(*joined.conditions, *self._new(trace, when)))
        return True

    def _new(self, trace: Trace, when: tuple[str, Any]) -> tuple[Condition, ...]:
        """Comparisons that the class makes only with that value."""
        known = {(c.sign, c.left, c.right) for c in self.row.conditions}
        return tuple(c for c in rows.conditions(trace, (when,)) if (c.sign, c.left, c.right) not in known)

    def _used(self) -> set[str]:
        return set(used(self.row))

    def _keep(self, path: str) -> None:
        self._admit(path, [self.study.base.fields.get(path)])

    def _admit(self, path: str, values: list[Any]) -> None:
        self.row = msgspec.structs.replace(self.row, only={**self.row.only, path: values})

    def together(self) -> None:
        """Several fields at once: whichever makes the row wrong is admitted with its own value alone."""
        for seed in range(_SEEDS):
            chance = random.Random(f"{self.study.cls.__name__} {seed}")
            chosen = {p: v for p, v in self.values.items() if p not in self.row.only and chance.random() < 0.35}
            self._narrow(chosen)

    def _narrow(self, chosen: dict[str, Any]) -> None:
        raw, trace = self._with(chosen)
        while trace is None and len(chosen) > 1:
            chosen = dict([*chosen.items()][: len(chosen) // 2])
            raw, trace = self._with(chosen)
        if trace is None or self.holds(raw, trace):
            return
        for path in sorted(chosen, key=self._cost):
            fewer = {p: v for p, v in chosen.items() if p != path}
            raw, trace = self._with(fewer)
            if trace is not None and self.holds(raw, trace):
                self._keep(path)
                return
        for path in chosen:
            self._keep(path)

    def _cost(self, path: str) -> tuple[int, int]:
        """How much is lost when a field is admitted with one value only: widths are what configs differ in most."""
        value = self.study.base.fields[path]
        rank = next(i for i, kind in enumerate((bool, type(None), str, list, tuple, float, int)) if isinstance(value, kind))
        return rank, sum(path in str(p.dims) for p in self.row.tensors)

    def _with(self, chosen: dict[str, Any]) -> tuple[Raw, Trace | None]:
        raw = self.study.raw
        for path, value in chosen.items():
            raw = rows.put(raw, path, value)
        return raw, self.study.tried(raw)


def used(row: Row) -> Iterator[str]:
    """Every field that a row looks at."""
    pieces = [*row.tensors, *(p for s in row.stacks for _, held in s.variants for p in held)]
    hows = [d for p in pieces for d in p.dims] + [s.count for s in row.stacks] + [r for s in row.stacks for r, _ in s.variants]
    hows += [each for s in row.stacks for each in s.attends or ()] + [row.hidden, row.vocab, row.positions]
    hows += [side for c in row.conditions for side in (c.left, c.right)]
    whens = [path for each in (*pieces, *row.stacks, *row.conditions) for path, _ in each.when]
    paths = {p for how in hows for p in rows.paths_in(how)} | {*whens} | {*row.only} | ({row.tied[0]} if row.tied[0] else set())
    yield from paths
