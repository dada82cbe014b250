"""The memory of a run over its events: bytes by term and bytes reserved, thinned to what can be drawn.

Each of the equal stretches of the run is shown at its highest moment, so that the peak is always there.
"""

from collections import Counter

import msgspec

from vramcast.tracing.allocator.replay import reserved_over
from vramcast.tracing.allocator.settings import AllocatorSettings
from vramcast.tracing.eventlog import EventLog, Mark
from vramcast.tracing.reports.terms import TERMS, Naming

_MOMENTS = 600


class History(msgspec.Struct, frozen=True, kw_only=True):
    """``terms``: for each term its bytes at the ``places``, largest-lived terms first; ``reserved`` at the same places."""

    places: tuple[int, ...]
    terms: dict[str, tuple[int, ...]]
    reserved: tuple[int, ...]
    marks: tuple[Mark, ...]


def history(
    log: EventLog, settings: AllocatorSettings | None = None, *, serving: bool = False, moments: int = _MOMENTS
) -> History:
    """The history of a log in at most so many moments."""
    places = _highest_moments(log, moments)
    terms = _by_term(log, places, serving=serving)
    reserved = reserved_over(log, settings)
    return History(
        places=tuple(places),
        terms={name: tuple(terms[name]) for name in TERMS if any(terms[name])},
        reserved=tuple(reserved[place] for place in places),
        marks=tuple(log.marks),
    )


def _highest_moments(log: EventLog, moments: int) -> list[int]:
    """The place of the most live bytes in each of ``moments`` stretches of equal length."""
    step = max(1, -(-len(log.order) // moments))
    live, best, found = 0, -1, []
    for place, event in enumerate(log.order):
        size = log.allocations[abs(event) - 1].size
        live += size if event > 0 else -size
        if place % step == 0:
            best = -1
            found.append(place)
        if live > best:
            best, found[-1] = live, place
    return found


def _by_term(log: EventLog, places: list[int], *, serving: bool) -> dict[str, list[int]]:
    naming, live = Naming(log, serving=serving), Counter[str]()
    names = [naming.name(allocation)[0] for allocation in log.allocations]
    found: dict[str, list[int]] = {name: [] for name in TERMS}
    wanted = iter([*places, -1])
    next_place = next(wanted)
    for place, event in enumerate(log.order):
        size = log.allocations[abs(event) - 1].size
        live[names[abs(event) - 1]] += size if event > 0 else -size
        if place == next_place:
            next_place = next(wanted)
            for name, values in found.items():
                values.append(live[name])
    return found
