"""What is asked of a tracing process and what it answers, one line of JSON each."""

from typing import Any

import msgspec

from vramcast.tracing.policies import DeviceModel


class Case(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A published row as a program: ``arguments`` of its ``main``, under a set of ``libraries``, on that card.

    ``layers``: the model's depth, given to the program as an argument; ``depths``: three to trace instead, None for the whole.
    ``ranks``: the world that the program is told; its figures are those of rank 0. ``environment``: what its launcher sets.
    ``steps``: optimizer steps that are traced. ``capacity_bytes``: what the card leaves to the allocator, which gives unused
    segments back when it is reached; 0 where nobody knows.
    ``compiled``: torch.compile is asked for, and taken as far as memory needs it.
    """

    id: str
    program: str
    arguments: dict[str, Any]
    layers: int
    depths: tuple[int, int, int] | None = None
    libraries: str = "present"
    ranks: int = 1
    environment: dict[str, str] = {}
    device: DeviceModel = DeviceModel()
    steps: int = 2
    capacity_bytes: int = 0
    compiled: bool = False

    @property
    def process(self) -> tuple[object, ...]:
        """Cases of one process share their libraries, their world and their card."""
        return self.program, self.libraries, self.ranks, tuple(self.environment.items()), self.device, self.compiled


class Outcome(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a case gave: peaks in bytes from the first forward pass on, or the ``error`` that ended it."""

    id: str
    program: str
    libraries: str
    allocated_bytes: int = 0
    reserved_bytes: int = 0
    expandable_bytes: int = 0
    depths: tuple[int, ...] = ()
    attention: dict[str, int] = {}
    error: str = ""
    versions: dict[str, str] = {}
