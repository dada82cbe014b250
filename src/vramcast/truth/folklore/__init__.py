"""The rules of thumb in circulation, each beside the exact answer and a measured one: what they say, and why they are off.

Every entry reproduces the figures that the rule's own assumptions give, so that whoever quotes it finds their number here.
"""

import msgspec


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One number of the rule as people quote it, and from its own assumptions; ``within``: how far rounding may part them."""

    label: str
    said: float
    reproduced: float
    unit: str = "GiB"
    within: float = 0.01


class Exact(msgspec.Struct, frozen=True, kw_only=True):
    """What vramcast answers to the question the rule is used for; ``value`` in ``unit``."""

    label: str
    value: float
    unit: str = "GiB"


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody measured, and where they said so."""

    label: str
    text: str
    source: str


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One rule: its words, its figures reproduced, the exact answer, a measured one, and the line that says why it is off.

    ``quoted``: figures that circulate without any formula, so that there is nothing to reproduce.
    """

    id: str
    rule: str
    figures: tuple[Figure, ...] = ()
    quoted: tuple[str, ...] = ()
    exact: tuple[Exact, ...]
    measured: tuple[Measured, ...] = ()
    why: str


def entries() -> tuple[Entry, ...]:
    """Every rule, in order."""
    from vramcast.truth.folklore.serving import serving_entries
    from vramcast.truth.folklore.speed import speed_entries
    from vramcast.truth.folklore.training import training_entries

    return (*serving_entries(), *training_entries(), *speed_entries())
