"""What a card sold with so much memory shows to nvidia-smi and to a program, by maker."""

import pytest

from vramcast.hardware.visible import driver_total, visible_total
from vramcast.units import GiB, MiB


@pytest.mark.parametrize(
    ("vendor", "ecc", "total"),
    [
        ("NVIDIA", False, 48 * GiB),
        ("NVIDIA", True, 45 * GiB),
        ("AMD", False, 48 * GiB - 16 * MiB),
        ("AMD", True, 48 * GiB - 16 * MiB),
        ("Apple", True, 48 * GiB),
    ],
)
def test_ecc_and_the_maker_decide_the_drivers_total(vendor: str, ecc: bool, total: int) -> None:
    assert driver_total(vendor=vendor, sold_bytes=48 * GiB, ecc=ecc) == total


def test_a_program_sees_what_the_driver_does_not_reserve() -> None:
    """An RTX 3090: 24,576 MiB in nvidia-smi, 24,135 MiB to torch within two MiB."""
    assert visible_total(vendor="NVIDIA", driver_bytes=24 * GiB) / MiB == pytest.approx(24576 - 395 - 2 * 24, abs=2)


@pytest.mark.parametrize(("sold_gib", "seen_mib"), [(8, 7619), (64, 62843), (128, 125748)])
def test_the_system_of_a_jetson_keeps_its_share(sold_gib: int, seen_mib: int) -> None:
    seen = visible_total(vendor="NVIDIA", driver_bytes=sold_gib * GiB, unified=True) / MiB
    assert seen == pytest.approx(seen_mib, rel=0.003)
