"""The recorder: follows the storages of device tensors and writes their allocations and frees into the event log."""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from vramcast.tracing.eventlog import Allocation, EventLog
from vramcast.tracing.execution.places import Places


class Recorder:
    """Every storage on the device is one allocation, from the first tensor that shows it until Python or C++ lets it go.

    ``live_bytes`` is what is requested at the moment; ``cards``: where tensors were put, all of which one log holds. A storage is
    known by its C++ address for as long as it lives.
    """

    def __init__(self, places: Places) -> None:
        self.places = places
        self.outside: set[int] = set()
        self.cards: set[Any] = set()
        self._numbers: dict[int, int] = {}
        self._categories: dict[int, str] = {}
        self._watches: dict[int, Any] = {}
        self.restart()

    def restart(self) -> None:
        """Begin an empty log."""
        self.log = EventLog(allocations=[], order=[], marks=[], emptied=[], stages=[])
        self.stream = self.live_bytes = self.peak_bytes = 0
        self.closed = False
        self._phase = self._purpose = ""
        for known in (self._numbers, self._categories, self._watches):
            known.clear()
        self.cards.clear()

    def see(self, tensor: torch.Tensor, op: str) -> None:
        """Note a tensor that an operator returned; an allocation when its storage is new or has grown."""
        if tensor.layout is not torch.strided:
            for part in parts_of_sparse(tensor):
                self.see(part, op)
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._watches:
            self._resized(key, storage, op)
        elif key not in self.outside:
            self._watches[key] = weakref.ref(storage, partial(self._gone, key))
            self.cards.add(getattr(tensor, "fake_device", None))
            self._numbers[key] = self._allocate(storage.nbytes(), op)

    def label(self, tensor: torch.Tensor, category: str, module: str = "") -> None:
        """Say what a tensor is (weights, gradients, optimizer, inputs) and, where nothing knew it, of which module."""
        if tensor.layout is not torch.strided:
            for part in parts_of_sparse(tensor):
                self.label(part, category, module)
            return
        storage = tensor.untyped_storage()
        if storage._cdata in self.outside:
            return
        self.see(tensor, "external")
        key = storage._cdata
        self._categories[key] = category
        number = self._numbers[key]
        if number:
            allocation = self.log.allocations[number - 1]
            allocation.category, allocation.module = category, allocation.module or module

    def resize(self, storage: torch.UntypedStorage) -> None:
        """A storage was resized in place (FSDP frees and refills its all-gather buffers so)."""
        if storage._cdata in self._watches:
            self._resized(storage._cdata, storage, "resize_")

    def ignore(self, tensor: torch.Tensor) -> None:
        """Keep a storage out of the log: it does not come from the caching allocator."""
        self.outside.add(tensor.untyped_storage()._cdata)

    @contextmanager
    def purpose(self, category: str) -> Iterator[None]:
        """What is allocated inside serves a purpose that no module tells: communication, gathered."""
        before, self._purpose = self._purpose, category
        try:
            yield
        finally:
            self._purpose = before

    def permanent(self, size: int, op: str) -> None:
        """An allocation that nobody ever frees, such as a library's workspace."""
        number = self._allocate(size, op)
        self.log.allocations[number - 1].category = "workspace"

    def transient(self, sizes: list[int], op: str) -> None:
        """Allocations that live only while one operator runs."""
        numbers = [self._allocate(size, op) for size in sizes if size]
        for number in numbers:
            self.log.allocations[number - 1].category = "workspace"
            self._free(number)

    def empty_cache(self) -> None:
        """The program gives unused segments back."""
        if not self.closed:
            self.log.empty()

    def origin(self, tensor: torch.Tensor) -> Allocation | None:
        """The allocation behind a tensor, if it is on the device."""
        number = self._numbers.get(tensor.untyped_storage()._cdata, 0)
        return self.log.allocations[number - 1] if number else None

    def _allocate(self, size: int, op: str) -> int:
        if not size:
            return 0
        module, phase = self.places.here()
        moment = "backward" if phase == "recompute" else phase
        if moment != self._phase:
            self._phase = moment
            self.log.mark(moment)
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        return self.log.allocate(
            Allocation(
                size=size,
                stream=self.stream,
                op=op,
                module=module,
                phase=phase,
                category=self._purpose,
                line=self.places.line(),
            )
        )

    def _free(self, number: int) -> None:
        if number and not self.closed:
            self.live_bytes -= self.log.allocations[number - 1].size
            self.log.free(number)

    def _resized(self, key: int, storage: torch.UntypedStorage, op: str) -> None:
        number, size = self._numbers[key], storage.nbytes()
        if size == (self.log.allocations[number - 1].size if number else 0):
            return
        self._free(number)
        number = self._numbers[key] = self._allocate(size, op)
        if number and key in self._categories:
            self.log.allocations[number - 1].category = self._categories[key]

    def _gone(self, key: int, _: Any = None) -> None:
        self._watches.pop(key, None)
        self._categories.pop(key, None)
        self._free(self._numbers.pop(key, 0))


def parts_of_sparse(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The dense tensors that a sparse one is made of: places and values."""
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    return tensor.crow_indices(), tensor.col_indices(), tensor.values()
