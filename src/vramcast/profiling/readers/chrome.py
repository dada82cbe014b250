"""Chrome traces of PyTorch's profiler (Kineto, on CUDA and ROCm) and of rocprof, read as a stream.

Format: libkineto's output_json.cpp; ``ts`` and ``dur`` are microseconds, decimals are nanoseconds. GPU work has the categories
kernel, gpu_memcpy, gpu_memset (Kernel, Memcpy, Memset in 2021); the call that launched it carries the same correlation id.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from vramcast.errors import QuestionError
from vramcast.profiling.events import (
    KERNEL,
    MEMCPY,
    MEMSET,
    MOST_COLLECTIVES,
    SYNC,
    Collective,
    Reading,
    Recorder,
    Signature,
    Trace,
)
from vramcast.profiling.readers.chrome_header import origin_of
from vramcast.profiling.readers.pieces import DamageError, EventList
from vramcast.profiling.readers.rocprof import record_rocprof

_GPU = {
    "kernel": KERNEL, "Kernel": KERNEL, "gpu_memcpy": MEMCPY, "Memcpy": MEMCPY, "gpu_memset": MEMSET, "Memset": MEMSET,
    "cuda_sync": SYNC,
}  # fmt: skip
_CALL, _RANGE, _OPERATOR = 10, 11, 12
_CATEGORIES = {
    **_GPU, "cuda_runtime": _CALL, "cuda_driver": _CALL, "hip_runtime": _CALL, "Runtime": _CALL, "mtia_runtime": _CALL,
    "user_annotation": _RANGE, "cpu_op": _OPERATOR, "Operator": _OPERATOR,
}  # fmt: skip
# Operators whose shapes tell the work of the kernels they launch. Only innermost ones: none of them calls another.
SHAPED = frozenset(
    (
        "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::_scaled_mm", "aten::_int_mm",
        "aten::_grouped_mm", "aten::_scaled_grouped_mm",
        "aten::_flash_attention_forward", "aten::_flash_attention_backward",
        "aten::_efficient_attention_forward", "aten::_efficient_attention_backward",
        "aten::_scaled_dot_product_cudnn_attention", "aten::_scaled_dot_product_cudnn_attention_backward",
        "flash_attn::_flash_attn_forward", "flash_attn::_flash_attn_backward",
        "flash_attn::_flash_attn_varlen_forward", "flash_attn::_flash_attn_varlen_backward",
    )
)  # fmt: skip
_NOT_A_NUMBER = re.compile(rb"(?<=[:\[,\s])-?(?:nan|NaN|inf|Infinity)(?=\s*[,}\]])")


class _Event(msgspec.Struct, gc=False):
    """One event; what only some events need stays raw."""

    cat: str | None = ""
    name: str | int | float | None = ""
    ts: float | str = 0.0
    dur: float | str | None = None
    tid: int | str | float | None = 0
    pid: int | str | float | None = 0
    ph: str | None = ""
    args: msgspec.Raw = msgspec.Raw(b"")


class _GpuArgs(msgspec.Struct, gc=False):
    stream: int | str | None = None
    device: int | str | None = None
    correlation: int | str | None = None
    external: int | str | None = msgspec.field(default=None, name="External id")
    bytes: int | float | str | None = 0
    blocks: float | str | None = msgspec.field(default=None, name="blocks per SM")
    occupancy: float | str | None = msgspec.field(default=None, name="est. achieved occupancy %")
    collective: str | None = msgspec.field(default=None, name="Collective name")
    dtype: str | None = None
    in_elements: int | None = msgspec.field(default=None, name="In msg nelems")
    out_elements: int | None = msgspec.field(default=None, name="Out msg nelems")
    group_size: int | None = msgspec.field(default=None, name="Group size")
    group: str | int | None = msgspec.field(default=None, name="Process Group Name")
    description: str | None = msgspec.field(default=None, name="Process Group Description")
    ranks: str | None = msgspec.field(default=None, name="Process Group Ranks")


class _CallArgs(msgspec.Struct, gc=False):
    correlation: int | str | None = None


class _OperatorArgs(msgspec.Struct, gc=False):
    shapes: list[Any] | None = msgspec.field(default=None, name="Input Dims")
    types: list[Any] | None = msgspec.field(default=None, name="Input type")
    concrete: list[Any] | None = msgspec.field(default=None, name="Concrete Inputs")


_EVENTS = msgspec.json.Decoder(list[_Event])
_RAWS = msgspec.json.Decoder(list[msgspec.Raw])
_EVENT = msgspec.json.Decoder(_Event)
_GPU_ARGS = msgspec.json.Decoder(list[_GpuArgs])
_CALL_ARGS = msgspec.json.Decoder(list[_CallArgs])
_OPERATOR_ARGS = msgspec.json.Decoder(list[_OperatorArgs])
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def read_chrome(chunks: Iterator[bytes]) -> Trace:
    """The columns of a Chrome trace. A damaged file gives what came before the damage, which ``reading.damage`` names.

    Raises QuestionError when it is no trace at all.
    """
    recorder = Recorder()
    events = EventList(chunks, lambda piece: _take(recorder, piece))
    damage = ""
    try:
        events.walk()
    except DamageError as found:
        damage = str(found)
    if damage and not recorder.events:
        raise QuestionError(f"no event of a profiler trace could be read: {damage}")
    reading = Reading(events=recorder.events, bytes=events.read_bytes, damage=damage, skipped=recorder.skipped)
    origin = origin_of(events.header, events.trailer)
    return recorder.finish(msgspec.structs.replace(origin, tool="rocprof") if recorder.processes else origin, reading)


def _take(recorder: Recorder, piece: memoryview) -> bool:
    """Record a piece's events; False when it is no JSON even after the repairs that real traces need."""
    text = b"".join((b"[", piece, b"]"))
    try:
        found = _EVENTS.decode(text)
    except _BROKEN:
        repaired = _repaired(recorder, text)
        if repaired is None:
            return False
        found = repaired
    recorder.events += len(found)
    _record(recorder, found)
    return True


def _repaired(recorder: Recorder, text: bytes) -> list[_Event] | None:
    """Events of a piece with bare nan or inf, broken UTF-8 in a name, or single events of another form (skipped, counted)."""
    text = _NOT_A_NUMBER.sub(b"null", text.decode("utf-8", "replace").encode())
    try:
        raws = _RAWS.decode(text)
    except _BROKEN:
        return None
    found = []
    for raw in raws:
        try:
            found.append(_EVENT.decode(raw))
        except _BROKEN:
            recorder.skipped += 1
    return found


class _Known(dict[Any, bool]):
    """Whether a name matches, found out once per name."""

    def __init__(self, pattern: str) -> None:
        super().__init__()
        self._matches = re.compile(pattern, re.IGNORECASE).search

    def __missing__(self, name: Any) -> bool:
        if len(self) > _MOST_KNOWN:
            self.clear()
        found = self[name] = self._matches(str(name)) is not None
        return found


_MOST_KNOWN = 100_000
# Calls that start work on the GPU or wait for it; the many others (cudaGetDevice, cudaStreamIsCapturing ...) tell nothing here.
_CALL_MATTERS = _Known("launch|memcpy|memset|sync|graph|submit|enqueue")
_LOADS_DATA = _Known(r"enumerate\(DataLoader\)|dataloader|data_loader|get_batch|next_batch|fetch_next")


def _record(recorder: Recorder, events: list[_Event]) -> None:
    """Sort events to the columns by category."""
    by_category: defaultdict[str | None, list[_Event]] = defaultdict(list)
    for event in events:
        by_category[event.cat].append(event)
    for category, batch in by_category.items():
        if not category:
            _tolerantly(record_rocprof, recorder, batch, timed=False)
            continue
        kind = _CATEGORIES.get(category)
        if kind is None:
            continue
        if kind == _CALL:
            _tolerantly(_record_calls, recorder, [e for e in batch if _CALL_MATTERS[e.name]])
        elif kind == _RANGE:
            _tolerantly(_record_ranges, recorder, batch)
        elif kind == _OPERATOR:
            _tolerantly(_record_operators, recorder, [e for e in batch if e.name in SHAPED])
            _tolerantly(_record_ranges, recorder, [e for e in batch if _LOADS_DATA[e.name]])
        else:
            _tolerantly(_record_gpu, recorder, batch)


def _tolerantly(
    record: Callable[[Recorder, list[_Event]], None], recorder: Recorder, events: list[_Event], *, timed: bool = True
) -> None:
    """Record the complete events of a batch; one that lacks what its category needs is found by halving, and counted."""
    events = [e for e in events if e.dur is not None] if timed else events
    if not events:
        return
    try:
        record(recorder, events)
    except (*_BROKEN, ValueError, TypeError, OverflowError):
        if len(events) == 1:
            recorder.skipped += 1
            return
        middle = len(events) // 2
        _tolerantly(record, recorder, events[:middle], timed=timed)
        _tolerantly(record, recorder, events[middle:], timed=timed)


def _times(events: list[_Event]) -> tuple[Any, Any]:
    """Starts and ends in ns; raises ValueError for a time that no clock shows."""
    start = _nanoseconds([e.ts for e in events])
    length = _nanoseconds([e.dur for e in events])
    if (length < 0).any():
        raise ValueError
    return start, start + length


def _nanoseconds(microseconds: list[Any]) -> Any:
    """Whole microseconds and their decimals apart: as one float, microseconds since 1970 leave no room for nanoseconds."""
    import numpy as np

    us = np.array(microseconds, dtype=np.float64)
    whole = np.floor(us)
    if not (np.abs(whole) < _LATEST_US).all():
        raise ValueError
    return whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64)


_LATEST_US = 4e15


def _arguments(decoder: Any, events: list[_Event]) -> Any:
    """The arguments of a batch, decoded at once."""
    return decoder.decode(b"[" + b",".join([bytes(e.args) or b"{}" for e in events]) + b"]")


def _whole(value: Any) -> int:
    """An id as an integer; -1 when it is absent or no number."""
    if type(value) is int:
        return value
    try:
        return int(value)
    except (TypeError, ValueError):
        return -1


def _ids(values: list[Any]) -> Any:
    """Ids as int64; -1 where one is absent or no number."""
    import numpy as np

    try:
        return np.array(values, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_whole(value) for value in values], dtype=np.int64)


def _figures(values: list[Any]) -> Any:
    """Figures as float32; NaN where one is absent or no number."""
    import numpy as np

    with np.errstate(over="ignore"):
        try:
            return np.array(values, dtype=np.float32)
        except (TypeError, ValueError, OverflowError):
            told = [value if isinstance(value, int | float) else None for value in values]
            return np.array(told, dtype=np.float32)


def _record_gpu(recorder: Recorder, events: list[_Event]) -> None:
    """Work of one category."""
    import numpy as np

    start, end = _times(events)
    args: list[_GpuArgs] = _arguments(_GPU_ARGS, events)
    first = recorder.gpu_events
    recorder.add(
        start=start,
        end=end,
        kind=np.full(len(events), _GPU[events[0].cat or ""]),
        name=recorder.name_ids([e.name for e in events]),
        stream=recorder.stream_ids([e.tid if a.stream is None else a.stream for e, a in zip(events, args, strict=True)]),
        device=_ids([a.device for a in args]),
        correlation=_ids([a.correlation for a in args]),
        external=_ids([a.external for a in args]),
        bytes=np.maximum(0, _ids([a.bytes for a in args])),
        blocks_per_sm=_figures([a.blocks for a in args]),
        occupancy=_figures([a.occupancy for a in args]),
    )
    for i, a in enumerate(args):
        if a.collective is not None and len(recorder.collectives) < MOST_COLLECTIVES:
            recorder.collectives[first + i] = _collective(a)


def _collective(args: _GpuArgs) -> Collective:
    return Collective(
        name=args.collective or "",
        dtype=args.dtype or "",
        in_elements=args.in_elements or 0,
        out_elements=args.out_elements or 0,
        group_size=args.group_size or 0,
        group=args.description or str(args.group or ""),
        ranks=args.ranks or "",
    )


def _record_calls(recorder: Recorder, events: list[_Event]) -> None:
    start, end = _times(events)
    args: list[_CallArgs] = _arguments(_CALL_ARGS, events)
    recorder.add(
        call_start=start,
        call_end=end,
        call_name=recorder.name_ids([e.name for e in events]),
        call_thread=_ids([e.tid for e in events]),
        call_correlation=_ids([a.correlation for a in args]),
    )


def _record_ranges(recorder: Recorder, events: list[_Event]) -> None:
    start, end = _times(events)
    names, threads = recorder.name_ids([e.name for e in events]), _ids([e.tid for e in events])
    recorder.add(range_start=start, range_end=end, range_name=names, range_thread=threads)


def _record_operators(recorder: Recorder, events: list[_Event]) -> None:
    args: list[_OperatorArgs] = _arguments(_OPERATOR_ARGS, events)
    told = [(event, a) for event, a in zip(events, args, strict=True) if a.shapes]
    start, end = _times([event for event, _ in told])
    recorder.add(
        op_start=start,
        op_end=end,
        op_thread=_ids([event.tid for event, _ in told]),
        op_signature=[recorder.signatures[_signature(event, a)] for event, a in told],
    )


def _signature(event: _Event, args: _OperatorArgs) -> Signature:
    return Signature(
        name=str(event.name),
        shapes=tuple(_shape(shape) for shape in (args.shapes or ())[:_MOST_INPUTS]),
        dtypes=tuple(str(t) for t in (args.types or ())[:_MOST_INPUTS]),
        values=tuple(str(v) for v in (args.concrete or ())[:_MOST_INPUTS]),
    )


_MOST_INPUTS = 16


def _shape(shape: Any) -> tuple[int, ...]:
    return tuple(n for n in shape if isinstance(n, int)) if isinstance(shape, list) else ()
