"""AMD's profilers: rocprof's Chrome trace (v1, v2: ``results.json``) and rocprofv3's own JSON (``--output-format json``).

rocprof's events carry ``BeginNs`` and ``EndNs`` in their arguments, and their process tells what they are: GPUn, COPY, CPU HIP
API. rocprofv3's file is one object with kernel dispatches, copies and calls as records with ns times; it is read whole, so it may
not be larger than 4 GiB. Format: rocprofiler-sdk, "Using rocprofv3", JSON output schema.
"""

import re
from typing import Any

import msgspec

from vramcast.errors import QuestionError
from vramcast.profiling.events import KERNEL, MEMCPY, Origin, Reading, Recorder, Trace

LARGEST_BYTES = 4 * 2**30
_GPU_PROCESS = re.compile(r"\bGPU ?(\d+)\b")


class _Id(msgspec.Struct, frozen=True):
    internal: int = 0
    handle: int = 0


class _Dispatch(msgspec.Struct, frozen=True):
    agent_id: _Id = _Id()
    queue_id: _Id = _Id()
    kernel_id: int = 0


class _Record(msgspec.Struct, frozen=True):
    start_timestamp: int
    end_timestamp: int
    correlation_id: _Id = _Id()
    thread_id: int = 0
    kind: int = 0
    operation: int = 0
    dispatch_info: _Dispatch = _Dispatch()
    bytes: int = 0
    src_agent_id: _Id = _Id()
    dst_agent_id: _Id = _Id()


class _Buffers(msgspec.Struct, frozen=True):
    kernel_dispatch: list[_Record] = []
    memory_copy: list[_Record] = []
    hip_api: list[_Record] = []


class _Symbol(msgspec.Struct, frozen=True):
    kernel_id: int = 0
    formatted_kernel_name: str = ""
    kernel_name: str = ""


class _Agent(msgspec.Struct, frozen=True):
    id: _Id = _Id()
    type: int = 0
    name: str = ""
    product_name: str = ""
    cu_count: int = 0


class _Names(msgspec.Struct, frozen=True):
    kind: str = ""
    operations: list[str] = []


class _Strings(msgspec.Struct, frozen=True):
    buffer_records: list[_Names] = []


class _Session(msgspec.Struct, frozen=True):
    agents: list[_Agent] = []
    kernel_symbols: list[_Symbol] = []
    buffer_records: _Buffers = _Buffers()
    strings: _Strings = _Strings()


class _File(msgspec.Struct, frozen=True):
    sessions: list[_Session] | _Session = msgspec.field(name="rocprofiler-sdk-tool")


_GPU_AGENT = 2  # ROCPROFILER_AGENT_TYPE_GPU


def is_rocprofv3(head: bytes) -> bool:
    """Whether a JSON file is rocprofv3's own."""
    return b'"rocprofiler-sdk-tool"' in head


def read_rocprofv3(data: bytes) -> Trace:
    """The columns of rocprofv3's JSON. Raises QuestionError where it is cut off or of another form."""
    try:
        found = msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise QuestionError(f"rocprofv3's JSON is cut off or of another form: {error}") from None
    recorder = Recorder()
    agents: list[_Agent] = []
    for session in found.sessions if isinstance(found.sessions, list) else [found.sessions]:
        agents += [agent for agent in session.agents if agent.type == _GPU_AGENT]
        _session(recorder, session, {agent.id.handle: i for i, agent in enumerate(agents)})
    names = tuple(agent.product_name or agent.name for agent in agents)
    origin = Origin(tool="rocprofv3", gpu_names=names, gpu_sms=tuple(agent.cu_count for agent in agents))
    return recorder.finish(origin, Reading(events=recorder.events, bytes=len(data)))


def _session(recorder: Recorder, session: _Session, devices: dict[int, int]) -> None:
    symbols = {s.kernel_id: s.formatted_kernel_name or s.kernel_name for s in session.kernel_symbols}
    operations = {i: names.operations for i, names in enumerate(session.strings.buffer_records)}
    kernels, copies, calls = (getattr(session.buffer_records, n) for n in ("kernel_dispatch", "memory_copy", "hip_api"))
    recorder.events += len(kernels) + len(copies) + len(calls)
    _add(
        recorder,
        kernels,
        KERNEL,
        names=[symbols.get(r.dispatch_info.kernel_id, "unnamed kernel") for r in kernels],
        devices=[devices.get(r.dispatch_info.agent_id.handle, -1) for r in kernels],
        streams=[f"queue {r.dispatch_info.queue_id.handle}" for r in kernels],
    )
    _add(
        recorder,
        copies,
        MEMCPY,
        names=[f"Memcpy {_operation(operations, r, 'copy')}" for r in copies],
        devices=[devices.get(r.dst_agent_id.handle, devices.get(r.src_agent_id.handle, 0)) for r in copies],
        streams=["copies"] * len(copies),
    )
    recorder.add(
        call_start=[r.start_timestamp for r in calls],
        call_end=[r.end_timestamp for r in calls],
        call_name=recorder.name_ids(_operation(operations, r, "hip call") for r in calls),
        call_thread=[r.thread_id for r in calls],
        call_correlation=[r.correlation_id.internal for r in calls],
    )


def _operation(operations: dict[int, list[str]], record: _Record, otherwise: str) -> str:
    known = operations.get(record.kind, [])
    return known[record.operation] if 0 <= record.operation < len(known) else otherwise


def _add(
    recorder: Recorder, records: list[_Record], kind: int, *, names: list[str], devices: list[int], streams: list[str]
) -> None:
    count = len(records)
    unknown = [float("nan")] * count
    recorder.add(
        start=[r.start_timestamp for r in records],
        end=[max(r.start_timestamp, r.end_timestamp) for r in records],
        kind=[kind] * count,
        name=recorder.name_ids(names),
        stream=recorder.stream_ids(streams),
        device=devices,
        correlation=[r.correlation_id.internal or -1 for r in records],
        external=[-1] * count,
        bytes=[max(0, r.bytes) for r in records],
        blocks_per_sm=unknown,
        occupancy=unknown,
    )


class _Label(msgspec.Struct, frozen=True):
    name: str = ""


class _Times(msgspec.Struct, frozen=True):
    begin: int | str = msgspec.field(default=-1, name="BeginNs")
    end: int | str = msgspec.field(default=-1, name="EndNs")
    queue: int | str = msgspec.field(default="0", name="queue-id")


_LABELS = msgspec.json.Decoder(list[_Label])
_TIMES = msgspec.json.Decoder(list[_Times])
_COPY, _CALLS = -1, -2


def record_rocprof(recorder: Recorder, events: list[Any]) -> None:
    """Events without a category, of rocprof's Chrome trace: names of processes, then what ran in each.

    ``events`` have ``ph``, ``name``, ``pid``, ``dur`` and raw ``args``. Calls and kernels share no id there.
    """
    labels = [e for e in events if e.ph == "M" and e.name == "process_name" and e.args]
    for event, label in zip(labels, _LABELS.decode(_joined(labels)), strict=True):
        if (kind := _kind_of_process(label.name)) is not None:
            recorder.processes[str(event.pid)] = kind
    timed = [e for e in events if e.ph == "X" and str(e.pid) in recorder.processes and b"BeginNs" in bytes(e.args)]
    if timed:
        _add_timed(recorder, timed, _TIMES.decode(_joined(timed)))


def _joined(events: list[Any]) -> bytes:
    return b"[" + b",".join([bytes(e.args) for e in events]) + b"]"


def _kind_of_process(label: str) -> int | None:
    """The number of a GPU, _COPY, _CALLS, or None for what is no work ("Markers and Ranges")."""
    if match := _GPU_PROCESS.search(label):
        return int(match[1])
    return _COPY if "COPY" in label.upper() else _CALLS if "HIP API" in label.upper() else None


def _add_timed(recorder: Recorder, events: list[Any], told: list[_Times]) -> None:
    kinds = [recorder.processes[str(e.pid)] for e in events]
    calls = [(e, t) for e, t, kind in zip(events, told, kinds, strict=True) if kind == _CALLS]
    work = [(e, t, kind) for e, t, kind in zip(events, told, kinds, strict=True) if kind != _CALLS]
    recorder.add(
        call_start=[int(t.begin) for _, t in calls],
        call_end=[max(int(t.begin), int(t.end)) for _, t in calls],
        call_name=recorder.name_ids(str(e.name) for e, _ in calls),
        call_thread=[0] * len(calls),
        call_correlation=[-1] * len(calls),
    )
    unknown = [float("nan")] * len(work)
    recorder.add(
        start=[int(t.begin) for _, t, _ in work],
        end=[max(int(t.begin), int(t.end)) for _, t, _ in work],
        kind=[MEMCPY if kind == _COPY else KERNEL for _, _, kind in work],
        name=recorder.name_ids(str(e.name) for e, _, _ in work),
        stream=recorder.stream_ids("copies" if kind == _COPY else f"queue {t.queue}" for _, t, kind in work),
        device=[max(0, kind) for _, _, kind in work],
        correlation=[-1] * len(work),
        external=[-1] * len(work),
        bytes=[0] * len(work),
        blocks_per_sm=unknown,
        occupancy=unknown,
    )
