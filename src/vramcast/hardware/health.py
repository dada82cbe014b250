"""The state of a machine as programs for GPUs meet it: cards, driver, packages, network cards, settings; read live.

Every figure is None, or absent, where nobody tells it. Cards are read through NVML, which creates no CUDA context; packages from
their metadata, without importing them; network cards and shared memory from the kernel's files.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from vramcast.units import GiB, MiB

# Packages whose versions must fit together, and what is told of them.
STACK = (
    "torch", "triton", "flash-attn", "flash_attn_3", "flashinfer-python", "bitsandbytes", "deepspeed", "transformers",
    "accelerate", "peft", "trl", "xformers", "transformer-engine", "torchao", "liger-kernel", "unsloth", "vllm", "sglang",
    "tensorrt-llm", "apex", "megatron-core", "torchtitan", "torchtune", "lightning", "llm-foundry",
)  # fmt: skip
SETTINGS = (
    "CUDA_VISIBLE_DEVICES", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "NCCL_SHM_DISABLE", "NCCL_DEBUG",
    "NCCL_SOCKET_IFNAME", "CUDA_LAUNCH_BLOCKING", "OMP_NUM_THREADS", "HF_HUB_OFFLINE",
)  # fmt: skip
# NVML's clocksEventReasons that lower the clock and that somebody can do something about (nvml.h).
_SLOWED = {0x4: "power cap", 0x8: "hardware slowdown", 0x20: "too hot (driver)", 0x40: "too hot (hardware)", 0x80: "power brake"}
_VERSION = re.compile(r"release (\d+\.\d+)")


class Holder(msgspec.Struct, frozen=True):
    """A process on a card; ``bytes`` is None when the driver does not say."""

    pid: int
    name: str
    bytes: int | None


class CardState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One card as its driver describes it now."""

    index: int
    name: str
    total_bytes: int | None = None
    used_bytes: int | None = None
    capability: tuple[int, int] | None = None
    ecc: bool | None = None
    uncorrected_errors: int | None = None
    mig: bool | None = None
    power_limit_w: float | None = None
    power_default_w: float | None = None
    power_draw_w: float | None = None
    temperature_c: float | None = None
    clock_mhz: int | None = None
    clock_highest_mhz: int | None = None
    memory_clock_mhz: int | None = None
    pcie_generation: int | None = None
    pcie_generation_highest: int | None = None
    pcie_width: int | None = None
    pcie_width_highest: int | None = None
    slowed_by: tuple[str, ...] = ()
    holders: tuple[Holder, ...] = ()


class NetworkCard(msgspec.Struct, frozen=True):
    """A port of an RDMA network card, as the kernel lists it: its rate ("400 Gb/sec (4X NDR)") and state."""

    name: str
    rate: str
    state: str


class State(msgspec.Struct, frozen=True, kw_only=True):
    """A machine, or what a pasted report says of one. ``told_by``: where from; ``lacks``: what could not be read, and why.

    ``packages``: versions by distribution name; ``pins``: (package, the package and version that it demands).
    """

    told_by: tuple[str, ...]
    cards: tuple[CardState, ...] = ()
    driver: str = ""
    driver_cuda: str = ""
    torch_cuda: str = ""
    nvcc: str = ""
    nccl: str = ""
    python: str = ""
    packages: dict[str, str] = {}
    pins: tuple[tuple[str, str, str], ...] = ()
    operators: dict[str, tuple[bool, bool]] = {}
    network: tuple[NetworkCard, ...] = ()
    shared_memory_bytes: int | None = None
    settings: dict[str, str] = {}
    topology: str = ""
    lacks: tuple[str, ...] = ()


def this_machine() -> State:
    """The machine this runs on. Never raises: what cannot be read is listed in ``lacks``."""
    cards, driver, driver_cuda, lacks = _cards()
    packages, pins = _packages()
    return State(
        told_by=("this machine",),
        cards=cards,
        driver=driver,
        driver_cuda=driver_cuda,
        torch_cuda=_torch_cuda(),
        nvcc=_nvcc(),
        nccl=next((v for name, v in packages.items() if name.startswith("nvidia-nccl")), ""),
        python=".".join(map(str, sys.version_info[:3])),
        packages=packages,
        pins=pins,
        network=_network(),
        shared_memory_bytes=_shared_memory(),
        settings={name: os.environ[name] for name in SETTINGS if name in os.environ},
        topology=_topology() if cards else "",
        lacks=lacks,
    )


def _cards() -> tuple[tuple[CardState, ...], str, str, tuple[str, ...]]:
    """Cards, driver, the newest CUDA that it runs, and what is missing."""
    try:
        import pynvml as nvml
    except ImportError:
        return (), "", "", ("cards: pip install 'vramcast[gpu]' reads them through the driver",)
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return (), "", "", (f"cards: no NVIDIA driver answers ({error})",)
    try:
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        newest = _asked(nvml, "nvmlSystemGetCudaDriverVersion_v2") or 0
        cards = tuple(_card(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
    finally:
        nvml.nvmlShutdown()
    return cards, driver, f"{newest // 1000}.{newest % 1000 // 10}" if newest else "", ()


def _asked(nvml: Any, call: str, *arguments: Any) -> Any:
    """What NVML answers to one call, None where the card or the library does not know it."""
    try:
        return getattr(nvml, call)(*arguments)
    except (nvml.NVMLError, AttributeError, TypeError):
        return None


def _card(nvml: Any, index: int) -> CardState:
    card = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = _asked(nvml, "nvmlDeviceGetMemoryInfo", card)
    capability = _asked(nvml, "nvmlDeviceGetCudaComputeCapability", card)
    return CardState(
        index=index,
        name=_text(nvml.nvmlDeviceGetName(card)),
        total_bytes=memory.total if memory else None,
        used_bytes=memory.used if memory else None,
        capability=(int(capability[0]), int(capability[1])) if capability else None,
        holders=_holders(nvml, card),
        **_modes(nvml, card),
        **_power(nvml, card),
        **_clocks(nvml, card),
        **_bus(nvml, card),
    )


def _modes(nvml: Any, card: Any) -> dict[str, Any]:
    ecc, mig = _asked(nvml, "nvmlDeviceGetEccMode", card), _asked(nvml, "nvmlDeviceGetMigMode", card)
    errors = _asked(nvml, "nvmlDeviceGetTotalEccErrors", card, 1, 0)  # uncorrected, since the driver was loaded
    return {
        "ecc": bool(ecc[0]) if ecc is not None else None,
        "mig": bool(mig[0]) if mig is not None else None,
        "uncorrected_errors": errors,
    }


def _power(nvml: Any, card: Any) -> dict[str, Any]:
    calls = {
        "power_limit_w": "nvmlDeviceGetPowerManagementLimit",
        "power_default_w": "nvmlDeviceGetPowerManagementDefaultLimit",
        "power_draw_w": "nvmlDeviceGetPowerUsage",
    }
    told = {name: _asked(nvml, call, card) for name, call in calls.items()}
    watts = {name: value / 1000 if value is not None else None for name, value in told.items()}
    return {**watts, "temperature_c": _asked(nvml, "nvmlDeviceGetTemperature", card, 0)}


def _clocks(nvml: Any, card: Any) -> dict[str, Any]:
    reasons = _asked(nvml, "nvmlDeviceGetCurrentClocksEventReasons", card)
    if reasons is None:
        reasons = _asked(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", card)
    return {
        "clock_mhz": _asked(nvml, "nvmlDeviceGetClockInfo", card, 1),  # SM
        "clock_highest_mhz": _asked(nvml, "nvmlDeviceGetMaxClockInfo", card, 1),
        "memory_clock_mhz": _asked(nvml, "nvmlDeviceGetMaxClockInfo", card, 2),
        "slowed_by": tuple(text for bit, text in _SLOWED.items() if reasons and reasons & bit),
    }


def _bus(nvml: Any, card: Any) -> dict[str, Any]:
    calls = {
        "pcie_generation": "nvmlDeviceGetCurrPcieLinkGeneration",
        "pcie_generation_highest": "nvmlDeviceGetMaxPcieLinkGeneration",
        "pcie_width": "nvmlDeviceGetCurrPcieLinkWidth",
        "pcie_width_highest": "nvmlDeviceGetMaxPcieLinkWidth",
    }
    return {name: _asked(nvml, call, card) for name, call in calls.items()}


def _holders(nvml: Any, card: Any) -> tuple[Holder, ...]:
    found = _asked(nvml, "nvmlDeviceGetComputeRunningProcesses", card) or ()
    return tuple(Holder(p.pid, _process_name(p.pid), p.usedGpuMemory) for p in found)


def _process_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _packages() -> tuple[dict[str, str], tuple[tuple[str, str, str], ...]]:
    """Versions of the stack, and the exact versions that its members demand of each other."""
    from importlib import metadata

    found: dict[str, str] = {}
    pins: list[tuple[str, str, str]] = []
    wanted = {_key(name): name for name in STACK}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"] or ""
        if _key(name).startswith("nvidianccl") or _key(name) in wanted:
            label = wanted.get(_key(name), name)
            found[label] = distribution.version
            pins += [(label, wanted[_key(n)], v) for n, v in _exact(distribution.requires or []) if _key(n) in wanted]
    return found, tuple(pins)


def _key(name: str) -> str:
    return re.sub(r"[-_.]", "", name).lower()


def _exact(requires: list[str]) -> list[tuple[str, str]]:
    """(name, version) of the requirements with == that belong to no extra and hold on this platform as far as can be told."""
    pattern = re.compile(r"^([A-Za-z0-9._-]+)\s*\(?==\s*([0-9][\w.+]*)\)?\s*(?:;(.*))?$")
    found = (pattern.match(line) for line in requires)
    return [(m[1], m[2]) for m in found if m and "extra" not in (m[3] or "") and "win32" not in (m[3] or "")]


def _torch_cuda() -> str:
    """The CUDA that the installed torch was built with, read from its version file; "cpu" for a build without."""
    from importlib.util import find_spec

    spec = find_spec("torch")
    if spec is None or not spec.origin:
        return ""
    try:
        text = (Path(spec.origin).parent / "version.py").read_text()
    except OSError:
        return ""
    match = re.search(r"^cuda[^=\n]*=\s*['\"]([\d.]+)['\"]", text, re.MULTILINE)
    hip = re.search(r"^hip[^=\n]*=\s*['\"]([\d.]+)", text, re.MULTILINE)
    return match[1] if match else f"rocm {hip[1]}" if hip else "cpu"


def _nvcc() -> str:
    return (_VERSION.search(_output("nvcc", "--version")) or ["", ""])[1]


def _topology() -> str:
    return _output("nvidia-smi", "topo", "-m")


def _output(*words: str) -> str:
    """What a program prints, "" when it is absent, fails or does not answer."""
    if not shutil.which(words[0]):
        return ""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _network() -> tuple[NetworkCard, ...]:
    """RDMA ports from /sys/class/infiniband."""
    found = []
    for port in sorted(Path("/sys/class/infiniband").glob("*/ports/*")):
        rate, state = (_line(port / name) for name in ("rate", "state"))
        found.append(NetworkCard(f"{port.parent.parent.name}:{port.name}", rate, state.partition(":")[2].strip() or state))
    return tuple(found)


def _line(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _shared_memory() -> int | None:
    try:
        return shutil.disk_usage("/dev/shm").total
    except OSError:
        return None


LEAST_SHARED_MEMORY_BYTES = GiB
IDLE_BYTES = 600 * MiB
