"""What programs ask the driver by other ways than torch: the program ``nvidia-smi`` and NVML's Python bindings.

The card that they find is the traced one, empty and idle. And what they ask the terminal, which is not there: ``stty size``.
"""

import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from vramcast.tracing.execution.stand_ins.imported import when_imported
from vramcast.tracing.policies import DeviceModel
from vramcast.units import MiB

_DRIVER = "580.82.07"
_ANSWERS = {
    "name": "{name}", "gpu_name": "{name}", "memory.total": "{total} MiB", "memory.free": "{total} MiB", "memory.used": "0 MiB",
    "driver_version": _DRIVER, "count": "{count}", "index": "{index}", "utilization.gpu": "0 %", "utilization.memory": "0 %",
    "compute_cap": "{capability}", "temperature.gpu": "40", "power.draw": "0 W", "uuid": "GPU-{index}",
}  # fmt: skip
_PROGRAM = """#!{python} -SE
import sys
answers = {answers!r}
asked = [word.partition("=")[2] for word in sys.argv if word.startswith("--query-gpu=")]
for card in range({count}):
    if asked:
        print(", ".join(answers.get(field, "[N/A]").replace("{{index}}", str(card)) for field in asked[0].split(",")))
    else:
        print(f"GPU {{card}}: {name} (traced: no driver is here)")
"""


_TERMINAL = """#!/bin/sh
[ "$1" = size ] && echo 24 80
"""


def install(device: DeviceModel, folder: Path) -> None:
    """Put a ``nvidia-smi`` into ``folder`` and on the path where there is none; let pynvml answer for the traced card."""
    if shutil.which("nvidia-smi") is None:
        _program(device, folder / "nvidia-smi")
    _put(folder / "stty", _TERMINAL)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"
    when_imported("pynvml", lambda module: _bindings(module, device))


def _program(device: DeviceModel, tool: Path) -> None:
    facts = {
        "name": device.name,
        "total": device.memory_bytes // MiB,
        "count": device.count,
        "capability": ".".join(map(str, device.capability)),
        "index": "{index}",
    }
    answers = {field: text.format(**facts) for field, text in _ANSWERS.items()}
    _put(tool, _PROGRAM.format(python=sys.executable, answers=answers, count=device.count, name=device.name))


def _put(tool: Path, text: str) -> None:
    tool.write_text(text)
    tool.chmod(0o755)


def _bindings(module: Any, device: DeviceModel) -> None:
    """The calls of NVML that training programs make; any other asks the library and says that there is none."""
    memory = SimpleNamespace(total=device.memory_bytes, free=device.memory_bytes, used=0)
    constants: dict[str, Any] = {
        "nvmlInit": None, "nvmlInitWithFlags": None, "nvmlShutdown": None, "nvmlDeviceGetCount": device.count,
        "nvmlDeviceGetHandleByUUID": 0, "nvmlDeviceGetName": device.name, "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=0, memory=0), "nvmlSystemGetDriverVersion": _DRIVER,
        "nvmlDeviceGetPowerUsage": 0, "nvmlDeviceGetTemperature": 40, "nvmlDeviceGetComputeRunningProcesses": [],
        "nvmlDeviceGetCudaComputeCapability": device.capability, "nvmlDeviceGetUUID": "GPU-0",
        "nvmlDeviceGetCpuAffinity": [], "nvmlDeviceSetCpuAffinity": None, "nvmlDeviceGetEnforcedPowerLimit": 0,
        "nvmlDeviceGetTotalEnergyConsumption": 0,
    }  # fmt: skip
    for name, value in constants.items():
        setattr(module, name, lambda *_, _value=value, **__: _value)
    module.nvmlDeviceGetHandleByIndex = lambda index: index
