"""``vramcast topology``: how the cards of a machine are joined, and which parallel groups and times follow."""

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from vramcast.cli.help.grouped import CONTEXT, GroupedCommand
from vramcast.cli.pages.page import Page
from vramcast.cli.structs import print_struct
from vramcast.errors import MissingError, QuestionError
from vramcast.hardware.placement import Groups, Placement, suggest
from vramcast.hardware.topology import LEGEND, MOST_CHARACTERS, Topology, farness, is_direct, parse_topology
from vramcast.units import KiB, MiB

_EPILOG = """\b
Examples:
  vramcast topology                                this machine's (nvidia-smi, rocm-smi)
  nvidia-smi topo -m | vramcast topology - --gpu H100
  vramcast topology topo.txt --gpu A100-80G --json
"""
_COMMANDS = (
    ("nvidia-smi", "topo", "-m"),
    ("rocm-smi", "--showtopo"),
    ("npu-smi", "info", "-t", "topo"),
    ("mx-smi", "topo", "-m"),
)
_SIZES = (64 * KiB, MiB, 16 * MiB, 256 * MiB)
_STYLES = {1: "good", 2: "number", 3: "number", 4: "warn", 5: "warn", 6: "bad"}
_MOST_DRAWN = 16


@click.command(cls=GroupedCommand, epilog=_EPILOG, context_settings=CONTEXT)
@click.argument("what", required=False, metavar="[FILE|-]")
@click.option("--gpu", metavar="NAME", help="Which card it is: gives the links' rates and the times of collectives.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(what: str | None, gpu: str | None, as_json: bool) -> int:
    """Read a machine's topology: links, islands, NUMA nodes, network cards, and the parallel groups that they suggest.

    From a pasted `nvidia-smi topo -m`, `rocm-smi --showtopo`, `npu-smi info -t topo` or `mx-smi topo`, or live without a word.
    """
    from vramcast.hardware.cards import least_card

    topology = parse_topology(_text(what))
    card = least_card(gpu) if gpu else None
    placement = suggest(topology)
    times = _times(topology, placement, card)
    if as_json:
        islands = topology.islands()
        more = {"islands": islands, "pairs": topology.pairs(), "placement": placement, "all_reduce": times}
        print_struct("topology", topology, **more)
    else:
        _page(topology, placement, card, times).show()
    return 0


def _text(what: str | None) -> str:
    if what is None:
        return _live()
    if what == "-":
        return sys.stdin.buffer.read(MOST_CHARACTERS + 1).decode("utf-8", "replace")
    try:
        with Path(what).expanduser().open("rb") as source:
            return source.read(MOST_CHARACTERS + 1).decode("utf-8", "replace")
    except OSError as error:
        raise QuestionError(f"cannot read {what}: {error.strerror}") from None


def _live() -> str:
    """What this machine's own tool prints."""
    import shutil
    import subprocess

    found = next((words for words in _COMMANDS if shutil.which(words[0])), None)
    if found is None:
        raise MissingError(
            "no nvidia-smi, rocm-smi, npu-smi or mx-smi here: paste what another machine prints, `vramcast topology -`"
        )
    try:
        done = subprocess.run(found, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingError(f"`{' '.join(found)}` does not answer ({error})") from None
    if done.returncode:
        reason = (done.stderr or done.stdout).strip()[:200]
        raise MissingError(f"`{' '.join(found)}` failed: {reason or done.returncode}")
    return done.stdout


def _times(topology: Topology, placement: Placement, card: Any) -> list[dict[str, Any]]:
    """Seconds of an all-reduce in the first tensor-parallel group, by size; empty without a card."""
    group = placement.groups[0].groups[0] if placement.groups[0].groups else ()
    if card is None or len(group) < 2:
        return []
    from vramcast.speed.kernels.collectives import all_reduce

    rate = _slowest(topology, group, card)
    joined = msgspec.structs.replace(card, link_bytes_per_s=rate)
    found = []
    for size in _SIZES:
        estimate = all_reduce(card=joined, world=len(group), size_bytes=float(size))
        found.append({"ranks": len(group), "bytes": size, "seconds": float(estimate.seconds), "link_bytes_per_s": rate})
    return found


def _slowest(topology: Topology, group: tuple[int, ...], card: Any) -> float:
    """Bytes per second one way of the slowest pair in a group; a card's own rate where its links are not counted (XGMI)."""
    pairs = [(i, j) for i in group for j in group if i < j]
    rates = [_rate(topology, i, j, card) for i, j in pairs]
    return min(rates)


def _rate(topology: Topology, first: int, second: int, card: Any) -> float:
    link = topology.links[first][second]
    if is_direct(link) and not link.startswith("NV"):
        return float(card.link_bytes_per_s or card.host_link_bytes_per_s)
    return topology.bytes_per_s(
        first, second, capability=card.capability or (8, 0), host_link_bytes_per_s=card.host_link_bytes_per_s
    )


def _page(topology: Topology, placement: Placement, card: Any, times: list[dict[str, Any]]) -> Page:
    page = Page()
    page.line((f"{topology.cards} card{'s' if topology.cards > 1 else ''}", "title"), f"  {card.name}" if card else "")
    page.blank()
    _matrix(page, topology)
    page.blank()
    for link, count in topology.pairs().items():
        about = LEGEND.get("NV" if link.startswith("NV") else link, "")
        pair = next((i, j) for i in range(topology.cards) for j in range(i) if topology.links[i][j] == link)
        peers = "" if link.startswith("NV") or not is_direct(link) else " to all peers together"
        rate = f", {_rate(topology, *pair, card) / 1e9:,.0f} GB/s one way{peers}" if card else ""
        page.line(
            "  ", (link.ljust(6), _STYLES[farness(link)]), f"{count} pair{'s' if count > 1 else ''}  ", (about + rate, "faint")
        )
    _places(page, topology, placement)
    _suggestions(page, placement)
    if times:
        page.heading(f"All-reduce over {times[0]['ranks']} cards of such a group (NCCL, forecast)")
        page.table(
            [(_size(t["bytes"]), f"{t['seconds'] * 1e6:,.0f} us") for t in times],
            styles=("title", "number"),
            right=frozenset({0, 1}),
        )
    return page


def _size(size_bytes: int) -> str:
    return f"{size_bytes // MiB} MiB" if size_bytes >= MiB else f"{size_bytes // KiB} KiB"


def _matrix(page: Page, topology: Topology) -> None:
    """The pairs as a coloured triangle, for as many cards as a screen holds."""
    shown = min(topology.cards, _MOST_DRAWN)
    page.line("        ", *((f"{i:>5} ", "faint") for i in range(shown)))
    for i in range(shown):
        cells = [
            (f"{topology.links[i][j] if j != i else '·':>5} ", _STYLES.get(farness(topology.links[i][j]), "faint"))
            for j in range(shown)
        ]
        page.line((f"  GPU{i:<3}", "title"), *cells)
    if shown < topology.cards:
        page.line("  ", (f"and {topology.cards - shown} more cards (--json has all)", "faint"))


def _places(page: Page, topology: Topology, placement: Placement) -> None:
    page.heading("Where they sit")
    rows = [("islands of direct links", "  ".join(_span(g) for g in topology.islands() if len(g) > 1) or "none")]
    nodes = {
        node: [i for i in range(topology.cards) if topology.numa[i] == node] for node in dict.fromkeys(topology.numa) if node
    }
    if nodes:
        rows.append(("NUMA nodes", "  ".join(f"{node}: GPU {_span(cards)}" for node, cards in nodes.items())))
    rows.append(("network cards", f"{len(topology.nics)}" if topology.nics else "none in the listing"))
    page.table(rows, styles=("", "title"))
    for names in dict.fromkeys(placement.nics):
        cards = [i for i in range(topology.cards) if placement.nics[i] == names]
        if names and len(names) < len(topology.nics):
            link = next(n for n in topology.nics if n.name == names[0]).links[cards[0]]
            page.line("    ", (f"GPU {_span(cards)}: {', '.join(names)} ({link})", "faint"))


def _suggestions(page: Page, placement: Placement) -> None:
    page.heading("What it suggests")
    for found in placement.groups:
        page.line(
            "  ",
            (found.kind, "title"),
            f"  {_groups_text(found)}  ",
            (page.fitted(found.because, used=len(found.kind) + len(_groups_text(found)) + 8), "faint"),
        )
    for text in placement.cautions:
        import textwrap

        for n, line in enumerate(textwrap.wrap(text, max(40, page.width - 5))):
            page.line("  ", ("! " if not n else "  ", "warn"), line)


def _groups_text(found: Groups) -> str:
    if found.kind.startswith("pipeline"):
        return f"{found.size} between the groups"
    return f"{found.size} in {'  '.join(_span(group) for group in found.groups[:8])}"


def _span(cards: Any) -> str:
    """``0-3`` for neighbours, a list otherwise."""
    cards = list(cards)
    neighbours = len(cards) > 2 and cards == list(range(cards[0], cards[-1] + 1))
    return f"{cards[0]}-{cards[-1]}" if neighbours else ",".join(map(str, cards))
