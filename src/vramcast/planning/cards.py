"""The table of cards that hold a workload, when no card was named: fewest cards first, then the smallest.

Only parts the catalogue describes fully are offered (their year is known: data-centre and common consumer parts), no laptops and
none that few can buy (``Accelerator.rare``, regional variants). Of one size of memory those that give most bandwidth for their
price are kept: two by the hour, four to buy, because decoding follows bandwidth; of a model sold in several forms, one.
"""

import re
from collections.abc import Callable, Iterator

import msgspec

from vramcast.errors import VramcastError
from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import CardRow
from vramcast.models.inventory import Model
from vramcast.planning.verdict import exit_code, serving_fit
from vramcast.serving.engines.base import answer_of, plugin_of, why_not
from vramcast.workload import Serving

COUNTS = (1, 2, 4, 8)
MOST = 16
_MOST_SHARING = 2
_REGIONAL = re.compile(r" D$|^[AH]800\b| Laptop\b")  # the same part under another name for one market, or inside a laptop
_MOST_RENTED, _MOST_BOUGHT = 3, 4


def cards_that_hold(question: Serving, model: Model, *, most: int = MOST) -> tuple[CardRow, ...]:
    """Cards of the catalogue, in the smallest of 1, 2, 4 or 8 of them, that serve the question; at most ``most`` rows.

    A first pass compares what each tensor-parallel width needs with each card's memory; the rows shown are then
    forecast on their own card.
    """
    own: list[CardRow] = []
    sharing: list[CardRow] = []
    for card, gpus in _candidates(question, model, offered(lambda card: _surely_runs(question.engine, card))):
        into, room = (sharing, _MOST_SHARING) if card.unified else (own, most)
        if len(own) == most == 1:
            break
        row = _row(question, model, card, gpus) if len(into) < room and not (card.unified and gpus > 1) else None
        if row is not None:
            into.append(row)
    return tuple(sorted((*own[: max(1, most - len(sharing))], *sharing), key=lambda row: row.gpus))[:most]


def _surely_runs(engine: str, card: Accelerator) -> bool:
    """Whether the engine's own build starts on the card: a plugin's chip is answered when it is named, and never proposed."""
    return not why_not(engine, card) and not plugin_of(engine, card)


def offered(suits: Callable[[Accelerator], bool]) -> tuple[Accelerator, ...]:
    """Fully described cards that suit, a few of each size of memory; one where the memory is the host's too."""
    from vramcast.hardware.accelerator import catalogue

    sizes: dict[tuple[int, bool], list[Accelerator]] = {}
    for card in catalogue().values():
        if card.year and not card.rare and suits(card) and not _REGIONAL.search(card.name):
            sizes.setdefault((card.sold_bytes, card.unified), []).append(card)
    return tuple(card for alike in sizes.values() for card in _worth_most(alike))


def _worth_most(alike: list[Accelerator]) -> list[Accelerator]:
    """Of cards with as much memory those with most bandwidth for an hour's price, then for their own; else the newest."""
    if alike[0].unified:
        return sorted(alike, key=lambda c: (not c.price_usd, -c.year, c.id))[:1]
    rented = sorted((c for c in alike if c.cloud_usd_per_hour), key=lambda c: -c.bandwidth_bytes_per_s / c.cloud_usd_per_hour)
    bought = sorted((c for c in alike if c.price_usd), key=lambda c: -c.bandwidth_bytes_per_s / c.price_usd)
    chosen = [*_one_form(rented)[:_MOST_RENTED], *_one_form(bought)[:_MOST_BOUGHT]]
    return _one_form(chosen or sorted(alike, key=lambda c: -c.year)[:_MOST_RENTED])


def _one_form(cards: list[Accelerator]) -> list[Accelerator]:
    """The first of each model: an A100 is listed once, SXM or PCIe."""
    return list({card.keys[:1]: card for card in reversed(cards)}.values())[::-1]


def _candidates(question: Serving, model: Model, cards: tuple[Accelerator, ...]) -> Iterator[tuple[Accelerator, int]]:
    needs = {gpus: need for gpus in COUNTS if (need := _need(question, model, gpus)) is not None}
    smallest: list[tuple[int, int, str, Accelerator]] = []
    for card in cards:
        gpus = next((g for g, need in needs.items() if need < card.visible_bytes), None)
        if gpus is not None:
            smallest.append((gpus, card.visible_bytes, card.id, card))
    yield from ((card, gpus) for gpus, _, _, card in sorted(smallest, key=lambda row: row[:3]))


def _need(question: Serving, model: Model, gpus: int) -> int | None:
    try:
        answer = answer_of(_on(question, gpus), model=model, card=None)
    except VramcastError:
        return None
    return max(r.needed_bytes for r in answer.ranks)


def _row(question: Serving, model: Model, card: Accelerator, gpus: int) -> CardRow | None:
    try:
        answer = answer_of(_on(question, gpus), model=model, card=card)
    except VramcastError:
        return None
    fit = serving_fit(answer, card)
    if exit_code(fit):
        return None
    return CardRow(
        gpu=card.name,
        gpus=gpus,
        verdict=fit.verdict,
        needed_bytes=max(r.needed_bytes for r in answer.ranks),
        capacity_bytes=card.visible_bytes,
        probability=fit.probability,
        cloud_usd_per_hour=card.cloud_usd_per_hour,
        bandwidth_bytes_per_s=card.bandwidth_bytes_per_s,
    )


def _on(question: Serving, gpus: int) -> Serving:
    parallel = msgspec.structs.replace(question.parallel, tp=gpus // question.parallel.pp or 1)
    return msgspec.structs.replace(question, gpus=gpus, parallel=parallel)
