"""Names and shapes of traces folded into stacks of numbered layers, with the rule that says which layer is of which kind."""

import itertools
from collections.abc import Iterator
from typing import Any

from symbols import Expression
from tracing import Trace, numbered

from vramcast.models.config import Config
from vramcast.models.families.derived_fields import Fields

Signature = tuple[tuple[str, tuple[Expression, ...], bool], ...]


def growing(base: Trace, grown: Trace) -> set[str]:
    """Prefixes under which the second build has more numbered modules; the outermost of each name."""
    found = set()
    for name in grown.how.keys() - base.how.keys():
        outer = next((p for p, n, _ in numbered(name) if p in base.counts and n >= base.counts[p]), None)
        if outer is not None:
            found.add(outer)
    return found


def layers(trace: Trace, prefix: str) -> list[Signature]:
    """What each numbered module under that prefix holds."""
    held: dict[int, list[Any]] = {i: [] for i in range(trace.counts.get(prefix, 0))}
    for name, how in trace.how.items():
        if not name.startswith(prefix):
            continue
        for p, n, rest in numbered(name):
            if p == prefix:
                held[n].append((rest, how, name in trace.frozen))
    return [tuple(held[i]) for i in sorted(held)]


def rest(trace: Trace, prefixes: set[str]) -> Signature:
    """What stands outside of those stacks."""
    return tuple(
        (name, how, name in trace.frozen)
        for name, how in trace.how.items()
        if not any(p in prefixes for p, _, _ in numbered(name))
    )


def kinds(seen: list[tuple[dict[str, Any], Trace]], prefix: str) -> list[tuple[Any, Signature]] | None:
    """(rule, what such a layer holds) for each kind of layer, the last rule True; None where no rule tells them apart.

    ``seen`` are configs with what was built of them: a rule must hold in all.
    """
    stacks = [(raw, layers(trace, prefix)) for raw, trace in seen]
    distinct = [*dict.fromkeys(s for _, each in stacks for s in each)]
    found: list[tuple[Any, Signature]] = []
    for kind in distinct[:-1]:
        rule = next((r for r in _rules(*stacks[0]) if _tells(r, kind, stacks, distinct[: distinct.index(kind)])), None)
        if rule is None:
            return None
        found.append((rule, kind))
    return [*found, (True, distinct[-1])] if distinct else None


def _tells(rule: Any, kind: Signature, stacks: list[Any], before: list[Signature]) -> bool:
    for raw, held in stacks:
        fields = Fields(Config(raw), _known(raw), {})
        for i, each in enumerate(held):
            if each not in before and bool(fields.of(rule, i, len(held))) != (each == kind):
                return False
    return True


def _known(raw: dict[str, Any], path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in raw.items():
        found |= _known(value, f"{path}{name}.") if isinstance(value, dict) else {f"{path}{name}": value}
    return found


def _rules(raw: dict[str, Any], held: list[Signature]) -> Iterator[Any]:
    """Rules that might tell kinds of layers apart, the plainest first."""
    known, total = _known(raw), len(held)
    yield from (["==", "#", 0], ["!=", "#", 0], ["==", "#", ["-", "##", 1]], ["!=", "#", ["-", "##", 1]])
    for path, value in known.items():
        if isinstance(value, list) and len(value) >= total and all(isinstance(v, str | bool | int) for v in value):
            yield from (["at", path, v] for v in dict.fromkeys(value))
        if isinstance(value, list) and all(isinstance(v, int) for v in value):
            yield from (["in", path], ["not", ["in", path]])
    wholes: list[Any] = [p for p, v in known.items() if isinstance(v, int) and not isinstance(v, bool) and 0 < v <= total + 4]
    for bound in itertools.chain(wholes, range(1, total)):
        yield from (["<", "#", bound], [">=", "#", bound], [">=", "#", ["-", "##", bound]], ["<", "#", ["-", "##", bound]])
    for step in itertools.chain(wholes, range(2, total)):
        turn = ["%", "#", step]
        yield from (["==", turn, r] for r in range(min(total, 8)))
        yield ["==", ["%", ["+", "#", 1], step], 0]
        yield from (["!=", turn, r] for r in range(min(total, 8)))
        yield ["!=", ["%", ["+", "#", 1], step], 0]
