"""Cards that a plan may use: which, how many, what an hour of one costs, and who says so."""

from collections.abc import Collection, Sequence

import msgspec

from vramcast.hardware.accelerator import Accelerator

YOURS = "yours"


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """``most``: cards that may be taken; ``usd_per_hour``: of one card, None where no price is known; ``priced``: by whom."""

    card: Accelerator
    most: int
    usd_per_hour: float | None = None
    priced: str = ""


def offer_of(card: Accelerator, *, most: int, usd_per_hour: float | None = None) -> Offer:
    """A card at the user's price, else at the catalogue's dated public one, which is marked so."""
    if usd_per_hour is not None:
        return Offer(card=card, most=most, usd_per_hour=usd_per_hour, priced=YOURS)
    if not card.cloud_usd_per_hour:
        return Offer(card=card, most=most)
    return Offer(card=card, most=most, usd_per_hour=card.cloud_usd_per_hour, priced=f"list price of {card.cloud_priced}")


_FILLED = 0.85  # of a card that weights may take: the rest is for a cache, peaks and graphs
_NODE, _NODES, _LARGE_BYTES, _MOST_UNPRICED = 8, 16, 75 * 2**30, 5


def offers_that_hold(weights_bytes: float, *, most: int) -> tuple[Offer, ...]:
    """Where no card was named: rented ones of which a node holds the weights; else two nodes, and the largest cards unpriced.

    ``weights_bytes``: of the smallest weights that an engine of the plan loads.
    """
    node = min(most, _NODE)
    held = tuple(one for one in usual_offers(most=node) if node * one.card.visible_bytes * _FILLED >= weights_bytes)
    if held:
        return held
    from vramcast.planning.cards import offered

    large = offered(lambda card: card.visible_bytes >= _LARGE_BYTES and card.vendor in ("NVIDIA", "AMD") and not card.unified)
    rented = [offer_of(card, most=min(most, _NODES)) for card in large if card.cloud_usd_per_hour]
    others = [offer_of(card, most=node) for card in large if not card.cloud_usd_per_hour]
    room = sorted((one for one in others if one.most * one.card.visible_bytes * _FILLED >= weights_bytes), key=_memory)
    return (*rented, *room[:_MOST_UNPRICED])


def _memory(offer: Offer) -> tuple[int, str]:
    return offer.card.visible_bytes, offer.card.id


def usual_offers(*, most: int) -> tuple[Offer, ...]:
    """Cards that are rented by the hour at a public price, a few of each size of memory."""
    from vramcast.planning.cards import offered

    cards = offered(lambda card: card.vendor in ("NVIDIA", "AMD") and bool(card.cloud_usd_per_hour))
    return tuple(offer_of(card, most=most) for card in sorted(cards, key=lambda card: (card.visible_bytes, card.id)))


def without_a_job(offers: Sequence[Offer], cards: Collection[str]) -> tuple[str, ...]:
    """The offers of cards that are not among ``cards`` (ids of those that do the job), as a person reads them."""
    return tuple(f"{offer.most} x {offer.card.name}" for offer in offers if offer.card.id not in cards)
