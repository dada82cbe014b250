"""The live reader against a fake of NVML's outermost calls, of package metadata and of the kernel's files."""

import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from vramcast.hardware import health
from vramcast.units import GiB, MiB


class FakeNvmlError(Exception):
    pass


def fake_nvml(**changes: object) -> SimpleNamespace:
    memory = SimpleNamespace(total=80 * GiB, used=3 * GiB, free=77 * GiB)
    calls = {
        "NVMLError": FakeNvmlError,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: b"570.86.10",
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 12080,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda _: "NVIDIA H100 80GB HBM3",
        "nvmlDeviceGetMemoryInfo": lambda _: memory,
        "nvmlDeviceGetCudaComputeCapability": lambda _: (9, 0),
        "nvmlDeviceGetEccMode": lambda _: [1, 1],
        "nvmlDeviceGetMigMode": lambda _: [0, 0],
        "nvmlDeviceGetTotalEccErrors": lambda *_: 0,
        "nvmlDeviceGetPowerManagementLimit": lambda _: 500_000,
        "nvmlDeviceGetPowerManagementDefaultLimit": lambda _: 700_000,
        "nvmlDeviceGetPowerUsage": lambda _: 71_234,
        "nvmlDeviceGetTemperature": lambda *_: 33,
        "nvmlDeviceGetCurrentClocksEventReasons": lambda _: 0x4 | 0x20 | 0x1,
        "nvmlDeviceGetClockInfo": lambda *_: 1200,
        "nvmlDeviceGetMaxClockInfo": lambda _, kind: {1: 1980, 2: 2619}[kind],
        "nvmlDeviceGetCurrPcieLinkGeneration": lambda _: 5,
        "nvmlDeviceGetMaxPcieLinkGeneration": lambda _: 5,
        "nvmlDeviceGetCurrPcieLinkWidth": lambda _: 16,
        "nvmlDeviceGetMaxPcieLinkWidth": lambda _: 16,
        "nvmlDeviceGetComputeRunningProcesses": lambda _: [SimpleNamespace(pid=4_000_000, usedGpuMemory=2 * GiB)],
    }
    return SimpleNamespace(**{**calls, **changes})


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch):
    def read(**changes: object) -> health.State:
        monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(**changes))
        monkeypatch.setattr(health.shutil, "which", lambda name: None)
        return health.this_machine()

    return read


def test_a_card_is_read_whole(machine) -> None:
    state = machine()
    (card,) = state.cards
    assert (state.driver, state.driver_cuda, card.name, card.capability) == ("570.86.10", "12.8", "NVIDIA H100 80GB HBM3", (9, 0))
    assert (card.total_bytes, card.used_bytes, card.ecc, card.mig) == (80 * GiB, 3 * GiB, True, False)
    assert (card.power_limit_w, card.power_default_w, card.power_draw_w) == (500.0, 700.0, 71.234)
    assert card.slowed_by == ("power cap", "too hot (driver)")
    assert (card.clock_mhz, card.clock_highest_mhz, card.memory_clock_mhz) == (1200, 1980, 2619)
    assert [(h.pid, h.bytes) for h in card.holders] == [(4_000_000, 2 * GiB)]
    assert state.lacks == ()


def test_what_is_asked_of_nvml_is_told_by_its_own_numbers(machine) -> None:
    """The numbers passed to NVML are nvml.h's: which clock, which sensor, which errors since when."""
    nvml = pytest.importorskip("pynvml")
    asked: dict[str, list[tuple[int, ...]]] = {}

    def note(name: str):
        return lambda _, *numbers: asked.setdefault(name, []).append(numbers) or 1

    names = ("GetClockInfo", "GetMaxClockInfo", "GetTemperature", "GetTotalEccErrors")
    machine(**{f"nvmlDevice{name}": note(name) for name in names})
    assert asked == {
        "GetClockInfo": [(nvml.NVML_CLOCK_SM,)],
        "GetMaxClockInfo": [(nvml.NVML_CLOCK_SM,), (nvml.NVML_CLOCK_MEM,)],
        "GetTemperature": [(nvml.NVML_TEMPERATURE_GPU,)],
        "GetTotalEccErrors": [(nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)],
    }


def test_what_a_card_does_not_answer_is_left_open(machine) -> None:
    def refuse(*_: object) -> None:
        raise FakeNvmlError("not supported")

    silent = (
        "GetEccMode",
        "GetMigMode",
        "GetTotalEccErrors",
        "GetMemoryInfo",
        "GetPowerManagementLimit",
        "GetComputeRunningProcesses",
    )
    changes: dict[str, object] = {f"nvmlDevice{name}": refuse for name in silent}
    (card,) = machine(**changes).cards
    assert (card.ecc, card.mig, card.total_bytes, card.power_limit_w, card.holders) == (None, None, None, None, ())


def test_no_driver_is_said_and_the_rest_is_still_read(machine) -> None:
    def refuse() -> None:
        raise FakeNvmlError("driver not loaded")

    state = machine(nvmlInit=refuse)
    assert state.cards == () and state.lacks == ("cards: no NVIDIA driver answers (driver not loaded)",)
    assert state.python


def test_versions_and_exact_demands_come_from_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    def distribution(name: str, version: str, *requires: str) -> SimpleNamespace:
        return SimpleNamespace(metadata={"Name": name}, version=version, requires=list(requires))

    installed = [
        distribution("torch", "2.8.0", "triton==3.4.0; platform_system == 'Linux'", "sympy>=1.13"),
        distribution("Triton", "3.3.0"),
        distribution("flash_attn", "2.7.4"),
        distribution("nvidia-nccl-cu12", "2.27.3"),
        distribution("vllm", "0.10.1", "torch==2.7.1", "ray==2.9 ; extra == 'tpu'", "triton==9.9; extra == 'x'"),
        distribution("requests", "2.0"),
    ]
    monkeypatch.setattr(metadata, "distributions", lambda: installed)
    packages, pins = health._packages()
    assert packages == {
        "torch": "2.8.0",
        "triton": "3.3.0",
        "flash-attn": "2.7.4",
        "nvidia-nccl-cu12": "2.27.3",
        "vllm": "0.10.1",
    }
    assert pins == (("torch", "triton", "3.4.0"), ("vllm", "torch", "2.7.1"))


def test_the_cuda_of_torch_is_read_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemError('imported')")
    version = package / "version.py"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: SimpleNamespace(origin=str(package / "__init__.py")))
    for text, want in (
        ("cuda: Optional[str] = '12.8'\n", "12.8"),
        ("cuda = None\nhip = '6.2.41'\n", "rocm 6.2.41"),
        ("cuda = None\n", "cpu"),
    ):
        version.write_text(text)
        assert health._torch_cuda() == want


def test_the_whole_page_of_a_fake_machine(machine, capsys: pytest.CaptureFixture[str]) -> None:
    from vramcast.cli import run

    machine(
        nvmlDeviceGetTotalEccErrors=lambda *_: 5,
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(total=80 * GiB, used=900 * MiB),
    )
    assert run(["doctor"]) == 1
    page = capsys.readouterr().out
    assert "5 uncorrected memory errors" in page and "0.88 GiB are held by" in page and "Extras" in page
    assert run(["doctor", "--json"]) == 1
    assert '"topic": "ECC"' in capsys.readouterr().out
