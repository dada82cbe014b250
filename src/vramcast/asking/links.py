"""Links and rates as people type them: ``pcie4``, ``nvlink4``, ``64GB/s``."""

from vramcast.errors import unknown_name
from vramcast.units import parse_bytes

# One direction of one card's link, in bytes per second: PCIe x16 by generation, NVLink by generation (SXM parts of each).
LINKS = {
    "pcie3": 16e9, "pcie4": 32e9, "pcie5": 64e9, "pcie6": 128e9, "nvlink2": 150e9, "nvlink3": 300e9, "nvlink4": 450e9,
    "nvlink5": 900e9, "ethernet100": 12.5e9, "ib200": 25e9, "ib400": 50e9,
}  # fmt: skip


def link_of(text: str) -> float:
    """Bytes per second one way of a link by its name or its rate. Raises QuestionError for one that is neither."""
    name = text.lower().replace(" ", "").replace("-", "").replace("x16", "").replace("gen", "")
    if name in LINKS:
        return LINKS[name]
    if name[:1].isdigit():
        return rate_of(text)
    raise unknown_name("link", text, LINKS, hint="(or a rate one way: 64GB/s)")


def rate_of(text: str) -> float:
    """``64GB/s`` as bytes per second. Raises QuestionError."""
    return float(parse_bytes(text.lower().removesuffix("/s").upper(), what="bytes per second"))
