"""Detection against a fake of NVML's outermost calls: known cards, unknown ones, other tenants, and nothing there."""

import sys
from types import SimpleNamespace

import pytest

from vramcast.cli import run
from vramcast.errors import MissingError
from vramcast.hardware.cards import local_cards, parse_gpus
from vramcast.units import MiB


class FakeNvmlError(Exception):
    pass


def fake_nvml(**changes: object) -> SimpleNamespace:
    memory = SimpleNamespace(total=24564 * MiB, reserved=484 * MiB, used=3000 * MiB, free=21080 * MiB)
    calls = {
        "NVMLError": FakeNvmlError,
        "nvmlMemory_v2": 2,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "570.86.10",
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda _: b"NVIDIA GeForce RTX 4090",
        "nvmlDeviceGetCudaComputeCapability": lambda _: (8, 9),
        "nvmlDeviceGetMemoryInfo": lambda _, version: memory,
        "nvmlDeviceGetComputeRunningProcesses": lambda _: [SimpleNamespace(pid=42, usedGpuMemory=2560 * MiB)],
    }
    return SimpleNamespace(**{**calls, **changes})


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch):
    def install(**changes: object) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(**changes))

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return install


def test_a_card_is_read_with_its_memory_and_tenants(nvml) -> None:
    nvml()
    first, second = local_cards()
    assert first.card.id == second.card.id == "rtx-4090"
    assert first.card.visible_bytes == (24564 - 484) * MiB
    assert first.summary == "GPU 0: 20.59 GiB free, 2.93 GiB used by pid 42 2.50 GiB"


def test_local_is_a_name_of_cards(nvml) -> None:
    nvml()
    cards = parse_gpus("local")
    assert len(cards.cards) == 2
    assert "read from this machine's driver; GPU 1: 20.59 GiB free" in cards.assumed[1].because
    assert cards.assumed[1].because.endswith("the 2.93 GiB that others hold are taken off")
    assert cards.cards[0].visible_bytes == local_cards()[0].card.visible_bytes - local_cards()[0].used_bytes


def test_visible_devices_are_respected(nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [card.index for card in local_cards()] == [1]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(MissingError, match="the driver shows no card"):
        local_cards()


def test_a_card_outside_the_catalogue_keeps_what_the_driver_says(nvml) -> None:
    nvml(nvmlDeviceGetName=lambda _: "NVIDIA Experimental 9")
    assert local_cards()[0].card.name == "NVIDIA Experimental 9"
    assert local_cards()[0].card.visible_bytes == 24080 * MiB


def test_unified_memory_takes_the_catalogues_figures(nvml) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FakeNvmlError("not supported")

    nvml(nvmlDeviceGetName=lambda _: "NVIDIA GB10", nvmlDeviceGetMemoryInfo=refuse, nvmlDeviceGetComputeRunningProcesses=refuse)
    assert local_cards()[0].free_bytes == local_cards()[0].card.visible_bytes > 100 * 1024 * MiB


def test_no_driver_and_no_extra_say_what_to_do(nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise FakeNvmlError("Driver Not Loaded")

    nvml(nvmlInit=refuse)
    with pytest.raises(MissingError, match=r"no NVIDIA driver answers \(Driver Not Loaded\): name a card instead"):
        local_cards()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(MissingError, match=r"--gpu local needs the \[gpu\] extra: pip install 'vramcast\[gpu\]'"):
        local_cards()


def test_a_question_about_this_machine_takes_the_drivers_figure(nvml, capsys: pytest.CaptureFixture[str]) -> None:
    nvml()
    assert run(["serve", "Qwen/Qwen2.5-7B-Instruct", "--gpu", "local", "--json"]) == 0
    assert f'"capacity_bytes": {(24564 - 484) * MiB - local_cards()[0].used_bytes}' in capsys.readouterr().out
    assert run(["gpus", "local"]) == 0
    assert "seen by a program  23.52" in capsys.readouterr().out
