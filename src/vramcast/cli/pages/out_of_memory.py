"""An out-of-memory message as a page: who held what of the card, how much was missing, what to change."""

from vramcast.cli.pages.page import Page
from vramcast.reading.out_of_memory import OutOfMemory
from vramcast.units import gib


def out_of_memory_page(found: OutOfMemory) -> Page:
    """The message taken apart."""
    page = Page()
    card = f"GPU {found.gpu}" if found.gpu is not None else "the card"
    short = f", {gib(found.short_bytes)} more than was free" if found.short_bytes else ""
    page.line((f"{found.backend} out of memory", "bad"), f"  one request for {gib(found.wanted_bytes)} on {card}{short}")
    if found.moment:
        page.line("  while ", (found.moment.doing, "title"), f": {found.moment.holds}", hang=2)
    parts = _parts(found)
    page.heading("Who held the card")
    if found.capacity_bytes:
        page.bar([(style, size) for _, style, size in parts], total=found.capacity_bytes, label=gib(found.capacity_bytes, 1))
    for words, style, size in parts:
        page.line("  ", (words.ljust(44), style), (gib(size).rjust(12), "number"))
    if found.free_bytes is not None:
        page.line("  ", "free".ljust(44), (gib(found.free_bytes).rjust(12), "number"))
    page.heading("What to change")
    for advice in found.advice():
        page.line("  ", advice)
    return page


def _parts(found: OutOfMemory) -> list[tuple[str, str, int]]:
    rows = [
        ("tensors (allocated)", "weights", found.allocated_bytes),
        ("cached by PyTorch, not in use", "temporaries", found.cached_bytes),
        ("this process outside PyTorch (context, NCCL)", "context", found.outside_bytes),
        ("other processes", "communication", found.others_bytes),
        ("outside PyTorch (context, libraries, others)", "context", found.unexplained_bytes),
    ]
    return [(words, style, size) for words, style, size in rows if size]
