"""Bytes of every named format and the card it runs on, against what its packer writes and its documentation says."""

import tomllib
from pathlib import Path

import msgspec
import pytest

from vramcast.hardware.accelerator import RULES, capability
from vramcast.hardware.build import PCIE_LANE, RATES
from vramcast.hardware.cards import find_accelerator
from vramcast.models.quantization.formats import NAMED

FACTS = tomllib.loads((Path(__file__).parent / "formats.toml").read_text())
SHAPE = (1000, 3072)


@pytest.mark.parametrize(("scheme", "parts"), FACTS["bytes"].items(), ids=str)
def test_a_matrix_takes_its_data_and_its_scales(scheme: str, parts: list[int]) -> None:
    assert NAMED[scheme].bytes_of(SHAPE) == sum(parts)
    assert round(SHAPE[0] * SHAPE[1] * NAMED[scheme].bits / 8) == parts[0]


def test_every_named_format_has_a_fact() -> None:
    assert set(FACTS["bytes"]) == set(NAMED)


@pytest.mark.parametrize(("feature", "fact"), FACTS["capability"].items(), ids=str)
def test_a_feature_begins_at_its_compute_capability(feature: str, fact: dict[str, str]) -> None:
    assert set(FACTS["capability"]) == set(RULES)
    native, emulated, until = (_capability(fact[name]) for name in ("native", "emulated", "until"))
    below = "emulated" if emulated else "refused"
    assert _verdict(feature, native) == "native"
    assert native == (0, 0) or _verdict(feature, _below(native)) == below
    if emulated and emulated != (0, 0):
        assert _verdict(feature, emulated) == "emulated"
        assert _verdict(feature, _below(emulated)) == "refused"
    if until:
        assert _verdict(feature, _below(until)) == "native"
        assert _verdict(feature, until) == "refused"


def _capability(text: str) -> tuple[int, int] | None:
    return (int(text.split(".", maxsplit=1)[0]), int(text.split(".")[1])) if text else None


def _below(own: tuple[int, int]) -> tuple[int, int]:
    return (own[0], own[1] - 1) if own[1] else (own[0] - 1, 9)


def _verdict(feature: str, own: tuple[int, int] | None) -> str:
    card = msgspec.structs.replace(find_accelerator("H100 SXM"), capability=own if own != (0, 0) else (0, 1))
    return capability(card, feature).verdict


@pytest.mark.parametrize(("generation", "giga_transfers"), [("3", 8), ("4", 16), ("5", 32)])
def test_a_pcie_lane_is_its_transfers_less_their_code(generation: str, giga_transfers: int) -> None:
    assert PCIE_LANE[generation] == pytest.approx(giga_transfers * 1e9 / 8 * 128 / 130, rel=1e-3)


def test_a_pcie_6_lane_is_its_transfers_less_flit_overhead() -> None:
    """64 GT/s, two bits a transfer already counted; 242 of 256 bytes of a flit are data (PCI-SIG, PCIe 6.0)."""
    assert PCIE_LANE["6"] == pytest.approx(64e9 / 8 * 242 / 256, rel=1e-3)


def test_tensor_rates_are_the_whitepapers_multiples() -> None:
    assert FACTS["rates"] == RATES
