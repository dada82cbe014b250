"""Reading memory counters and the clock of a device: torch's peaks, and this process as the driver sees it."""

import time
from typing import Any

from vramcast.measuring import nvml
from vramcast.tracing.libraries import installed

_LIBRARIES = ("torch", "transformers", "peft", "accelerate", "bitsandbytes")


class Counters:
    """The counters of torch's card ``index``. Made on an ``untouched`` card, what is in use then belongs to others."""

    def __init__(self, torch: Any, device: str, index: int = 0, *, untouched: bool = True) -> None:
        self._cuda: Any = torch.cuda if device == "cuda" else None
        self._index = index
        self._others = nvml.used_bytes(index) if self._cuda and untouched else None

    def clock(self) -> float:
        """Seconds, after everything that was launched has finished."""
        if self._cuda:
            self._cuda.synchronize()
        return time.perf_counter()

    def reset_peaks(self) -> None:
        """Give cached segments back and start counting peaks anew."""
        if self._cuda:
            self._cuda.synchronize()
            self._cuda.empty_cache()
            self._cuda.reset_peak_memory_stats()

    def peaks(self) -> dict[str, float]:
        """Peaks in bytes: allocated, active and reserved; ``device`` and ``context`` where the driver tells. Empty without."""
        if not self._cuda or not self._cuda.is_initialized():
            return {}
        stats = self._cuda.memory_stats()
        found: dict[str, float] = {name: stats[f"{name}_bytes.all.peak"] for name in ("allocated", "active", "reserved")}
        found["retries"] = stats.get("num_alloc_retries", 0)
        held = self._held()
        if held is not None:
            found["context"] = held - stats["reserved_bytes.all.current"]
            found["device"] = found["context"] + found["reserved"]
        return found

    def _held(self) -> int | None:
        """Bytes of this process on the card: as the driver lists it, else what the card's use grew by since before it began."""
        own = nvml.process_bytes(self._index)
        if own is not None or self._others is None:
            return own
        used = nvml.used_bytes(self._index)
        return None if used is None else used - self._others


def device_name(device: str) -> str:
    """The card's own name, or the processor's; asked without creating a context."""
    if device == "cuda":
        return nvml.card_name(0) or "CUDA device"
    import platform

    return platform.processor() or platform.machine()


def library_versions(device: str) -> dict[str, str]:
    """What decides the figures: torch and its CUDA, transformers and its relatives, the driver."""
    found = installed(_LIBRARIES)
    if device == "cuda":
        import torch

        found |= {"cuda": str(torch.version.cuda), "driver": nvml.driver_version()}
    return found
