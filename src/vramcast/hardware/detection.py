"""The cards of this machine, through NVML: what they are, what programs see of them, and who else is on them.

NVML creates no CUDA context, so looking costs no memory. It needs the ``[gpu]`` extra and an NVIDIA driver.
"""

import os
from collections.abc import Callable
from typing import Any

import msgspec

from vramcast.errors import MissingError, QuestionError
from vramcast.hardware.accelerator import Accelerator
from vramcast.units import gib


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """A process that holds memory on a card; ``bytes`` is None when the driver does not say (Windows, containers)."""

    pid: int
    bytes: int | None


class LocalCard(msgspec.Struct, frozen=True, kw_only=True):
    """One card of this machine: the part with its memory as the driver reports it, and who uses it now."""

    index: int
    card: Accelerator
    free_bytes: int
    used_bytes: int
    driver: str
    tenants: tuple[Tenant, ...] = ()

    @property
    def left(self) -> Accelerator:
        """The card with the memory that others leave: what they hold now is taken off what programs see of it."""
        return msgspec.structs.replace(self.card, visible_bytes=max(0, self.card.visible_bytes - self.used_bytes))

    @property
    def summary(self) -> str:
        """One line about what others hold."""
        who = ", ".join(f"pid {t.pid}{f' {gib(t.bytes)}' if t.bytes is not None else ''}" for t in self.tenants)
        return f"GPU {self.index}: {gib(self.free_bytes)} free, {gib(self.used_bytes)} used{f' by {who}' if who else ''}"


def read_cards(named: Callable[[str], Accelerator]) -> tuple[LocalCard, ...]:
    """Every card of this machine that CUDA_VISIBLE_DEVICES leaves visible; ``named`` finds the part of the driver's name.

    Raises MissingError without the extra, without a driver, or without a card.
    """
    nvml = _nvml()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise MissingError(
            f"--gpu local: no NVIDIA driver answers ({error}): name a card instead, such as --gpu 'RTX 4090'"
        ) from None
    try:
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        cards = tuple(_read(nvml, index, driver, named) for index in _visible(nvml.nvmlDeviceGetCount()))
    finally:
        nvml.nvmlShutdown()
    if not cards:
        raise MissingError("--gpu local: the driver shows no card (is CUDA_VISIBLE_DEVICES empty?): name a card instead")
    return cards


def _nvml() -> Any:
    try:
        import pynvml
    except ImportError:
        raise MissingError.extra("gpu", "--gpu local") from None
    return pynvml


def _visible(count: int) -> list[int]:
    """Indices left by CUDA_VISIBLE_DEVICES; ids that are not numbers (UUIDs) leave all visible."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None or not all(item.strip().isdigit() for item in listed.split(",") if item.strip()):
        return list(range(count))
    return [int(item) for item in listed.split(",") if item.strip() and int(item) < count]


def _read(nvml: Any, index: int, driver: str, named: Callable[[str], Accelerator]) -> LocalCard:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    name = _text(nvml.nvmlDeviceGetName(handle))
    try:
        card = named(name)
    except QuestionError:
        card = _unlisted(name, tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle)))
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    except nvml.NVMLError:  # unified memory (GB10, Jetson): the driver has no figures of its own
        return LocalCard(index=index, card=card, free_bytes=card.visible_bytes, used_bytes=0, driver=driver)
    visible = memory.total - memory.reserved
    card = msgspec.structs.replace(card, driver_bytes=memory.total, visible_bytes=visible, inferred=())
    return LocalCard(
        index=index,
        card=card,
        free_bytes=memory.free,
        used_bytes=memory.used,
        driver=driver,
        tenants=_tenants(nvml, handle),
    )


def _unlisted(name: str, capability: tuple[int, int]) -> Accelerator:
    """A part of which only what NVML says is known."""
    return Accelerator(
        id="local",
        name=name,
        vendor="NVIDIA",
        architecture="",
        capability=capability,
        sold_bytes=0,
        driver_bytes=0,
        visible_bytes=0,
        bandwidth_bytes_per_s=0,
        note="not in the catalogue: its rates are unknown",
    )


def _tenants(nvml: Any, handle: Any) -> tuple[Tenant, ...]:
    try:
        processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLError:
        return ()
    return tuple(Tenant(pid=p.pid, bytes=p.usedGpuMemory) for p in processes)


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
