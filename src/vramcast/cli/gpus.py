"""``vramcast gpus``: the cards, one line each; one name shows all of a card, several set cards side by side."""

import sys
from typing import Any

import click
import msgspec

from vramcast.cli.help.grouped import CONTEXT, GroupedCommand
from vramcast.cli.pages.page import Page
from vramcast.hardware.accelerator import Accelerator
from vramcast.units import GB, GiB

_EPILOG = """\b
Examples:
  vramcast gpus
  vramcast gpus --at-least 48GiB
  vramcast gpus --sort bandwidth
  vramcast gpus 4090
  vramcast gpus A100-40G 4090 L40S
  vramcast gpus local --json
"""
_MAKERS = {"NVIDIA": 0, "AMD": 1, "Intel": 2, "Apple": 3}


_SORTS = ("memory", "bandwidth", "bf16", "fp8", "fp32", "price", "cloud", "power", "year", "name")
_MOST_BESIDE = 6


@click.command(cls=GroupedCommand, epilog=_EPILOG, context_settings=CONTEXT)
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("--at-least", metavar="SIZE", help="Only cards with that much memory visible to a program (for example 48GiB).")
@click.option("--sort", type=click.Choice(_SORTS), help="Order of the list, the most first; price, cloud and power the least.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(names: tuple[str, ...], at_least: str | None, sort: str | None, as_json: bool) -> int:
    """List the cards, show the one called NAME (`local` reads this machine's), or set several side by side."""
    cards = _named(names)
    if len(cards) == 1:
        _print_json({"schema": "vramcast/1", "gpu": msgspec.to_builtins(cards[0])}) if as_json else _draw_one(
            cards[0], " ".join(names)
        )
        return 0
    listed = _sorted(cards or _listed(at_least), sort) if sort or not cards else cards
    if as_json:
        _print_json({"schema": "vramcast/1", "gpus": [_with_kernels(c) if cards else msgspec.to_builtins(c) for c in listed]})
    elif 1 < len(cards) <= _MOST_BESIDE:
        from vramcast.cli.pages.gpus_beside import beside_page

        beside_page(listed).show()
    else:
        _draw_list(listed)
    return 0


def _named(names: tuple[str, ...]) -> list[Accelerator]:
    """The cards of the words: several words may be one name (RTX 4090). Raises QuestionError for an unknown one."""
    from vramcast.hardware.cards import fitting, least_card

    if len(names) > 1 and fitting(" ".join(names)):
        names = (" ".join(names),)
    return [_whole_local() if name.strip().lower() == "local" else least_card(name) for name in names]


def _listed(at_least: str | None) -> list[Accelerator]:
    """The catalogue by maker and memory, from that much memory on."""
    from vramcast.hardware.accelerator import catalogue
    from vramcast.units import parse_bytes

    least = parse_bytes(at_least, what="--at-least") if at_least else 0
    found = (c for c in catalogue().values() if c.visible_bytes >= least)
    return sorted(found, key=lambda c: (_MAKERS.get(c.vendor, len(_MAKERS)), c.vendor, c.visible_bytes, c.id))


def _sorted(cards: list[Accelerator], by: str | None) -> list[Accelerator]:
    """The cards in that order; those whose figure is unknown come last."""
    if by is None:
        return cards
    if by == "name":
        return sorted(cards, key=lambda c: c.name)
    least_first = by in {"price", "cloud", "power"}
    figures = {c.id: _figure(c, by) for c in cards}
    return sorted(cards, key=lambda c: (not figures[c.id], figures[c.id] if least_first else -figures[c.id], c.name))


def _figure(card: Accelerator, by: str) -> float:
    """What a card is sorted by; 0 when it is unknown."""
    fields = {
        "memory": card.visible_bytes,
        "bandwidth": card.bandwidth_bytes_per_s,
        "price": card.price_usd,
        "cloud": card.cloud_usd_per_hour,
        "power": card.tdp_w,
        "year": card.year,
    }
    return float(fields[by] if by in fields else card.flops.get(by, 0.0))


def _with_kernels(card: Accelerator) -> dict[str, Any]:
    """A card with the verdict about each format and kernel."""
    from vramcast.hardware.accelerator import RULES, capability

    return {**msgspec.to_builtins(card), "runs": {name: capability(card, name).verdict for name in RULES}}


def _whole_local() -> Accelerator:
    """This machine's least card with all its memory, whoever holds some of it."""
    from vramcast.hardware.cards import local_cards

    return min((found.card for found in local_cards()), key=lambda card: card.visible_bytes)


def _draw_list(cards: list[Accelerator]) -> None:
    page = Page()
    header = ("card", "GiB visible", "GB/s", "bf16 dense", "fp8", "USD/h", "year")
    rows = [
        (
            c.name.removeprefix("GeForce "),
            f"{c.visible_bytes / GiB:.1f}",
            f"{c.bandwidth_bytes_per_s / 1e9:,.0f}",
            _rate(c, "bf16"),
            _rate(c, "fp8"),
            f"{c.cloud_usd_per_hour:.2f}" if c.cloud_usd_per_hour else "-",
            str(c.year or ""),
        )
        for c in cards
    ]
    page.table([header, *rows], styles=("title", "number"), right=frozenset({1, 2, 3, 4, 5}))
    page.line(("  rates in TFLOP/s, dense", "faint"))
    page.show()


def _rate(card: Accelerator, kind: str) -> str:
    return f"{card.flops[kind] / 1e12:,.0f}" if card.flops.get(kind) else "-"


def _draw_one(card: Accelerator, name: str) -> None:
    from vramcast.cli.pages.gpus_beside import facts_of
    from vramcast.hardware.cards import fitting

    page = Page()
    maker = card.architecture if card.architecture.startswith(card.vendor) else f"{card.vendor} {card.architecture}"
    page.line((card.name, "title"), f"  {maker}".rstrip(), (f"  id {card.id}", "faint"))
    page.heading("Memory, GiB")
    whole = "nvidia-smi total" if card.vendor == "NVIDIA" else "all of it"
    sizes = ((whole, card.driver_bytes), ("seen by a program", card.visible_bytes))
    rows = [("as sold", _as_sold(card.sold_bytes)), *((what, f"{size / GiB:.2f}") for what, size in sizes)]
    page.table(rows, styles=("", "number"), right=frozenset({1}))
    for title, figures in facts_of(card):
        if figures:
            page.heading(title)
            page.table(figures, styles=("", "number"), right=frozenset({1}))
    notes = [f"worked out by a rule, not read: {', '.join(dict.fromkeys(card.inferred))}"] if card.inferred else []
    others = [other.name for other in fitting(name) if other.name != card.name]
    notes += [f"{name!r} may also be {', '.join(others)}"] if others else []
    for note in (*notes, *([card.note] if card.note else [])):
        page.line((note, "faint"))
    page.show()


def _as_sold(size_bytes: int) -> str:
    """Most cards are sold by the GiB and labelled GB; the B300 by the GB."""
    return f"{size_bytes / GiB:.2f}" if size_bytes % GiB == 0 else f"{size_bytes / GB:.0f} GB"


def _print_json(value: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")
