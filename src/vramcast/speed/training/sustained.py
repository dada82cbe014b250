"""What sustained training adds to isolated kernels: factors of a framework's kind on a card class, from published runs.

``products``: matrix products run longer than alone (power limits, transposed layouts, accumulation into float32 gradients).
``experts``: grouped products with their routing, permutation and uneven loads, against even ones.
``scores``: attention forward and backward against its FLOPs at the dense peak. ``streams``: unfused norms, activations, casts.
``exposed``: communication that should hide and does not, and the slowdown of what it hides behind. ``host_s``: seconds of Python
for one layer, forward and backward; a layer that runs faster on the card waits for it.

Written by ``tools/fit_training.py`` with n and errors; a pair that was not measured takes its card class's row, then the prior.
"""

import functools
from pathlib import Path

import msgspec

CONSTANTS = Path(__file__).with_name("sustained.json")


class Sustained(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The factors; ``n`` rows and ``sources`` they come from, errors in sample and with their source left out."""

    products: float = 1.2
    experts: float = 1.8
    scores: float = 2.0
    streams: float = 1.4
    exposed: float = 0.1
    host_s: float = 0.0004
    n: int = 0
    sources: int = 0
    median: float = 0.0
    left_out: float = 0.0


@functools.cache
def _table() -> dict[str, Sustained]:
    return msgspec.json.decode(CONSTANTS.read_bytes(), type=dict[str, Sustained]) if CONSTANTS.exists() else {}


def sustained(kind: str, card_class: str) -> Sustained:
    """The factors of a framework's kind ("fused", "compiled", "eager") on a class of cards, or the nearest row there is."""
    table = _table()
    names = (f"{kind}|{card_class}", f"{kind}|*", f"*|{card_class}", "*|*")
    return next((table[name] for name in names if name in table), Sustained())


def kind_of(framework: str, *, compiled: bool) -> str:
    """Which kernels a framework's layers run in: its own fused ones, a compiler's, or torch's one by one."""
    if framework in ("megatron", "megatron_deepspeed"):
        return "fused"
    return "compiled" if compiled else "eager"
