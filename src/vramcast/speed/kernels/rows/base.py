"""What a row of a public kernel table becomes: one law to evaluate; and the card that a table's name means."""

from collections.abc import Callable
from typing import Any

import msgspec

from vramcast.hardware.accelerator import Accelerator, catalogue
from vramcast.hardware.cards import find_accelerator

# Names of public tables -> ids of the catalogue, where the name alone would be read as another part.
_CARDS = {
    "h100_sxm": "h100-sxm5-80", "H100": "h100-sxm5-80", "h200_sxm": "h200-sxm-141", "a100_sxm": "a100-sxm4-80",
    "b200_sxm": "b200-sxm-180", "b300_sxm": "b300-sxm-288", "gb200": "gb200-186", "gb300": "gb300-288", "l40s": "l40s",
    "rtx_pro_6000_server": "rtx-pro-6000-bw", "RTXPRO6000": "rtx-pro-6000-bw", "b60": "arc-pro-b60", "RTX4090": "rtx-4090",
    "A6000": "rtx-a6000", "mi350x_or_mi355x": "mi355x", "h20": "h20-96", "a100_pcie_40": "a100-pcie-40",
    "a100_pcie_80": "a100-pcie-80", "v100_pcie_32": "v100-pcie-32",
}  # fmt: skip


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One law to evaluate: its name, the format it computes in, and its arguments (numbers or arrays)."""

    operator: str
    backend: str
    precision: str
    computes: str
    arguments: dict[str, Any]


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of table: the columns that tell it, those that group its rows, and the reader of a group."""

    needs: frozenset[str]
    words: tuple[str, ...]
    read: Callable[[dict[str, str], dict[str, Any], Accelerator], Call | None]


def card_of(name: str) -> Accelerator:
    """The card of a public table. Raises QuestionError for one that the catalogue lacks."""
    if name in _CARDS:
        return catalogue()[_CARDS[name]]
    return find_accelerator(name.replace("_", " "))


FORMATS = {
    "bfloat16": "bf16", "bf16": "bf16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4", "sq": "int8", "int8": "int8",
    "int4_wo": "int4_weight_only", "int8_wo": "int8_weight_only", "mxfp4": "mxfp4", "fp32": "fp32",
}  # fmt: skip
