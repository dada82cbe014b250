import pytest

from vramcast.hardware.health import CardState, Holder, NetworkCard, State
from vramcast.planning.health import lines_of
from vramcast.units import GiB, MiB

H100 = CardState(index=0, name="NVIDIA H100 80GB HBM3", total_bytes=80 * GiB, used_bytes=MiB, capability=(9, 0))
B200 = CardState(index=0, name="NVIDIA B200", capability=(10, 0))
V100 = CardState(index=0, name="Tesla V100-SXM2-16GB", capability=(7, 0))


def said(**told: object) -> dict[str, tuple[str, str, str]]:
    """Worst line of each topic."""
    order = ("ok", "note", "warn", "bad")
    found: dict[str, tuple[str, str, str]] = {}
    for line in lines_of(State(told_by=("this machine",), **told)):
        if line.topic not in found or order.index(line.level) > order.index(found[line.topic][0]):
            found[line.topic] = (line.level, line.what, line.so_what)
    return found


def card(**changes: object) -> tuple[CardState, ...]:
    return (CardState(**{"index": 1, "name": "NVIDIA L40S", "capability": (8, 9), **changes}),)


def test_a_healthy_machine_has_nothing_bad() -> None:
    found = said(
        cards=(H100,), driver="570.86", driver_cuda="12.8", torch_cuda="12.8", packages={"torch": "2.7.1+cu128"},
        network=(NetworkCard("mlx5_0:1", "400 Gb/sec (4X NDR)", "ACTIVE"),), shared_memory_bytes=64 * GiB,
    )  # fmt: skip
    assert {level for level, _, _ in found.values()} <= {"ok", "note"}


@pytest.mark.parametrize(
    ("cards", "topic", "level", "what"),
    [
        (
            card(used_bytes=3 * GiB, holders=(Holder(7, "python", 3 * GiB),)),
            "memory",
            "warn",
            "3.00 GiB are held by python 7 3.00 GiB",
        ),
        (card(ecc=True), "ECC", "note", "ECC is on"),
        (card(uncorrected_errors=3), "ECC", "bad", "3 uncorrected memory errors"),
        (card(mig=True), "MIG", "warn", "MIG is on"),
        (card(power_limit_w=250, power_default_w=350), "power", "note", "capped at 250 of 350 W"),
        (card(slowed_by=("too hot (hardware)",), clock_mhz=900, clock_highest_mhz=2520), "clock", "bad", "900 of 2,520 MHz"),
        (card(slowed_by=("power cap",)), "clock", "note", "power cap"),
        (card(pcie_width=4, pcie_width_highest=16), "PCIe", "warn", "4 of 16 PCIe lanes"),
    ],
)
def test_what_is_said_of_a_card(cards: tuple, topic: str, level: str, what: str) -> None:
    got = said(cards=cards)[topic]
    assert got[0] == level and what in got[1]


def test_ecc_on_hbm_costs_nothing_and_is_not_mentioned() -> None:
    assert "ECC" not in said(cards=(CardState(index=0, name="NVIDIA A100-SXM4-80GB", ecc=True),))


@pytest.mark.parametrize(
    ("told", "topic", "what"),
    [
        ({"driver": "470.82", "torch_cuda": "12.4"}, "driver", "needs driver 525.60 or newer"),
        ({"cards": (H100,), "torch_cuda": "cpu", "packages": {"torch": "2.7"}}, "torch", "built without CUDA"),
        ({"cards": (B200,), "torch_cuda": "12.4", "packages": {"torch": "2.6"}}, "torch", "needs CUDA 12.8 or newer"),
        (
            {"packages": {"torch": "2.8.0+cu128", "vllm": "0.10"}, "pins": (("vllm", "torch", "2.7.1"),)},
            "versions",
            "vllm 0.10 was made for torch 2.7.1, 2.8.0+cu128 is installed",
        ),
        ({"cards": (V100,), "packages": {"torch": "2.6", "flash-attn": "2.7.4"}}, "flash-attn", "needs Ampere or newer"),
        (
            {"packages": {"torch": "2.7.0", "flash-attn": "2.7.4.post1+cu12torch2.5cxx11abiFALSE"}},
            "flash-attn",
            "built for torch 2.5",
        ),
        ({"cards": (B200,), "packages": {"bitsandbytes": "0.43.1"}}, "bitsandbytes", "no kernels for Blackwell"),
        ({"packages": {"deepspeed": "0.16"}, "nvcc": "11.8", "torch_cuda": "12.4"}, "DeepSpeed", "nvcc is 11.8"),
    ],
)  # fmt: skip
def test_versions_that_do_not_fit_together(told: dict, topic: str, what: str) -> None:
    level, text, so_what = said(**told)[topic]
    assert level == "bad" and what in text and so_what


def test_versions_that_fit_are_no_finding() -> None:
    found = said(packages={"torch": "2.7.1+cu126", "vllm": "0.10"}, pins=(("vllm", "torch", "2.7.1"),))
    assert "versions" not in found


def test_settings_that_slow_a_machine_are_warned_about() -> None:
    found = said(settings={"NCCL_P2P_DISABLE": "1"}, shared_memory_bytes=64 * MiB)
    assert found["setting"][0] == "warn" and "host memory" in found["setting"][2]
    assert "--shm-size" in found["/dev/shm"][2]
    assert said(settings={"NCCL_P2P_DISABLE": "0"})["setting"][0] == "note"


def test_tf32_is_told_with_its_bits_and_where_it_is_off() -> None:
    assert "is off for matmuls" in said(cards=(H100,))["TF32"][1]
    assert "19 bits" in said(cards=(H100,), settings={"NVIDIA_TF32_OVERRIDE": "1"})["TF32"][1]
    assert "TF32" not in said(cards=(V100,))
