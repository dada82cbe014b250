"""What sustained training adds to isolated kernels: factors of a framework's kind on a card class, from published runs.

``products``: matrix products run longer than alone (power limits, transposed layouts). ``narrow``: those of 8 and 4 bits.
``experts``: grouped products, with uneven loads, against even ones. ``scores``: attention forward and backward against its
FLOPs at the dense peak. ``streams``: norms, activations, casts, permutations. ``scans``: chunked scans of recurrent layers.
``exposed``: communication that should hide and does not, and the slowdown of what it hides behind. ``host_s``: seconds of
Python for one layer, forward and backward; a layer that runs faster on the card waits for it. ``routed_s``: the same for
sorting tokens into experts.

Written by ``tools/fit_training.py`` with n and errors; a pair that was not measured takes what its kind and its class show
elsewhere.
"""

import functools
from pathlib import Path

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.speed.kernels.machine import card_class, machine

CONSTANTS = Path(__file__).with_name("sustained.json")


class Sustained(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The factors; ``n`` rows and ``sources`` they come from, errors in sample and with their source left out."""

    products: float = 1.2
    narrow: float = 1.15
    experts: float = 1.3
    scores: float = 2.0
    streams: float = 1.4
    scans: float = 1.0
    exposed: float = 0.2
    host_s: float = 0.0012
    routed_s: float = 0.007
    n: int = 0
    sources: int = 0
    median: float = 0.0
    left_out: float = 0.0


# What is known of the factors before a run is seen. Attention forward and backward as a part of the dense peak, upside down, in
# long sequences: FlashAttention 1 and 2 on an A100 25 to 40 and 60 to 70 % (arXiv 2307.08691, figures 4 to 6), 2 and cuDNN's on
# an H100 37 and 62 % (arXiv 2407.08608), MI300X about 40 % (Composable Kernel), kernels of Ampere's kind on Blackwell a quarter.
_SCORES = {
    "flash1|ampere_dc": 2.7, "flash1|hopper_dc": 4.0, "flash2|ampere_dc": 1.55, "flash2|hopper_dc": 2.7, "flash2|blackwell_dc":
    3.8, "flash2|cdna3": 2.5, "flash2|geforce": 1.65, "flash2|ada_pro": 1.8, "cudnn|ampere_dc": 1.5, "cudnn|hopper_dc": 1.6,
    "cudnn|blackwell_dc": 1.75,
}  # fmt: skip


def prior(attention: str, card_class: str) -> Sustained:
    """The factors before any run is seen."""
    return Sustained(scores=_SCORES.get(f"{attention}|{card_class}", 2.0))


@functools.cache
def _table() -> dict[str, Sustained]:
    return msgspec.json.decode(CONSTANTS.read_bytes(), type=dict[str, Sustained]) if CONSTANTS.exists() else {}


@functools.cache
def sustained(kind: str, attention: str, card_class: str) -> Sustained:
    """The factors of a framework's kind ("fused", "scripted", "compiled", "eager") and attention kernel on a class of cards."""
    table = _table()
    own, scores = (table.get(f"{key}|{card_class}") or table.get(f"{key}|*") for key in (kind, attention))
    known = own or prior(attention, card_class)
    return msgspec.structs.replace(known, scores=(scores or prior(attention, card_class)).scores)


def sources_of(kind: str, card_class: str) -> int:
    """How many sources timed runs of this kind of framework on this very class of cards."""
    row = _table().get(f"{kind}|{card_class}")
    return row.sources if row else 0


def kind_of(framework: str, *, compiled: bool) -> str:
    """Which kernels a framework's layers run in: its own fused ones, TorchScript's, a compiler's, or torch's one by one."""
    if framework == "megatron_deepspeed":  # of 2021 and 2022
        return "scripted"
    if framework == "megatron":
        return "fused"
    return "compiled" if compiled else "eager"


# Watts per dense 16-bit TFLOP/s of the card whose clock under sustained products the class's factors are: A100 400 W, H100
# 700 W, GB200 1200 W. A card of the class with less to spend runs slower: the ratio to the power 0.4, where a clock whose
# power goes with its cube would say 1/3. On Blackwell that is assumed, with one pair behind it (Llama 3 8B in FP8 on 8 cards:
# 4.18 s on GB200, Megatron-Bridge, 4.43 s on B200, vuiseng9/nemo-perf-nvfp4: 1.06 times, and the rule says 1.03). Blackwell
# Ultra with more to spend gains more than in proportion (Llama 3.1 405B takes 1.21 to 1.24 times as long on GB200 as on GB300
# in FP8, MXFP8 and NVFP4; Megatron-Bridge, performance summary).
_WATTS_PER_TFLOP = {"ampere_dc": 400 / 312, "hopper_dc": 700 / 989.5, "blackwell_dc": 1200 / 2500}
_SHORT, _CLOCK_OF_POWER, _CLOCK_RANGE = 0.4, {"blackwell_dc": 1.2}, (0.8, 1.2)


def slowed(card: Accelerator) -> float:
    """How much longer products take than on the card of its class that the sustained factors describe, for want of power."""
    usual, peak = _WATTS_PER_TFLOP.get(card_class(card), 0.0), machine(card, "bf16").flops_per_s / 1e12
    if not usual or not card.tdp_w:
        return 1.0
    short, (least, most) = usual / (card.tdp_w / peak), _CLOCK_RANGE
    return float(min(most, max(least, short ** (_SHORT if short > 1 else _CLOCK_OF_POWER.get(card_class(card), _SHORT)))))
