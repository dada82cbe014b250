"""What a plan of servers and one of trainings have in common: how far the search went, and what it leaves to be said."""

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from vramcast.ledger import Assumption, RankMemory, shown_in
from vramcast.planning.plans.offers import YOURS, Offer


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """``meets``: whether the limits asked for are kept; where not, what comes nearest is ranked.

    ``tried``: choices of ``structures``; ``refused``: reasons with how many structures each left out. ``nearest``: where nothing
    fits, the structure that is least short and by how many bytes of a card. ``memory``: of the best one's ranks. ``without``: the
    cards offered on which nothing does the job.
    """

    meets: bool = True
    tried: int = 0
    structures: int = 0
    refused: dict[str, int] = {}
    nearest: tuple[str, int] | None = None
    memory: tuple[RankMemory, ...] = ()
    without: tuple[str, ...] = ()
    assumed: tuple[Assumption, ...] = ()

    shown_by: ClassVar[tuple[str, str, str]]
    """The functions that show it: its page and where that stands, and its object."""

    def page(self, *, terminal: bool | None = None) -> Any:
        """The plan as people read it (a ``cli.pages.page.Page``)."""
        return getattr(shown_in(self.shown_by[0]), self.shown_by[1])(self, terminal=terminal)

    def to_dict(self) -> dict[str, Any]:
        """The object that ``--json`` prints."""
        found: dict[str, Any] = getattr(shown_in("plan_json"), self.shown_by[2])(self)
        return found

    def __str__(self) -> str:
        return str(self.page(terminal=False).text())


UNKNOWN_PRICE = "unknown"


def prices_taken(offers: Sequence[Offer]) -> tuple[Assumption, ...]:
    """What is taken for the hour of a card where the user said nothing, and which cards have no price."""
    told = [
        Assumption("price", f"${o.usd_per_hour:g}/h for {o.card.name}", o.priced) for o in offers
        if o.usd_per_hour is not None and o.priced != YOURS
    ]  # fmt: skip
    without = [o.card.name for o in offers if o.usd_per_hour is None]
    if without:
        names = ", ".join(without)
        why = f"{names}: no public price is known here; say yours, --gpu '{without[0]}@2.50'"
        told.append(Assumption("price", UNKNOWN_PRICE, why))
    return tuple(told)
