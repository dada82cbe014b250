"""A trace as columns: work on GPUs, calls that launched it, calls that waited for it, steps and named ranges of the host.

Every reader (Chrome traces, Nsight Systems, rocprof) fills the same columns through a ``Recorder``, so that one analysis serves
all. Names are stored once; a kernel with its launch costs about 120 bytes, whatever its events were on disk.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from vramcast.profiling.intervals import distinct
from vramcast.profiling.kernels import COMMUNICATION, kernel_class

KERNEL, MEMCPY, MEMSET, SYNC = 0, 1, 2, 3


class Signature(msgspec.Struct, frozen=True):
    """A call on the host whose input shapes are known: a matmul or an attention. ``values`` are its plain inputs."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    values: tuple[str, ...] = ()


class Collective(msgspec.Struct, frozen=True):
    """What a communication kernel says of itself; sizes in elements of ``dtype``."""

    name: str
    dtype: str
    in_elements: int
    out_elements: int
    group_size: int
    group: str
    ranks: str = ""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says about where it was taken."""

    tool: str
    gpu_names: tuple[str, ...] = ()
    gpu_sms: tuple[int, ...] = ()
    gpu_bytes: tuple[int, ...] = ()
    rank: int | None = None
    world_size: int | None = None
    versions: tuple[tuple[str, str], ...] = ()


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """How the file was read: ``damage`` says where and why reading stopped early, "" when it did not."""

    events: int
    bytes: int
    damage: str = ""
    skipped: int = 0


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """One file's columns. Arrays are numpy; times int64 ns; ``name`` and ``stream`` are indices into ``names`` and ``streams``.

    GPU work: ``start, end, kind, name, stream, device, correlation, bytes`` (of copies), ``blocks_per_sm`` and ``occupancy`` (NaN
    when not told), ``launch`` (index of the call that launched it, -1 when unknown), ``talks`` (a kernel that communicates).
    Calls of the runtime: ``call_start, call_end, call_name, call_thread, call_correlation``. Ranges of the host (user
    annotations): ``range_start, range_end, range_name, range_thread``. Operators with shapes: ``op_start, op_end, op_thread``,
    ``op_signature`` (an index into ``signatures``, one per distinct call). ``collectives``: by index into the GPU work.
    """

    origin: Origin
    reading: Reading
    names: tuple[str, ...]
    streams: tuple[str, ...]
    columns: dict[str, Any]
    collectives: dict[int, Collective]
    signatures: tuple[Signature, ...]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.columns[name]
        except KeyError:
            raise AttributeError(name) from None


_INTEGERS = ("start", "end", "correlation", "external", "bytes", "call_start", "call_end", "call_thread", "call_correlation",
             "range_start", "range_end", "range_thread", "op_start", "op_end", "op_thread")  # fmt: skip
_INDICES = ("kind", "name", "stream", "device", "call_name", "range_name", "op_signature")
_FRACTIONS = ("blocks_per_sm", "occupancy")
COLUMNS = {**dict.fromkeys(_INTEGERS, "int64"), **dict.fromkeys(_INDICES, "int32"), **dict.fromkeys(_FRACTIONS, "float32")}
MOST_COLLECTIVES = 2_000_000


class _Numbered(dict[Any, int]):
    """Things numbered in the order they are first asked for."""

    def __missing__(self, thing: Any) -> int:
        self[thing] = len(self)
        return len(self) - 1


class Recorder:
    """Collects a trace batch by batch; ``finish`` joins the batches into columns."""

    def __init__(self) -> None:
        self.names: _Numbered = _Numbered()
        self.streams: _Numbered = _Numbered()
        self._batches: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        self.collectives: dict[int, Collective] = {}
        self.signatures: _Numbered = _Numbered()
        self.processes: dict[str, int] = {}
        self.gpu_events = self.events = self.skipped = 0

    def name_ids(self, names: Iterable[Any]) -> list[int]:
        """The index of each name; a name is stored once."""
        return [self.names[name] for name in names]

    def stream_ids(self, labels: Iterable[Any]) -> list[int]:
        """The index of each stream's label."""
        return [self.streams[label] for label in labels]

    def add(self, **columns: Any) -> None:
        """Append a batch: sequences or arrays of one length, by column name. A value that fits no column raises before all."""
        import numpy as np

        made = {name: np.asarray(values, dtype=COLUMNS[name]) for name, values in columns.items()}
        for name, values in made.items():
            self._batches[name].append(values)
        self.gpu_events += len(made.get("start", ()))

    def finish(self, origin: Origin, reading: Reading) -> Trace:
        """The whole trace; the batches are given up one column at a time."""
        import numpy as np

        columns = {}
        for name, kind in COLUMNS.items():
            batches = self._batches.pop(name)
            columns[name] = np.concatenate(batches) if batches else np.empty(0, dtype=kind)
        columns["launch"] = _launches(columns)
        columns["talks"] = _talks(columns, self.names)
        return Trace(
            origin=origin,
            reading=reading,
            names=tuple(map(str, self.names)),
            streams=tuple(map(str, self.streams)),
            columns=columns,
            collectives=self.collectives,
            signatures=tuple(self.signatures),
        )


def _launches(columns: dict[str, Any]) -> Any:
    """By GPU event: the index of the call with the same correlation id, which launched it; -1 when the trace has none."""
    import numpy as np

    calls = np.flatnonzero(columns["call_correlation"] > 0)
    order = calls[np.argsort(columns["call_correlation"][calls], kind="stable")]
    ids = columns["call_correlation"][order]
    if not ids.size:
        return np.full(len(columns["start"]), -1)
    at = np.minimum(np.searchsorted(ids, columns["correlation"]), ids.size - 1)
    return np.where((ids[at] == columns["correlation"]) & (columns["correlation"] > 0), order[at], -1)


def _talks(columns: dict[str, Any], names: Iterable[Any]) -> Any:
    """By GPU event: whether it is a kernel that communicates, as its name tells."""
    import numpy as np

    kernels = columns["kind"] == KERNEL
    listed = tuple(names)
    known = np.zeros(len(listed) + 1, dtype=bool)
    for i in distinct(columns["name"][kernels]).tolist():
        known[i] = kernel_class(str(listed[i])) == COMMUNICATION
    return kernels & known[columns["name"]]
