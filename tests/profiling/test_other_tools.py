"""Nsight Systems' SQLite exports and AMD's rocprof files, made by hand after their documented forms."""

import io
import json
import sqlite3
from pathlib import Path

import pytest
from trace_events import ADD, GEMM

from vramcast.cli import run
from vramcast.errors import QuestionError
from vramcast.profiling.files import read_stream, read_trace
from vramcast.profiling.report import report_of

PID = 4242 << 24


@pytest.fixture
def export(tmp_path: Path) -> Path:
    path = tmp_path / "report.sqlite"
    db = sqlite3.connect(path)
    db.executescript(
        """
        CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, contextId INT, streamId INT, correlationId INT,
            globalPid INT, demangledName INT, shortName INT);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT, deviceId INT, streamId INT, correlationId INT, globalPid INT,
            bytes INT, copyKind INT);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT, nameId INT);
        CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, textId INT, globalTid INT);
        CREATE TABLE TARGET_INFO_GPU (id INT, name TEXT, smCount INT);
        """
    )
    names = {1: GEMM, 2: ADD, 3: "cudaLaunchKernel_v7000", 4: "cudaMemcpyAsync_v3020", 5: "step 7"}
    db.executemany("INSERT INTO StringIds VALUES (?, ?)", names.items())
    kernel = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 1, 7, ?, ?, ?, 2)"
    db.executemany(kernel, [(1000, 11_000, 1, PID, 1), (31_000, 41_000, 2, PID, 2)])
    db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (41000, 51000, 0, 9, 3, ?, 1000000, 1)", (PID,))
    calls = [(500, 700, PID + 1, 1, 3), (20_000, 20_200, PID + 1, 2, 3), (21_000, 21_200, PID + 1, 3, 4)]
    db.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", calls)
    ranges = [(0, 60_000, 59, None, 5, PID + 1), (100, 200, 34, "a mark", None, PID + 1), (10, None, 59, "open", None, PID + 1)]
    db.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", ranges)
    db.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H100 80GB HBM3', 132)")
    db.commit()
    db.close()
    return path


def test_an_export_of_nsight_systems(export: Path) -> None:
    found = report_of(read_trace(export), file=str(export))
    assert found is not None
    assert (found.origin.tool, found.gpu) == ("Nsight Systems", "NVIDIA H100 80GB HBM3")
    where = found.where
    assert where.span_s == pytest.approx(50e-6) and where.compute_s == pytest.approx(20e-6)
    assert where.exposed_copies_s == pytest.approx(10e-6)
    assert where.idle["host"] == pytest.approx(20e-6)
    assert [(c.name, c.bytes) for c in found.copies] == [("Memcpy HtoD", 1_000_000)]
    assert [s.number for s in found.steps] == [7]


def test_correlation_ids_are_apart_between_processes(export: Path) -> None:
    db = sqlite3.connect(export)
    other = 4243 << 24
    db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (60000, 61000, 1, 1, 7, 1, ?, 1, 2)", (other,))
    db.commit()
    db.close()
    trace = read_trace(export)
    assert trace.launch.tolist().count(-1) == 1
    assert len(set(trace.correlation.tolist())) == 4


def test_other_databases_and_damaged_ones_are_refused(tmp_path: Path, export: Path) -> None:
    other = tmp_path / "other.sqlite"
    db = sqlite3.connect(other)
    db.execute("CREATE TABLE notes (id INT)")
    db.commit()
    db.close()
    with pytest.raises(QuestionError, match="no export of Nsight Systems with CUDA in it"):
        read_trace(other)
    cut = tmp_path / "cut.sqlite"
    cut.write_bytes(export.read_bytes()[:9000])
    with pytest.raises(QuestionError, match="damaged or not of Nsight Systems"):
        read_trace(cut)
    odd = tmp_path / "odd.sqlite"
    db = sqlite3.connect(odd)
    db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start TEXT, end TEXT)")
    db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ('soon', 'later')")
    db.commit()
    db.close()
    with pytest.raises(QuestionError, match="damaged or not of Nsight Systems"):
        read_trace(odd)


def test_nsights_own_report_says_how_to_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.nsys-rep"
    path.write_bytes(b"NVNSYSREP..................")
    assert run(["profile", str(path)]) == 2
    assert "nsys export --type sqlite" in capsys.readouterr().err


def record(start: int, end: int, correlation: int, **more: object) -> dict:
    return {
        "size": 1, "kind": 11, "operation": 1, "thread_id": 5, "start_timestamp": start, "end_timestamp": end,
        "correlation_id": {"internal": correlation, "external": 0}, **more,
    }  # fmt: skip


DISPATCH = {"agent_id": {"handle": 77}, "queue_id": {"handle": 2}, "kernel_id": 3}
ROCPROFV3 = {
    "rocprofiler-sdk-tool": [
        {
            "metadata": {"pid": 1},
            "agents": [{"id": {"handle": 10}, "type": 1, "name": "EPYC"},
                       {"id": {"handle": 77}, "type": 2, "product_name": "AMD Instinct MI300X", "cu_count": 304}],
            "strings": {"buffer_records": [{"kind": "NONE", "operations": []},
                                           {"kind": "HIP_RUNTIME_API", "operations": ["?", "hipLaunchKernel"]},
                                           {"kind": "MEMORY_COPY", "operations": ["?", "HOST_TO_DEVICE"]}]},
            "kernel_symbols": [{"kernel_id": 3, "formatted_kernel_name": "Cijk_Ailk_Bjlk_HHS_BH_MT128x128x32_MI16x16x1"}],
            "buffer_records": {
                "kernel_dispatch": [
                    record(1000, 9000, 1, dispatch_info=DISPATCH),
                    record(20_000, 22_000, 2, dispatch_info=DISPATCH),
                ],
                "memory_copy": [record(9000, 10_000, 3, kind=2, bytes=4096, dst_agent_id={"handle": 77})],
                "hip_api": [record(100, 300, 1, kind=1), record(15_000, 15_200, 2, kind=1)],
            },
        }
    ]
}  # fmt: skip


@pytest.mark.parametrize("as_list", [True, False])
def test_rocprofv3(as_list: bool) -> None:
    told = ROCPROFV3 if as_list else {"rocprofiler-sdk-tool": ROCPROFV3["rocprofiler-sdk-tool"][0]}
    data = json.dumps(told).encode()
    trace = read_stream(io.BytesIO(data), data[:16])
    found = report_of(trace, file="x")
    assert found is not None
    assert (found.origin.tool, found.gpu, found.origin.gpu_sms) == ("rocprofv3", "AMD Instinct MI300X", (304,))
    assert found.where.compute_s == pytest.approx(10e-6)
    assert found.where.idle["host"] == pytest.approx(10e-6)
    assert [(c.name, c.bytes) for c in found.copies] == [("Memcpy HOST_TO_DEVICE", 4096)]
    assert (found.classes[0].name, found.matrix_share) == ("GEMM", 1.0)
    with pytest.raises(QuestionError, match="cut off or of another form"):
        read_stream(io.BytesIO(data[:-9]), data[:16])


def test_rocprofs_chrome_trace() -> None:
    def event(name: str, pid: int, begin: int, end: int) -> dict:
        args = {"BeginNs": str(begin), "EndNs": str(end), "dev-id": "0", "queue-id": "1", "Name": name}
        return {
            "ts": str(begin // 1000),
            "dur": str((end - begin) // 1000),
            "ph": "X",
            "name": name,
            "pid": pid,
            "tid": "0",
            "args": args,
        }

    def process(name: str, pid: int) -> dict:
        return {"args": {"name": name}, "ph": "M", "pid": pid, "name": "process_name", "sort_index": 0}

    events = [
        {}, process("2 CPU HIP API", 2), process("1 COPY", 1), process("6 GPU0", 6),
        event("hipLaunchKernel", 2, 100, 400), event("Cijk_MT128_MI16x16", 6, 1500, 9750),
        event("hcCommandMemcpy", 1, 9750, 12_000),
    ]  # fmt: skip
    data = json.dumps({"traceEvents": events, "otherData": {}}).encode()
    found = report_of(read_stream(io.BytesIO(data), data[:16]), file="x")
    assert found is not None
    assert found.origin.tool == "rocprof"
    assert found.where.compute_s == pytest.approx(8.25e-6) and found.where.copies_s == pytest.approx(2.25e-6)
