"""What a program sees of a card's memory when nobody has read it from a driver: rules, each checked on read cards.

NVIDIA on Linux: visible = driver total - driver reserved; the reserve grows with the memory it has to describe. Read pairs
(RTX 2080 SUPER 404 MiB of 8 GiB, RTX 4090 484 of 24, L40S 609 of 48, H200 614 of 141, B200 728 of 180, B300 927 of 268)
lie on 395 MiB + 2 MiB per GiB within 0.7 % of the memory. ECC on GDDR keeps 1/16 of the memory for its check bits; on HBM
it costs nothing. AMD shows 16 MiB less than the label (MI300X, MI210, MI355X). Metal lets a GPU use 2/3 of a small Mac's
memory and 3/4 of a large one's. A Jetson's system keeps 270 MiB + 38 MiB per GiB: Orin Nano 8 GB (573 MiB), AGX Orin 64 GB
(2,693) and AGX Thor 128 GB (5,324) lie on it within 0.2 % of the memory.
"""

from vramcast.units import GiB, MiB

RESERVED_BASE_MIB = 395
RESERVED_MIB_PER_GIB = 2
ECC_KEEPS = 15 / 16
JETSON_BASE_MIB, JETSON_MIB_PER_GIB = 270, 38
AMD_HOLDS_MIB = 16
SMALL_MAC = 36 * GiB


def driver_total(*, vendor: str, sold_bytes: int, ecc: bool) -> int:
    """nvidia-smi's total from the size as sold, bytes."""
    if vendor == "NVIDIA" and ecc:
        return int(sold_bytes * ECC_KEEPS)
    if vendor == "AMD":
        return sold_bytes - AMD_HOLDS_MIB * MiB
    return sold_bytes


def visible_total(*, vendor: str, driver_bytes: int, unified: bool = False) -> int:
    """What torch's ``total_memory`` shows on Linux, bytes; ``unified``: the memory is the whole system's."""
    if vendor == "NVIDIA" and unified:
        return driver_bytes - round((JETSON_BASE_MIB + JETSON_MIB_PER_GIB * driver_bytes / GiB) * MiB)
    if vendor == "NVIDIA":
        return driver_bytes - round((RESERVED_BASE_MIB + RESERVED_MIB_PER_GIB * driver_bytes / GiB) * MiB)
    if vendor == "Apple":
        return driver_bytes * 2 // 3 if driver_bytes <= SMALL_MAC else driver_bytes * 3 // 4
    return driver_bytes
