"""``vramcast gpus``: the cards, one line each; with a name, everything known about one, each number with its source."""

import sys
from typing import Any

import click
import msgspec

from vramcast.cli.page import Page
from vramcast.hardware.accelerator import Accelerator
from vramcast.units import GB, GiB

_EPILOG = """\b
Examples:
  vramcast gpus
  vramcast gpus --at-least 48GiB
  vramcast gpus 4090
  vramcast gpus local --json
"""
_MAKERS = {"NVIDIA": 0, "AMD": 1, "Intel": 2, "Apple": 3}


@click.command(epilog=_EPILOG)
@click.argument("name", required=False)
@click.option("--at-least", metavar="SIZE", help="Only cards with that much memory visible to a program (for example 48GiB).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(name: str | None, at_least: str | None, as_json: bool) -> int:
    """List the cards, or show the one called NAME (`local` reads this machine's)."""
    from vramcast.hardware.cards import least_card
    from vramcast.hardware.catalogue import catalogue

    if name:
        card = _whole_local() if name.strip().lower() == "local" else least_card(name)
        _print_json({"schema": "vramcast/1", "gpu": msgspec.to_builtins(card)}) if as_json else _draw_one(card)
        return 0
    from vramcast.units import parse_bytes

    least = parse_bytes(at_least, what="--at-least") if at_least else 0
    found = (c for c in catalogue().values() if c.visible_bytes >= least)
    cards = sorted(found, key=lambda c: (_MAKERS.get(c.vendor, len(_MAKERS)), c.vendor, c.visible_bytes, c.id))
    _print_json({"schema": "vramcast/1", "gpus": [msgspec.to_builtins(c) for c in cards]}) if as_json else _draw_list(cards)
    return 0


def _whole_local() -> Accelerator:
    """This machine's least card with all its memory, whoever holds some of it."""
    from vramcast.hardware.detection import local_cards

    return min((found.card for found in local_cards()), key=lambda card: card.visible_bytes)


def _draw_list(cards: list[Accelerator]) -> None:
    page = Page()
    header = ("card", "visible", "bandwidth", "bf16 dense", "fp8", "year")
    rows = [
        (
            c.name,
            f"{c.visible_bytes / GiB:.1f} GiB",
            f"{c.bandwidth_bytes_per_s / 1e9:,.0f} GB/s",
            _rate(c, "bf16"),
            _rate(c, "fp8"),
            str(c.year or ""),
        )
        for c in cards
    ]
    page.table([header, *rows], styles=("title", "number"), right=frozenset({1, 2, 3, 4}))
    page.show()


def _rate(card: Accelerator, kind: str) -> str:
    return f"{card.flops[kind] / 1e12:,.0f} TFLOP/s" if card.flops.get(kind) else "-"


def _draw_one(card: Accelerator) -> None:
    page = Page()
    page.line((card.name, "title"), f"  {card.vendor} {card.architecture}", (f"  id {card.id}", "faint"))
    page.heading("Memory")
    rows = [
        ("as sold", _as_sold(card.sold_bytes)),
        ("nvidia-smi total", f"{card.driver_bytes / GiB:.2f} GiB"),
        ("seen by a program", f"{card.visible_bytes / GiB:.2f} GiB"),
        ("bandwidth", f"{card.bandwidth_bytes_per_s / 1e9:,.0f} GB/s"),
    ]
    page.table(rows, styles=("", "number"))
    page.heading("Dense rates")
    page.table(
        [(kind, f"{rate / 1e12:,.1f} TFLOP/s") for kind, rate in card.flops.items()], styles=("", "number"), right=frozenset({1})
    )
    if card.inferred:
        page.blank()
        page.line(("worked out by a rule, not read: " + ", ".join(card.inferred), "faint"))
    if card.note:
        page.line((card.note, "faint"))
    page.show()


def _as_sold(size_bytes: int) -> str:
    """Most cards are sold by the GiB and labelled GB; the B300 by the GB."""
    return f"{size_bytes / GiB:.0f} GiB" if size_bytes % GiB == 0 else f"{size_bytes / GB:.0f} GB"


def _print_json(value: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")
