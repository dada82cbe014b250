import json
from collections.abc import Callable
from pathlib import Path

import pytest
from trace_events import ADD, GEMM, HAND, REDUCE, annotation, call, kernel, read_events

from vramcast.errors import MissingError
from vramcast.hardware.cards import find_accelerator
from vramcast.profiling.against import compare
from vramcast.profiling.ranks import read_ranks
from vramcast.profiling.report import Report, report_of


def report(events: list[dict], gpu: str = "H100", **header) -> Report:
    found = report_of(read_events(events, **header), file="x", card=find_accelerator(gpu))
    assert found is not None
    return found


def matmul(name: str, ts: float, *shapes: list[int], dtype: str = "c10::BFloat16") -> dict:
    return annotation(name, ts, 10, cat="cpu_op", **{"Input Dims": list(shapes), "Input type": [dtype] * len(shapes)})


def test_a_matmul_is_held_against_the_dense_rate() -> None:
    events = [
        matmul("aten::mm", 0, [8192, 4096], [4096, 8192]), call(3, 4, 1), kernel(GEMM, 20, 1000, correlation=1),
        matmul("aten::addmm", 12, [64], [128, 256], [256, 64], dtype="float"), call(14, 4, 2),
        kernel("ampere_sgemm_128x64_nn", 1030, 10, correlation=2),
    ]  # fmt: skip
    first, second = report(events).shapes
    assert (first.shape, first.dtype, first.calls, first.matrix_units) == ((1, 8192, 8192, 4096), "bf16", 1, True)
    assert first.flops_per_s == pytest.approx(2 * 8192 * 8192 * 4096 / 1e-3)
    assert first.peak_share == pytest.approx(first.flops_per_s / 989.4e12, rel=1e-3)
    assert (second.shape, second.dtype, second.matrix_units) == ((1, 128, 64, 256), "fp32", False)
    found = report(events)
    assert found.arithmetic is not None and found.arithmetic.peak_share is not None
    assert found.arithmetic.flops_per_s == pytest.approx(first.flops / found.where.span_s, rel=1e-4)
    assert found.arithmetic.peak_share == pytest.approx(first.flops / 989.4e12 / found.where.span_s, rel=2e-3)


def test_attention_counts_half_when_causal_and_more_in_its_backward_pass() -> None:
    dims = [[2, 1024, 16, 64], [2, 1024, 16, 64], [2, 1024, 16, 64]]
    values = ["", "", "", "", "", "1024", "1024", "0.", "True", "False"]
    forward = annotation(
        "aten::_flash_attention_forward", 0, 10, cat="cpu_op",
        **{"Input Dims": dims, "Input type": ["c10::BFloat16"] * 3, "Concrete Inputs": values},
    )  # fmt: skip
    events = [forward, call(3, 4, 1), kernel("pytorch_flash::flash_fwd_kernel<x>", 20, 100, correlation=1)]
    (row,) = report(events).shapes
    assert row.causal is True
    assert row.flops == 4 * 2 * 16 * 1024 * 1024 * 64 / 2


def test_a_collective_gives_its_bus_bandwidth() -> None:
    told = {"Collective name": "allreduce", "In msg nelems": 2**20, "Out msg nelems": 2**20, "Group size": 8, "dtype": "BFloat16",
            "Process Group Name": "0", "Process Group Description": "default_pg"}  # fmt: skip
    events = [kernel(REDUCE, 0, 100, **told), kernel(REDUCE, 200, 50, **told)]
    (row,) = report(events).collectives
    assert (row.bytes, row.calls, row.ranks) == (2**21, 2, 8)
    assert row.bus_bytes_per_s == pytest.approx(2**21 / 50e-6 * 2 * 7 / 8)


def test_steps_are_windows_of_the_gpu() -> None:
    events = [
        annotation("ProfilerStep#3", 0, 100), call(10, 2, 1), kernel(GEMM, 50, 80, correlation=1),
        annotation("ProfilerStep#4", 100, 90), call(110, 2, 2), kernel(REDUCE, 150, 30, correlation=2),
        call(120, 2, 3), kernel(ADD, 170, 40, correlation=3),
    ]  # fmt: skip
    first, second = report(events).steps
    assert (first.number, round(first.host_s * 1e6), round(first.gpu_s * 1e6), round(first.idle_s * 1e6)) == (3, 100, 100, 20)
    assert (second.number, round(second.gpu_s * 1e6)) == (4, 60)
    assert round(second.exposed_communication_s * 1e6) == 20


def test_a_launch_bound_range_is_found() -> None:
    launches = [e for i in range(40) for e in (call(10 * i, 6, i + 1), kernel(ADD, 10 * i + 8, 2, correlation=i + 1))]
    found = report([annotation("Optimizer.step#AdamW.step", 0, 400), *launches])
    assert [row.name for row in found.ranges if row.launch_bound] == ["Optimizer.step#AdamW.step"]
    assert found.findings[0].limit == "host"
    assert "40 kernels of 2.0 us" in found.findings[0].seen


def test_before_and_after() -> None:
    slower = [*HAND, kernel(REDUCE, 120, 80, stream=9)]
    found = compare(report(slower), report(HAND))
    assert found.speedup == pytest.approx(2.0)
    change = {c.what: c.difference_s for c in found.parts}
    assert change["exposed communication"] == pytest.approx(-80e-6)
    assert [c.what for c in found.collectives] == ["AllReduce"]


def test_the_rank_that_waits_least_is_the_slow_one(write_trace: Callable[..., Path]) -> None:
    compute = {0: 30, 1: 90, 2: 40}
    for rank, us in compute.items():
        events = [kernel(GEMM, 0, us, correlation=1), kernel(REDUCE, us, 100 - us, correlation=2, stream=9)]
        path = write_trace(events, f"ranks/r{rank}.json.gz", distributedInfo={"rank": rank, "world_size": 3})
    (path.parent / "broken.json").write_text("{}")
    found = read_ranks(sorted(path.parent.iterdir()), folder="ranks")
    assert found.slowest == 1
    assert [round((row.wait_s or 0) * 1e6) for row in found.ranks] == [60, 0, 50]
    assert found.lost_s == pytest.approx(50e-6)
    assert found.compute_spread == pytest.approx(90 / 40 - 1)
    assert [Path(file).name for file, _ in found.unread] == ["broken.json"]


def test_a_trace_without_gpu_work_has_no_report() -> None:
    assert report_of(read_events([annotation("aten::add", 0, 5, cat="cpu_op")]), file="x") is None


def test_a_report_is_one_json_object() -> None:
    import msgspec

    told = json.loads(msgspec.json.encode(report(HAND)))
    assert told["where"]["idle"]["host"] == pytest.approx(15e-6)
    assert told["tracelens"]["total_time"] == pytest.approx(0.1)


def test_ranks_are_read_over_a_cluster_when_asked(write_trace: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    from types import SimpleNamespace

    asked: list[str] = []

    def remote(function):
        def start(file: str, card: object):
            asked.append(file)
            return lambda: function(file, card)

        return SimpleNamespace(remote=start)

    ray = SimpleNamespace(init=lambda **_: None, remote=remote, get=lambda reference: reference())
    monkeypatch.setitem(sys.modules, "ray", ray)
    files = [write_trace(HAND, f"c/r{rank}.json") for rank in range(3)]
    assert len(read_ranks(files, folder="c", cluster=True).ranks) == 3
    assert asked == [str(file) for file in files]
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingError, match=r"vramcast\[cluster\]"):
        read_ranks(files, folder="c", cluster=True)


def test_work_without_length_is_no_work_but_no_fault_either() -> None:
    found = report([kernel(ADD, 5, 0, correlation=1), call(1, 1, 1), kernel(ADD, 5, 0.3, device=1)])
    assert found.device == 1
    assert {d.index: d.where.span_s for d in found.devices}[0] == 0
    assert found.hta is None
