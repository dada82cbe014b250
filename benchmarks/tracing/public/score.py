"""Outcomes beside the published figures: errors, shares by source, and the rows that were not executed."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median

import msgspec

from public.case import Outcome
from public.cases import RefusedError, case_of, figures, rows

GIB = 2**30


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One published figure and what was traced."""

    id: str
    source: str
    measure: str
    measured_gib: float
    traced_gib: float

    @property
    def error(self) -> float:
        """Traced / published - 1."""
        return self.traced_gib / self.measured_gib - 1


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """How near the points of a source come."""

    source: str
    measure: str
    rows: int
    median: float
    within_1: float
    within_3: float


def points(truth: Path, traced: dict[str, Outcome]) -> list[Point]:
    """Every figure of the executed rows."""
    return [
        Point(
            id=row["id"],
            source=source_of(row["facts"]["source"]),
            measure=f"{measure}, compiled" if row["settings"].get("compile") is True else measure,
            measured_gib=value,
            traced_gib=_bytes(traced[row["id"]], measure) / GIB,
        )
        for row in rows(truth)
        if row["id"] in traced and not traced[row["id"]].error
        for measure, value in figures(row).items()
    ]


def _bytes(outcome: Outcome, measure: str) -> int:
    return outcome.allocated_bytes if measure.startswith("allocated") else outcome.reserved_bytes


def source_of(text: str) -> str:
    """Owner and repository of a source."""
    path = text.removeprefix("https://").removeprefix("github.com/")
    return "/".join(path.replace(":", "/").split(" ")[0].split("/")[:2])


def shares(found: list[Point]) -> Iterator[Share]:
    """All points of a counter, then those of each source."""
    for measure in sorted({point.measure for point in found}):
        yield share("all", measure, [point for point in found if point.measure == measure])
    groups = defaultdict[tuple[str, str], list[Point]](list)
    for point in found:
        groups[point.source, point.measure].append(point)
    for (source, measure), of_source in sorted(groups.items(), key=lambda item: -len(item[1])):
        yield share(source, measure, of_source)


def share(source: str, measure: str, found: list[Point]) -> Share:
    """The shares of some points."""
    errors = [abs(point.error) for point in found]
    return Share(
        source=source,
        measure=measure,
        rows=len(errors),
        median=median(errors) if errors else 0.0,
        within_1=_part(errors, 0.01),
        within_3=_part(errors, 0.03),
    )


def _part(errors: list[float], limit: float) -> float:
    return sum(error <= limit for error in errors) / len(errors) if errors else 0.0


def refused(truth: Path, traced: dict[str, Outcome]) -> Iterable[tuple[str, str]]:
    """The rows without an outcome and why."""
    for row in rows(truth):
        try:
            case_of(row)
        except RefusedError as reason:
            yield row["id"], str(reason)
            continue
        found = traced.get(row["id"])
        if found is None:
            yield row["id"], "its turn has not come: `against_public.py` goes on where it stopped"
        elif found.error:
            yield row["id"], f"the program failed: {found.error[:90]}"
