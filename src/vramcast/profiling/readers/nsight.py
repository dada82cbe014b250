"""Nsight Systems' exports: the SQLite file that ``nsys export --type sqlite`` writes (or ``nsys profile --export sqlite``).

Tables used: CUPTI_ACTIVITY_KIND_KERNEL, _MEMCPY, _MEMSET, _GRAPH_TRACE and _RUNTIME, NVTX_EVENTS, StringIds, TARGET_INFO_GPU
(NVIDIA's documentation, "SQLite Schema Reference"). Times are ns. Correlation ids are unique within a process only.
"""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vramcast.errors import QuestionError
from vramcast.profiling.events import KERNEL, MEMCPY, MEMSET, Origin, Reading, Recorder, Trace

_BATCH = 200_000
_PROCESS_BITS = 40
_RANGE_TYPES = (59, 60)  # NvtxPushPopRange, NvtxStartEndRange
# ENUM_CUDA_MEMCPY_OPER
_COPIES = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
_PREFIX = "CUPTI_ACTIVITY_KIND_"


class _Export:
    """An open export and what has been recorded of it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.recorder = Recorder()
        found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        self.tables = {name for (name,) in found if isinstance(name, str)}
        self.strings: dict[int, str] = {}
        self.processes: dict[int, int] = {}

    def columns(self, table: str) -> set[str]:
        """The columns of a table, none when it is absent."""
        if table not in self.tables:
            return set()
        return {row[1] for row in self.connection.execute(f'PRAGMA table_info("{table}")')}

    def batches(self, table: str, wanted: dict[str, str], where: str = "") -> Iterator[list[list[Any]]]:
        """Columns of a table in batches; a column that this version lacks gives its default (SQL)."""
        have = self.columns(table)
        if not have:
            return
        chosen = ", ".join(f'"{name}"' if name in have else default for name, default in wanted.items())
        cursor = self.connection.execute(f'SELECT {chosen} FROM "{table}" {where}')
        while rows := cursor.fetchmany(_BATCH):
            self.recorder.events += len(rows)
            yield [list(column) for column in zip(*rows, strict=True)]

    def correlations(self, ids: list[Any], places: list[Any]) -> list[int]:
        """Correlation ids made unique over processes, which are the upper bits of a global pid or tid."""
        known = self.processes
        return [
            (known.setdefault(int(place or 0) >> 24, len(known)) << _PROCESS_BITS) + int(number) if number else -1
            for number, place in zip(ids, places, strict=True)
        ]


def read_nsight(path: Path) -> Trace:
    """The columns of an export. Raises QuestionError when the file is no export of Nsight Systems or has no GPU work."""
    try:
        connection = sqlite3.connect(f"file:{path.resolve().as_posix().replace('?', '%3f')}?mode=ro", uri=True)
    except sqlite3.Error as error:
        raise QuestionError(f"cannot open the SQLite file: {error}") from None
    try:
        return _read(_Export(connection), path.stat().st_size)
    except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:
        raise QuestionError(f"the SQLite file is damaged or not of Nsight Systems: {error}") from None
    finally:
        connection.close()


def _read(export: _Export, size: int) -> Trace:
    if not any(table.startswith(_PREFIX) for table in export.tables):
        raise QuestionError("this SQLite file is no export of Nsight Systems with CUDA in it (no CUPTI_ACTIVITY_KIND_* table)")
    if "StringIds" in export.tables:
        export.strings = dict(export.connection.execute("SELECT id, value FROM StringIds"))
    _kernels(export)
    _copies(export)
    _calls(export)
    _ranges(export)
    reading = Reading(events=export.recorder.events, bytes=size)
    return export.recorder.finish(_origin(export), reading)


_PLACE = {"start": "0", "end": "0", "deviceId": "0", "streamId": "0", "correlationId": "0", "globalPid": "0"}


def _add_gpu(export: _Export, columns: list[list[Any]], kind: int, names: list[str], sizes: list[Any]) -> None:
    import numpy as np

    start, end, device, stream, correlation, process = columns
    count = len(start)
    unknown = np.full(count, np.nan, dtype=np.float32)
    export.recorder.add(
        start=start,
        end=np.maximum(np.asarray(start, dtype=np.int64), np.asarray(end, dtype=np.int64)),
        kind=[kind] * count,
        name=export.recorder.name_ids(names),
        stream=export.recorder.stream_ids(str(s) for s in stream),
        device=device,
        correlation=export.correlations(correlation, process),
        external=[-1] * count,
        bytes=[int(size or 0) for size in sizes],
        blocks_per_sm=unknown,
        occupancy=unknown,
    )


def _kernels(export: _Export) -> None:
    for *place, name in export.batches(f"{_PREFIX}KERNEL", {**_PLACE, "demangledName": '"shortName"'}):
        _add_gpu(export, place, KERNEL, [_text(export, n) for n in name], [0] * len(name))
    for place in export.batches(f"{_PREFIX}GRAPH_TRACE", _PLACE):
        _add_gpu(export, place, KERNEL, ["CUDA graph (traced as a whole)"] * len(place[0]), [0] * len(place[0]))


def _copies(export: _Export) -> None:
    for *place, size, kind in export.batches(f"{_PREFIX}MEMCPY", {**_PLACE, "bytes": "0", "copyKind": "0"}):
        _add_gpu(export, place, MEMCPY, [f"Memcpy {_COPIES.get(k, 'unknown')}" for k in kind], size)
    for *place, size in export.batches(f"{_PREFIX}MEMSET", {**_PLACE, "bytes": "0"}):
        _add_gpu(export, place, MEMSET, ["Memset"] * len(size), size)


def _text(export: _Export, name: Any) -> str:
    return name if isinstance(name, str) else export.strings.get(name, "unnamed kernel")


def _calls(export: _Export) -> None:
    wanted = {"start": "0", "end": "0", "nameId": "0", "globalTid": "0", "correlationId": "0"}
    for start, end, name, thread, correlation in export.batches(f"{_PREFIX}RUNTIME", wanted):
        names = (_text(export, n).partition("_v")[0] for n in name)
        export.recorder.add(
            call_start=start,
            call_end=end,
            call_name=export.recorder.name_ids(names),
            call_thread=thread,
            call_correlation=export.correlations(correlation, thread),
        )


def _ranges(export: _Export) -> None:
    wanted = {"start": "0", "end": "0", "text": "NULL", "textId": "NULL", "globalTid": "0"}
    have = export.columns("NVTX_EVENTS")
    kinds = f"AND eventType IN ({', '.join(map(str, _RANGE_TYPES))})" if "eventType" in have else ""
    for start, end, text, text_id, thread in export.batches("NVTX_EVENTS", wanted, f'WHERE "end" IS NOT NULL {kinds}'):
        names = (str(t or export.strings.get(i, "unnamed")) for t, i in zip(text, text_id, strict=True))
        export.recorder.add(
            range_start=start,
            range_end=end,
            range_name=export.recorder.name_ids(names),
            range_thread=[int(t or 0) for t in thread],
        )


def _origin(export: _Export) -> Origin:
    """The GPUs in the order of their ids."""
    have = export.columns("TARGET_INFO_GPU")
    names: dict[int, tuple[str, int]] = {}
    if {"id", "name"} <= have:
        sms = '"smCount"' if "smCount" in have else "0"
        for number, name, count in export.connection.execute(f'SELECT "id", "name", {sms} FROM "TARGET_INFO_GPU"'):
            if isinstance(number, int) and 0 <= number < 1024:
                names[number] = (str(name), int(count or 0))
    listed = [names.get(i, ("", 0)) for i in range(max(names, default=-1) + 1)]
    return Origin(tool="Nsight Systems", gpu_names=tuple(n for n, _ in listed), gpu_sms=tuple(s for _, s in listed))
