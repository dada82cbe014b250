"""The cards that a question names: which one decides, how many there are, and what was assumed in reading their names."""

import msgspec

from vramcast.ledger import Assumption


class NamedCards(msgspec.Struct, frozen=True, kw_only=True):
    """``gpu``: the card that decides, None when none was named; ``count``: how many, 0 for none."""

    gpu: str | None = None
    count: int = 0
    assumed: tuple[Assumption, ...] = ()


def named_cards(text: str | None) -> NamedCards:
    """Cards from text such as ``H100x8`` or ``RTX 5090, RTX 4090``: of several kinds the one with least memory decides.

    Raises QuestionError for unknown names and counts out of range; MissingError for ``local`` without NVML.
    """
    if text is None:
        return NamedCards()
    from vramcast.hardware.cards import parse_gpus

    found = parse_gpus(text)
    kinds = sorted({c.name for c in found.cards})
    mixed = (Assumption("gpu", ", ".join(kinds), "of cards of several kinds, the one with least memory decides"),)
    least = min(found.cards, key=lambda c: c.visible_bytes).id.removeprefix("custom-")
    return NamedCards(
        gpu="local" if text.strip().lower() == "local" else least,
        count=len(found.cards),
        assumed=(*found.assumed, *(mixed if len(kinds) > 1 else ())),
    )
