"""Two traces set side by side: this one and an earlier one that was kept by ``vramcast trace --json > FILE``."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from vramcast.errors import QuestionError
from vramcast.planning.tracing.answer import Traced
from vramcast.units import MiB
from vramcast.untrusted import parse_json, read_input, shown

_LARGEST_FILE = 64 * MiB
_MOST_MODULES = 8


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One figure in both traces. ``kind``: counter, term or module."""

    kind: str
    name: str
    before_bytes: int
    after_bytes: int

    @property
    def more_bytes(self) -> int:
        """What the newer trace takes beyond the older one."""
        return self.after_bytes - self.before_bytes


class EarlierTrace(msgspec.Struct, frozen=True, kw_only=True):
    """What an earlier trace's JSON says of the rank that needs most, in bytes."""

    counters: dict[str, int]
    terms: dict[str, int]
    modules: dict[str, int]


def read_earlier(file: str) -> EarlierTrace:
    """The figures of a file. Raises QuestionError for one that is no trace's JSON."""
    raw = parse_json(read_input(Path(file), most=_LARGEST_FILE), f"--against {shown(file)}", most=_LARGEST_FILE)
    try:
        worst = max(raw["memory"]["per_gpu"], key=lambda rank: int(rank["allocated_bytes"]))
        return EarlierTrace(
            counters={name: int(worst[f"{name}_bytes"]) for name in ("allocated", "reserved")},
            terms=_summed((term["name"], term["bytes"]) for term in worst["terms"]),
            modules=_summed((part["module"], part["bytes"]) for part in raw["trace"]["by_module"]),
        )
    except (KeyError, TypeError, ValueError) as lack:
        raise QuestionError(f"--against {shown(file)} is no trace: write one by vramcast trace ... --json > FILE") from lack


def _summed(pairs: Iterable[tuple[Any, Any]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, size in pairs:
        found[str(name)] = found.get(str(name), 0) + int(size)
    return found


def changes(kept: EarlierTrace, traced: Traced) -> tuple[Change, ...]:
    """Both counters, every term that differs, and the modules that differ most."""
    worst = traced.answer.worst
    now = EarlierTrace(
        counters={"allocated": worst.allocated_bytes, "reserved": worst.reserved_bytes},
        terms=_summed((term.name, term.bytes) for term in worst.terms),
        modules=dict(traced.reading.by_module),
    )
    counters = _changed("counter", kept.counters, now.counters, all_of_them=True)
    modules = _changed("module", kept.modules, now.modules)[:_MOST_MODULES]
    return (*counters, *_changed("term", kept.terms, now.terms), *modules)


def _changed(kind: str, before: dict[str, int], after: dict[str, int], *, all_of_them: bool = False) -> list[Change]:
    """What differs, the largest difference first; counters in their order, be they equal or not."""
    names = dict.fromkeys((*before, *after))
    found = [Change(kind=kind, name=n, before_bytes=before.get(n, 0), after_bytes=after.get(n, 0)) for n in names]
    if all_of_them:
        return found
    return sorted((change for change in found if change.more_bytes), key=lambda change: -abs(change.more_bytes))
