"""Machines and rented cards that people name instead of cards: each is a card and how many of them.

Sources: AWS EC2 instance types, accelerated computing; AWS Neuron docs, Inf2, Trn1 and Trn2 architecture; Google Cloud GPU
machine types; Azure GPU-accelerated VM sizes; Oracle Cloud GPU shapes; Lambda's instance types; the Colab and Kaggle FAQs;
NVIDIA, DGX and HGX datasheets. Sizes that share a card in parts (NV6ads_A10_v5, g6f ...) are left out.
"""

import re

_AWS = {
    "p3.2": "V100-SXM2-16GBx1", "p3.8": "V100-SXM2-16GBx4", "p3.16": "V100-SXM2-16GBx8", "p3dn.24": "V100-SXM2-32GBx8",
    "p4d.24": "A100-SXM4-40GBx8", "p4de.24": "A100-SXM4-80GBx8", "p5.4": "H100-SXM5-80GBx1", "p5.48": "H100-SXM5-80GBx8",
    "p5e.48": "H200-SXM-141GBx8", "p5en.48": "H200-SXM-141GBx8", "p6-b200.48": "B200x8", "p6-b300.48": "B300x8",
    "g4dn.12": "T4x4", "g4dn.metal": "T4x8", "g4dn": "T4x1", "g5.12": "A10Gx4", "g5.24": "A10Gx4", "g5.48": "A10Gx8",
    "g5": "A10Gx1",
    "g6.12": "L4x4", "g6.24": "L4x4", "g6.48": "L4x8", "g6": "L4x1", "gr6": "L4x1", "g6e.12": "L40Sx4", "g6e.24": "L40Sx4",
    "g6e.48": "L40Sx8", "g6e": "L40Sx1", "g7e.2": "RTX PRO 6000x1", "g5g.16": "T4Gx2", "g5g.metal": "T4Gx2", "g5g": "T4Gx1",
    "inf2.24": "Inferentia2x6", "inf2.48": "Inferentia2x12", "inf2": "Inferentia2x1", "trn1.32": "Trainium1x16",
    "trn1n.32": "Trainium1x16", "trn1": "Trainium1x1", "trn2.48": "Trainium2x16", "p2.8": "K80x8", "p2.16": "K80x16",
    "p2": "K80x1", "p6e-gb200.36": "GB200x4",
}  # fmt: skip
# The last number of a Google name is the count where it ends in g; of a G2 it is processors: 24, 48 and 96 have 2, 4 and 8 cards.
_GOOGLE = {"a2-highgpu": "A100-SXM4-40GB", "a2-megagpu": "A100-SXM4-40GB", "a2-ultragpu": "A100-SXM4-80GB",
           "a3-highgpu": "H100-SXM5-80GB", "a3-megagpu": "H100-SXM5-80GB", "a3-edgegpu": "H100-SXM5-80GB",
           "a3-ultragpu": "H200-SXM-141GB", "a4-highgpu": "B200", "a4x-highgpu": "GB200"}  # fmt: skip
_G2 = {"24": 2, "48": 4, "96": 8}
_G4 = {"48": 1, "96": 2, "192": 4, "384": 8}
_NAMED = {
    "nc6s_v3": "V100-PCIe-16GBx1", "nc12s_v3": "V100-PCIe-16GBx2", "nc24s_v3": "V100-PCIe-16GBx4",
    "nd40rs_v2": "V100-SXM2-32GBx8",
    "nc24ads_a100_v4": "A100-PCIe-80GBx1", "nc48ads_a100_v4": "A100-PCIe-80GBx2", "nc96ads_a100_v4": "A100-PCIe-80GBx4",
    "nd96asr_v4": "A100-SXM4-40GBx8", "nd96amsr_a100_v4": "A100-SXM4-80GBx8", "nc40ads_h100_v5": "H100-NVL-94GBx1",
    "nc80adis_h100_v5": "H100-NVL-94GBx2", "nd96isr_h100_v5": "H100-SXM5-80GBx8", "nd96isr_h200_v5": "H200-SXM-141GBx8",
    "nd96isr_mi300x_v5": "MI300Xx8", "nc4as_t4_v3": "T4x1", "nc8as_t4_v3": "T4x1", "nc16as_t4_v3": "T4x1", "nc64as_t4_v3": "T4x4",
    "nv36ads_a10_v5": "A10x1", "nv72ads_a10_v5": "A10x2", "bm.gpu4.8": "A100-SXM4-40GBx8", "bm.gpu.a100-v2.8": "A100-SXM4-80GBx8",
    "bm.gpu.h100.8": "H100-SXM5-80GBx8", "bm.gpu.h200.8": "H200-SXM-141GBx8", "bm.gpu.a10.4": "A10x4", "vm.gpu.a10.1": "A10x1",
    "vm.gpu.a10.2": "A10x2", "dgx a100": "A100-SXM4-80GBx8", "dgx h100": "H100-SXM5-80GBx8", "dgx h200": "H200-SXM-141GBx8",
    "dgx b200": "B200x8", "dgx b300": "B300x8", "dgx-2": "V100-SXM3-32GBx16", "hgx b200": "B200x8", "hgx b300": "B300x8",
    "hgx h20": "H20-96GBx8", "gb200 superchip": "GB200x2", "gb300 superchip": "GB300x2", "grace hopper": "GH200x1",
    "nd h100 v5": "H100-SXM5-80GBx8", "nd h200 v5": "H200-SXM-141GBx8", "nd mi300x v5": "MI300Xx8", "nd gb200 v6": "GB200x4",
    "nd128isr_ndr_gb200_v6": "GB200x4", "nc h100 v5": "H100-NVL-94GBx1", "nc a100 v4": "A100-PCIe-80GBx1",
    "dgx spark": "GB10x1", "hgx a100": "A100-SXM4-80GBx8", "hgx h100": "H100-SXM5-80GBx8",
    "hgx h200": "H200-SXM-141GBx8", "colab": "T4x1", "google colab": "T4x1", "colab free": "T4x1", "colab t4": "T4x1",
    "colab l4": "L4x1", "colab a100": "A100-SXM4-40GBx1", "kaggle": "T4x2", "kaggle p100": "P100-PCIe-16GBx1",
    "kaggle t4": "T4x2", "kaggle t4 x2": "T4x2",
}  # fmt: skip

# The chips that a Mac was sold with, by what is printed on its box (Apple, technical specifications of each model, 2020 to 2026).
# A longer name stands before the shorter one that it holds.
_MACS = {
    "macbook air": "m1 m2 m3 m4 m5",
    "macbook": "m1 m1pro m1max m2 m2pro m2max m3 m3pro m3max m4 m4pro m4max m5 m5pro m5max",
    "mac mini": "m1 m2 m2pro m4 m4pro",
    "mac studio": "m1max m1ultra m2max m2ultra m3ultra m4max",
    "mac pro": "m2ultra",
    "imac": "m1 m3 m4",
    "mac": "m1 m1pro m1max m1ultra m2 m2pro m2max m2ultra m3 m3pro m3max m3ultra m4 m4pro m4max m5 m5pro m5max",
}


def mac_chips(text: str) -> tuple[str, ...]:
    """The chips that a Mac of that name may hold, as keys of the catalogue; none where the text names no Mac."""
    name = re.sub(r"\bmac\s+book\b", "macbook", " ".join(text.lower().split()))
    return next((tuple(chips.split()) for mac, chips in _MACS.items() if re.search(rf"\b{mac}\b", name)), ())


def machine_cards(text: str) -> str | None:
    """The cards of a machine in words that ``parse_gpus`` reads (``A10Gx4``), None where the text names no machine."""
    name = " ".join(text.lower().replace('"', "").removeprefix("standard_").split())
    return _NAMED.get(name) or _aws(name) or _google(name) or _patterned(name)


def _aws(name: str) -> str | None:
    """The largest instances of a family are listed by their size, the others are the family."""
    match = re.fullmatch(r"(?:ml\.)?([a-z0-9-]+)\.(?:(\d*)xlarge|(metal))", name)
    if match is None:
        return None
    family, size = match[1], match[3] or match[2] or "1"
    return _AWS.get(f"{family}.{size}") or _AWS.get(family)


def _google(name: str) -> str | None:
    if match := re.fullmatch(r"(a\dx?-[a-z]+)-(\d+)g", name):
        return f"{_GOOGLE[match[1]]}x{match[2]}" if match[1] in _GOOGLE else None
    if (match := re.fullmatch(r"g4-standard-(\d+)", name)) and match[1] in _G4:
        return f"RTX PRO 6000x{_G4[match[1]]}"
    match = re.fullmatch(r"g2-standard-(\d+)", name)
    return f"L4x{_G2.get(match[1], 1)}" if match else None


def _patterned(name: str) -> str | None:
    """Oracle's shapes (``bm.gpu.l40s.4``) and Lambda's types (``gpu_8x_a100_80gb_sxm4``) say their card and how many."""
    if match := re.fullmatch(r"[bv]m\.gpu\.([a-z]+\d+[a-z]*)(?:-[a-z]+)?\.(\d+)", name):
        return f"{match[1]}x{match[2]}"
    match = re.fullmatch(r"gpu_(\d+)x_([a-z]+\d+[a-z0-9_]*)", name)
    return f"{match[2].replace('_', ' ')} x{match[1]}" if match else None


_SELLERS = re.compile(
    r"^\s*(?:runpod|lambda(?: labs)?|modal|vast(?:\.ai)?|coreweave|vultr|scaleway|autodl|paperspace|nebius"
    r"|(?:google )?colab|kaggle)\b[:\s]+",
    re.IGNORECASE,
)


def without_seller(text: str) -> str:
    """The text without the name of who rents the card, where one stands in front ("RunPod A100 SXM")."""
    return _SELLERS.sub("", text)
