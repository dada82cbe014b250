"""The store of outcomes: one line of JSON per row, whole at every moment."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from public.case import Outcome

ROOT = Path(__file__).parents[3]
KEPT = ROOT / "truth" / "traced" / "public.jsonl"


def outcomes() -> dict[str, Outcome]:
    """What was traced before, by row."""
    lines = KEPT.read_bytes().splitlines() if KEPT.exists() else ()
    return {found.id: found for found in (msgspec.json.decode(line, type=Outcome) for line in lines)}


def keep(found: Iterable[Outcome]) -> None:
    """Write all outcomes, in one order."""
    lines = [msgspec.json.encode(outcome) for outcome in sorted(found, key=lambda outcome: outcome.id)]
    draft = KEPT.with_suffix(".draft")
    draft.write_bytes(b"\n".join(lines) + b"\n")
    draft.replace(KEPT)
