"""Two traces before and after a change: the parts of the time, classes, kernels and collectives that differ most."""

from collections.abc import Iterable

import msgspec

from vramcast.profiling.report import Report

_MOST_ROWS = 15


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One quantity in both traces: seconds per step where both have steps, of the span otherwise; None: not in that trace."""

    what: str
    before_s: float | None
    after_s: float | None

    @property
    def difference_s(self) -> float:
        """After less before."""
        return (self.after_s or 0.0) - (self.before_s or 0.0)


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two traces side by side. ``per_step``: whether the figures are per step; ``speedup``: before over after, of the total."""

    before: str
    after: str
    per_step: bool
    speedup: float
    total: Change
    parts: tuple[Change, ...]
    classes: tuple[Change, ...]
    kernels: tuple[Change, ...]
    collectives: tuple[Change, ...]


def compare(before: Report, after: Report) -> Comparison:
    """What changed between two traces, by seconds."""
    per_step = len(before.steps) > 0 and len(after.steps) > 0
    scale_before, scale_after = (_scale(before), _scale(after)) if per_step else (1.0, 1.0)

    def changes(first: dict[str, float], second: dict[str, float]) -> tuple[Change, ...]:
        names = list(dict.fromkeys([*first, *second]))
        found = [
            Change(
                what=name,
                before_s=first[name] * scale_before if name in first else None,
                after_s=second[name] * scale_after if name in second else None,
            )
            for name in names
        ]
        return tuple(sorted(found, key=lambda c: -abs(c.difference_s))[:_MOST_ROWS])

    total = changes({"total": before.where.span_s}, {"total": after.where.span_s})[0]
    return Comparison(
        before=before.file,
        after=after.file,
        per_step=per_step,
        speedup=(total.before_s or 0.0) / total.after_s if total.after_s else 0.0,
        total=total,
        parts=changes(parts_of(before), parts_of(after)),
        classes=changes(*({row.name: row.seconds for row in r.classes} for r in (before, after))),
        kernels=changes(*(_by_name((row.name, row.seconds) for row in r.kernels) for r in (before, after))),
        collectives=changes(*(_by_name((row.name, row.seconds) for row in r.collectives) for r in (before, after))),
    )


def _scale(report: Report) -> float:
    return 1 / len(report.steps)


def _by_name(rows: Iterable[tuple[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for name, seconds in rows:
        sums[name] = sums.get(name, 0.0) + seconds
    return sums


def parts_of(report: Report) -> dict[str, float]:
    """The parts that sum to the span, in the order they are shown; seconds."""
    where = report.where
    return {
        "compute": where.compute_s,
        "exposed communication": where.exposed_communication_s,
        "exposed copies": where.exposed_copies_s,
        **{f"idle: {cause}": seconds for cause, seconds in where.idle.items()},
    }
