"""Reading torch.cuda.memory snapshots (``_dump_snapshot``) without running anything in them.

A snapshot is a pickle of plain containers, so the reader refuses every global: nothing that a pickle could call is ever looked
up. Size, nesting and shape are bounded. Format: ``torch/cuda/memory.py`` and ``torch/csrc/cuda/memory_snapshot.cpp``.
"""

import io
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from vramcast.errors import QuestionError, UnsafeFileError
from vramcast.units import GiB, MiB, gib
from vramcast.untrusted import memory_bound

_LARGEST_FILE = 2 * GiB
_LEAST_ENTRY_BYTES = 8
"""A recorded block or event is a dictionary of its own: never less in a file than its marks and numbers."""
_ROOM, _ROOM_PER_BYTE = 256 * MiB, 40
"""What an unpickler may take: of real snapshots at most 12 bytes for each of the file."""
_MOST_ENTRIES = 20_000_000
_LEAD = b"\x80"


class Frame(msgspec.Struct, frozen=True):
    """One line of a stack."""

    name: str = "??"
    filename: str = "??"
    line: int = 0


def stack(frames: Any) -> list[Frame]:
    """The frames of a block or event, innermost first. They stay raw until asked for: a pickle shares one stack among many."""
    try:
        return msgspec.convert(list(frames)[:512], list[Frame], strict=False)
    except (msgspec.ValidationError, TypeError, ValueError):
        return []


class SnapshotBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A block of a segment at the end of the recording; ``state`` is active_allocated, active_pending_free or inactive."""

    size: int
    requested_size: int = 0
    state: str = "inactive"
    address: int = -1
    frames: Any = ()

    @property
    def used(self) -> bool:
        """True when a tensor, or a pending free, holds it."""
        return self.state != "inactive"


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A segment at the end of the recording."""

    address: int
    total_size: int
    blocks: list[SnapshotBlock]
    segment_type: str = "large"
    stream: int = 0
    device: int = 0
    is_expandable: bool = False
    segment_pool_id: tuple[int, int] = (0, 0)

    def placed(self) -> list[tuple[int, SnapshotBlock]]:
        """The blocks with their addresses (older snapshots leave them out)."""
        at, placed = self.address, []
        for block in self.blocks:
            at = block.address if block.address >= 0 else at
            placed.append((at, block))
            at += block.size
        return placed


class TraceEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded action; ``size`` of an alloc is the requested size."""

    action: str
    addr: int = 0
    size: int = 0
    stream: int = 0
    time_us: int = 0
    frames: Any = ()


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The segments of all devices and, per device, the recorded actions (a ring: its start may be missing)."""

    segments: list[Segment] = []
    device_traces: list[list[TraceEvent]] = []
    allocator_settings: Any = None

    @property
    def devices(self) -> list[int]:
        """Devices that hold segments or recorded actions."""
        traced = [i for i, trace in enumerate(self.device_traces) if trace]
        return sorted({s.device for s in self.segments} | set(traced))

    def busiest_device(self) -> int:
        """The device with the most reserved bytes."""
        return max(self.devices, key=lambda d: sum(s.total_size for s in self.segments if s.device == d), default=0)

    def on(self, device: int) -> "tuple[list[Segment], list[TraceEvent]]":
        """Segments and actions of one device."""
        trace = self.device_traces[device] if 0 <= device < len(self.device_traces) else []
        return [s for s in self.segments if s.device == device], trace


def recorded_conf(snapshot: Snapshot) -> str:
    """The text of PYTORCH_ALLOC_CONF that a snapshot was recorded under, "" when it names none."""
    recorded = snapshot.allocator_settings if isinstance(snapshot.allocator_settings, dict) else {}
    text = recorded.get("PYTORCH_CUDA_ALLOC_CONF") or recorded.get("PYTORCH_ALLOC_CONF") or ""
    return text if isinstance(text, str) else ""


class _PlainUnpickler(pickle.Unpickler):
    """Containers and scalars only."""

    def find_class(self, module_name: str, global_name: str) -> NoReturn:
        raise UnsafeFileError(
            f"refused: the pickle asks for {module_name}.{global_name}; a memory snapshot holds only dicts, lists and numbers"
        )

    def persistent_load(self, pid: Any) -> NoReturn:
        del pid
        raise UnsafeFileError("refused: the pickle holds a persistent reference, which no memory snapshot does")


def read_snapshot(path: Path) -> Snapshot:
    """The snapshot in a file.

    Raises QuestionError when there is no such file, UnsafeFileError when it is too large, truncated, hostile or not a snapshot.
    """
    try:
        size = path.stat().st_size
    except OSError as error:
        raise QuestionError(f"cannot read {path}: {error.strerror}") from None
    if size > _LARGEST_FILE:
        raise UnsafeFileError(f"{path} is {gib(size)}: a memory snapshot of more than {gib(_LARGEST_FILE)} is not read")
    return parse_snapshot(path.read_bytes(), what=str(path))


def parse_snapshot(data: bytes, *, what: str = "the snapshot") -> Snapshot:
    """The snapshot in these bytes; errors as in ``read_snapshot``."""
    if not data.startswith(_LEAD):
        raise UnsafeFileError(f"{what} is not a pickle of protocol 2 or later, which torch.cuda.memory._dump_snapshot writes")
    try:
        with memory_bound(_ROOM + _ROOM_PER_BYTE * len(data)), _told_once():
            plain = _PlainUnpickler(io.BytesIO(data)).load()
    except UnsafeFileError:
        raise
    except MemoryError:
        raise UnsafeFileError(f"{what} claims containers larger than memory: it is damaged or hostile") from None
    except Exception as error:  # the unpickler raises many kinds on damaged input
        raise UnsafeFileError(f"{what} is damaged or truncated: {type(error).__name__}: {error}") from None
    return _validated(plain, what, len(data))


@contextmanager
def _told_once() -> Iterator[None]:
    """Without the line that CPython prints of its own where a bytearray claims more than there is: the error says it."""
    before, sys.excepthook = sys.excepthook, lambda *_: None
    try:
        yield
    finally:
        sys.excepthook = before


def _validated(plain: object, what: str, size: int) -> Snapshot:
    if isinstance(plain, list):
        plain = {"segments": plain}  # torch.cuda.memory_snapshot() before 2.0: the segments alone
    if not isinstance(plain, dict) or "segments" not in plain:
        raise UnsafeFileError(f"{what} holds no 'segments': it is a pickle, but not a torch.cuda.memory snapshot")
    try:
        _check_size(plain, what, size)
        return msgspec.convert(plain, Snapshot, strict=False)
    except (msgspec.ValidationError, RecursionError, TypeError, KeyError, ValueError) as error:
        raise UnsafeFileError(f"{what} is not a memory snapshot of a known version: {error}") from None


def _check_size(plain: dict[str, Any], what: str, size: int) -> None:
    """Containers that a pickle shares cost nothing in the file and everything once they are written out: count first."""
    entries = sum(len(s["blocks"]) for s in plain["segments"]) + sum(map(len, plain.get("device_traces", ())))
    if entries * _LEAST_ENTRY_BYTES > size:
        raise UnsafeFileError(f"{what} shares its entries: {entries:,} blocks and events in {size:,} bytes are not a recording")
    if entries > _MOST_ENTRIES:
        raise UnsafeFileError(f"{what} holds {entries:,} blocks and events: more than {_MOST_ENTRIES:,} are not read")
