"""``vramcast models X --flops``: the work of a forward pass by layer kind, and what other counters make of it."""

import sys

import msgspec

from vramcast.cli.pages.page import Page
from vramcast.errors import QuestionError
from vramcast.models.inventory import Model
from vramcast.models.operations.counts import conventions, forward_counts
from vramcast.units import gib, parse_count


def show(model: Model, *, seq: str, as_json: bool) -> int:
    """Print the counts of one sequence. Raises QuestionError for a length that cannot be."""
    tokens = parse_count(seq, what="--seq")
    if tokens < 1:
        raise QuestionError(f"--seq is {seq}: ask for at least one token")
    if as_json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(_facts(model, tokens)), indent=1) + b"\n")
    else:
        _page(model, tokens).show()
    return 0


def _facts(model: Model, tokens: int) -> dict[str, object]:
    return {
        "schema": "vramcast/1",
        "model": model.id,
        "seq": tokens,
        "forward": [msgspec.to_builtins(row) for row in forward_counts(model, seq=tokens)],
        "conventions": [msgspec.to_builtins(row) for row in conventions(model, seq=tokens)],
    }


def _page(model: Model, tokens: int) -> Page:
    page, rows = Page(), forward_counts(model, seq=tokens)
    total = sum(row.flops for row in rows)
    page.line((model.id, "title"), "  ", (f"one forward pass over {tokens:,} tokens, logits for each, 16-bit weights", "faint"))
    page.heading("By layer kind")
    lines = [(row.part, _flops(row.flops), f"{row.flops / total:.1%}", gib(int(row.read_bytes)), gib(int(row.write_bytes)))
             for row in rows]  # fmt: skip
    head = [("", "forward", "share", "read", "written")]
    whole = [("all", _flops(total), "", gib(int(sum(r.read_bytes for r in rows))), gib(int(sum(r.write_bytes for r in rows))))]
    page.table(head + lines + whole, styles=("", "number", "", "", ""), right=frozenset({1, 2, 3, 4}))
    page.heading("One token of training")
    page.line("  forward and backward  ", (_flops(3 * total / tokens), "number"), "  three times the forward pass")
    page.heading("As others count this pass")
    counted = conventions(model, seq=tokens)
    own = counted[0].flops
    page.table(
        [(row.name, _flops(row.flops), f"{row.flops / own:.2f}", row.because) for row in counted],
        styles=("", "number", "", "faint"), right=frozenset({1, 2}),
    )  # fmt: skip
    return page


def _flops(number: float) -> str:
    for unit, size in (("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6)):
        if number >= size:
            return f"{number / size:,.2f} {unit}"
    return f"{number:,.0f} FLOP"
