"""The counters that a program reads about its own memory: answered by the log so far, replayed through the allocator model.

A replay costs a second per million events and happens only when a program asks, once for each state of the log.
"""

from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

from vramcast.tracing.allocator.replay import Counters, counters
from vramcast.tracing.execution.recorder import Recorder


class MemoryCounters:
    """torch.cuda's counters of one card; every function takes the device and leaves it at the one card that is traced."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._since = 0
        self._known: tuple[tuple[int, int], Counters] | None = None

    def functions(self) -> dict[str, Any]:
        """The functions by their names in torch.cuda and torch.cuda.memory."""
        return {
            "memory_allocated": lambda *_, **__: self._now().allocated_bytes,
            "max_memory_allocated": lambda *_, **__: self._now().peak_allocated_bytes,
            "memory_reserved": lambda *_, **__: self._now().reserved_bytes,
            "max_memory_reserved": lambda *_, **__: self._now().peak_reserved_bytes,
            "memory_cached": lambda *_, **__: self._now().reserved_bytes,
            "max_memory_cached": lambda *_, **__: self._now().peak_reserved_bytes,
            "memory_stats": self._stats,
            "memory_stats_as_nested_dict": self._nested,
            "memory_snapshot": lambda *_, **__: [],
            "reset_peak_memory_stats": self._reset,
            "reset_max_memory_allocated": self._reset,
            "reset_max_memory_cached": self._reset,
            "reset_accumulated_memory_stats": lambda *_, **__: None,
            "_record_memory_history": lambda *_, **__: None,
            "_dump_snapshot": self._dump,
            "set_per_process_memory_fraction": lambda *_, **__: None,
            "get_per_process_memory_fraction": lambda *_, **__: 1.0,
            "get_allocator_backend": lambda *_, **__: "native",
        }

    def _now(self) -> Counters:
        log = self._recorder.log
        state = (len(log.order), self._since)
        if self._known is None or self._known[0] != state:
            self._known = (state, counters(log, since=self._since))
        return self._known[1]

    def _reset(self, *_: Any, **__: Any) -> None:
        self._since = len(self._recorder.log.order)

    def _stats(self, *_: Any, **__: Any) -> dict[str, int]:
        """What the model knows under its names in torch; every other statistic is 0."""
        now, found = self._now(), defaultdict[str, int](int)
        for name, current, peak in (
            ("allocated_bytes", now.allocated_bytes, now.peak_allocated_bytes),
            ("active_bytes", now.allocated_bytes, now.peak_allocated_bytes),
            ("requested_bytes", self._recorder.live_bytes, self._recorder.peak_bytes),
            ("reserved_bytes", now.reserved_bytes, now.peak_reserved_bytes),
        ):
            found[f"{name}.all.current"], found[f"{name}.all.peak"] = current, peak
        found["segment.all.current"] = found["segment.all.peak"] = now.segments
        found["num_alloc_retries"] = found["num_ooms"] = 0
        return found

    def _nested(self, *_: Any, **__: Any) -> dict[str, Any]:
        nested: dict[str, Any] = {}
        for name, value in self._stats().items():
            *parents, last = name.split(".")
            place = nested
            for parent in parents:
                place = place.setdefault(parent, {})
            place[last] = value
        return nested

    def _dump(self, filename: Any = "dump_snapshot.pickle", *_: Any, **__: Any) -> None:
        """The log so far in the form of memory_viz."""
        from vramcast.tracing.reports.timeline import write_timeline

        path = Path(filename)
        write_timeline(self._recorder.log, path if path.suffix in (".pickle", ".json") else path.with_suffix(".pickle"))


def install(recorder: Recorder) -> None:
    """Answer in every module of torch that has the names: torch.cuda, torch.cuda.memory, torch.accelerator."""
    functions = MemoryCounters(recorder).functions()
    for module in (torch.cuda, torch.cuda.memory, torch.accelerator, getattr(torch.accelerator, "memory", None)):
        for name, function in functions.items():
            if module is not None and hasattr(module, name):
                setattr(module, name, function)
