"""What a kernel law needs to know of a card: its class, its dense rate for a format, its bandwidth, its units, its links."""

from typing import Any

import msgspec

from vramcast.errors import UnmodelledError
from vramcast.hardware.accelerator import Accelerator

LOW_POWER_W = 80  # T4, P4, L4, A2: boards of about 70 W do not hold their rated clock under sustained tensor work (SPEED 3)
# What such a board holds of the compute share of a class without its limit: fp32 products of T4 and P4 against V100 and A100
# (sitar-lab/NeuSight@6945927, 10,831 rows; laws.json, gemm fp32).
SUSTAINED = {"low_power": 0.5}
_FORMATS = {
    "bf16": ("bf16", "fp16", "fp16_vector", "fp32"),
    "fp16": ("fp16", "bf16", "fp16_vector", "fp32"),
    "fp8": ("fp8", "bf16", "fp16", "fp32"),
    "int8": ("int8", "fp8", "bf16", "fp16", "fp32"),
    "fp4": ("fp4", "fp8", "bf16", "fp16", "fp32"),
    "fp32": ("fp32",),
    "tf32": ("tf32", "fp32"),
}
_CLASSES = {
    "Ampere GA100": "ampere_dc",
    "Hopper": "hopper_dc",
    "Blackwell": "blackwell_dc",
    "Volta": "volta_dc",
    "CDNA3": "cdna3",
    "CDNA4": "cdna4",
    "Apple GPU": "apple",
    "Gaudi": "gaudi",
    "TPU": "tpu",
}
_CONSUMER = {"Ampere GA10x": "ampere", "Ada": "ada", "Blackwell RTX": "blackwell_rtx", "Turing": "turing", "Pascal": "pascal"}
# Where a class has no law of an operator, the classes tried next: nearest in unit design and memory kind first.
NEIGHBOURS = {
    "hopper_dc": ("blackwell_dc", "ampere_dc"),
    "blackwell_dc": ("hopper_dc", "ampere_dc"),
    "ampere_dc": ("hopper_dc", "ampere_pro", "volta_dc"),
    "volta_dc": ("ampere_dc",),
    "ampere_pro": ("ada_pro", "geforce", "blackwell_pro", "ampere_dc", "hopper_dc"),
    "ada_pro": ("blackwell_pro", "geforce", "ampere_pro", "ampere_dc", "hopper_dc"),
    "blackwell_pro": ("ada_pro", "geforce", "ampere_pro", "blackwell_dc", "hopper_dc"),
    "geforce": ("blackwell_pro", "ada_pro", "ampere_pro", "ampere_dc", "hopper_dc"),
    "low_power": ("ada_pro", "blackwell_pro", "ampere_pro", "ampere_dc"),
    "turing_pro": ("ampere_pro", "low_power", "ampere_dc"),
    "pascal": ("low_power", "volta_dc", "ampere_dc"),
    "cdna3": ("cdna4", "hopper_dc"),
    "cdna4": ("cdna3", "blackwell_dc"),
}


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A card for one number format. Every field is a number, or an array with one entry for each row of a table.

    ``units``: SMs or compute units. ``flops_per_s``: dense peak of the format. ``bandwidth_bytes_per_s``: of device memory.
    """

    units: Any
    flops_per_s: Any
    bandwidth_bytes_per_s: Any
    l2_bytes: Any = 0


def machine(card: Accelerator, number_format: str = "bf16") -> Machine:
    """The card at its dense peak for this format, or at that of the nearest wider one it has; "link" is the link to its peers.

    Raises UnmodelledError for a card without a known rate, unit count or bandwidth.
    """
    if number_format == "link":
        return Machine(units=1, flops_per_s=1.0, bandwidth_bytes_per_s=link(card))
    rate = next((card.flops[name] for name in _FORMATS[number_format] if card.flops.get(name)), 0)
    if not rate or not card.bandwidth_bytes_per_s:
        raise UnmodelledError(f"{card.name} has no known {'bandwidth' if rate else 'peak rate'}: no time can be forecast on it")
    return Machine(
        units=card.sms or 64,
        flops_per_s=rate,
        bandwidth_bytes_per_s=card.bandwidth_bytes_per_s,
        l2_bytes=card.l2_bytes,
    )


def link(card: Accelerator) -> float:
    """Bytes per second one way of the card's link to its peers, the host link where it has no other.

    Raises UnmodelledError where neither is known.
    """
    rate = card.link_bytes_per_s or card.host_link_bytes_per_s
    if not rate:
        raise UnmodelledError(f"{card.name} has no known link: no collective can be forecast on it")
    return rate


def card_class(card: Accelerator) -> str:
    """Architecture times market: the cards whose kernels share their constants (``hopper_dc``, ``ada_pro``, ``geforce``)."""
    if card.vendor == "NVIDIA" and 0 < card.tdp_w <= LOW_POWER_W and not card.unified:
        return "low_power"
    if card.architecture in _CLASSES:
        return _CLASSES[card.architecture]
    if card.architecture in _CONSUMER:
        return "geforce" if "GeForce" in card.name else f"{_CONSUMER[card.architecture]}_pro".replace("rtx_", "")
    return card.architecture.lower().replace(" ", "_")
