"""The cards of a question: one name or several, with counts ("H100x8", "2xL40S", "RTX 5090, RTX 4090"), or this machine's."""

import re
from typing import TYPE_CHECKING

import msgspec

from vramcast.errors import QuestionError
from vramcast.hardware.accelerator import Accelerator
from vramcast.hardware.machines import machine_cards
from vramcast.hardware.names import fitting, is_size, match_accelerator
from vramcast.ledger import Assumption
from vramcast.units import gib

if TYPE_CHECKING:
    from vramcast.hardware.detection import LocalCard

MOST_CARDS = 100_000
_ITEMS = re.compile(r"(?:[^,(+]|(?<! )\+|\+(?! )|\([^)]*\)?)+")


class Cards(msgspec.Struct, frozen=True, kw_only=True):
    """The cards of a question, one entry per card, and what was taken for granted in reading their names."""

    cards: tuple[Accelerator, ...]
    assumed: tuple[Assumption, ...] = ()


def parse_gpus(text: str) -> Cards:
    """Cards from ``NAME``, ``NAMExN``, ``NxNAME``, several of them, or a cloud instance; ``local`` reads this machine's.

    Raises QuestionError for unknown names, a count of zero, or more than 100,000 cards; MissingError for ``local`` without NVML.
    """
    cards: list[Accelerator] = []
    assumed: list[Assumption] = []
    if not any(item.strip() for item in text[:10_000].split(",")):
        raise QuestionError(f'{text[:40]!r} names no GPU: write for example "RTX 4090", H100x8 or 24GB')
    if text.strip().lower() == "local":
        return _local()
    if machine := machine_cards(text[:100]):
        found = parse_gpus(machine)
        told = Assumption("gpu", machine, f"the cards of {text.strip()}")
        return Cards(cards=found.cards, assumed=(told,))
    for item in _ITEMS.findall(text[:10_000]):
        name, count = _counted(item)
        if not 1 <= count <= MOST_CARDS:
            raise QuestionError(f"GPU count {count} in {item.strip()[:40]!r} is out of range: expected 1 to {MOST_CARDS}")
        card, notes = match_accelerator(name)
        cards += [card] * count
        assumed += notes
    return Cards(cards=tuple(cards), assumed=tuple(assumed))


def least_card(text: str) -> Accelerator:
    """Of the cards that the text names the one with least memory, which decides. Raises as parse_gpus."""
    return min(parse_gpus(text).cards, key=lambda card: card.visible_bytes)


def _counted(item: str) -> tuple[str, int]:
    """The name and the count of ``NAMExN`` or ``NxNAME``; an x inside a name ("MI300X", "rtx 4090") is no count."""
    if fitting(item):
        return item, 1
    patterns = (r"\s*(?P<count>\d+)\s*[x*\u00d7]\s*(?P<name>.+)", r"\s*(?P<name>.+?)\s*[x*:\u00d7]\s*(?P<count>\d+)\s*")
    matches = [match for pattern in patterns if (match := re.fullmatch(pattern, item, re.IGNORECASE))]
    named = [match for match in matches if fitting(match["name"])] or [m for m in matches if is_size(m["name"])]
    return (named[0]["name"], int(named[0]["count"])) if named else (item, 1)


def _local() -> Cards:
    """The cards of this machine less what other processes hold on them, which is told as an assumption."""
    from vramcast.hardware.detection import local_cards

    found = local_cards()
    notes = tuple(Assumption("gpu", card.card.name, _told(card)) for card in found)
    return Cards(cards=tuple(card.left for card in found), assumed=notes)


def _told(card: "LocalCard") -> str:
    taken = f"; the {gib(card.used_bytes)} that others hold are taken off" if card.used_bytes else ""
    return f"read from this machine's driver; {card.summary}{taken}"
