"""``vramcast serve --curve``: throughput against latency as more and more users share a server."""

import sys

import msgspec

from vramcast.asking.asked import Asked
from vramcast.asking.curves import curve
from vramcast.cli.pages.page import Page
from vramcast.units import time_text
from vramcast.workload import Serving

_WIDEST = 40


def show_curve(asked: Asked[Serving], *, as_json: bool) -> int:
    """Print the curve. Raises QuestionError without a card."""
    points = curve(asked)
    if as_json:
        sys.stdout.buffer.write(
            msgspec.json.format(msgspec.json.encode({"schema": "vramcast/1", "curve": points}), indent=1) + b"\n"
        )
        return 0
    page = Page()
    page.heading("Throughput against latency")
    most = max(point["tokens_per_s"] for point in points)
    head = ("users", "first token", "per token", "tokens/s each", "tokens/s in all", "")
    rows = [
        (f"{p['concurrency']:,}", time_text(p["ttft_s"]), time_text(p["tpot_s"]), f"{1 / p['tpot_s']:,.1f}",
         f"{p['tokens_per_s']:,.0f}", "#" * round(_WIDEST * p["tokens_per_s"] / most))
        for p in points
    ]  # fmt: skip
    page.table([head, *rows], styles=("", "number", "number", "number", "number", "faint"), right=frozenset({0, 1, 2, 3, 4}))
    page.show()
    return 0
