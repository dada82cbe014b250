"""The quantities that HolisticTraceAnalysis 0.5.0 and TraceLens define, on traces of their own repositories.

``peers.json`` holds their figures: HTA's as it printed them on these files, TraceLens' as committed beside its traces. Known
differences: HTA counts a host operator that names a stream as GPU work (one event of 74 us in the B200 trace); TraceLens adds a
bias to the FLOPs of addmm and splits recomputation off (MI300X trace, not listed).
"""

import json
from pathlib import Path

import pytest

from vramcast.profiling.files import read_trace
from vramcast.profiling.peers import as_hta, as_tracelens
from vramcast.profiling.report import report_of

ANSWERS = json.loads((Path(__file__).parent / "peers.json").read_text())
HTA = [(file, kind) for file, told in ANSWERS.items() for kind in ("hta", "hta_last_step") if kind in told and "b200" not in file]
TRACELENS = [file for file, told in ANSWERS.items() if "tracelens" in told]
SHAPES = [file for file, told in ANSWERS.items() if "shapes" in told]


def trace(shared: Path, file: str):
    path = shared / "traces" / file
    if not path.is_file():
        pytest.skip(f"{file} is not in the corpus")
    return read_trace(path)


@pytest.mark.shared
@pytest.mark.parametrize(("file", "kind"), HTA)
def test_hta_to_the_microsecond(shared: Path, file: str, kind: str) -> None:
    want = ANSWERS[file][kind]
    got = as_hta(trace(shared, file), include_last_step=kind == "hta_last_step")
    assert got is not None
    names = ("idle_us", "compute_us", "non_compute_us", "kernel_time_us", "overlap_percent", "kernel_types_us")
    assert {name: getattr(got, name) for name in names} == {name: want[name] for name in names}
    for stream in got.streams:
        told = want["streams"][stream.stream]
        assert {name: us for name in ("host_wait", "kernel_wait", "other") if (us := getattr(stream, name))} == {
            name: us for name, us in told.items() if us
        }


@pytest.mark.shared
@pytest.mark.parametrize("kind", ["hta", "hta_last_step"])
@pytest.mark.parametrize("file", [f for f in ANSWERS if "hta" in ANSWERS[f]])
def test_htas_launches_and_queues(shared: Path, file: str, kind: str) -> None:
    got = as_hta(trace(shared, file), include_last_step=kind == "hta_last_step")
    assert got is not None
    want = ANSWERS[file][kind]
    assert {name: getattr(got.launches, name) for name in want["launches"]} == want["launches"]
    assert {q.stream: (q.changes, q.longest) for q in got.queues} == {
        stream: (q["changes"], q["longest"]) for stream, q in want["queues"].items()
    }
    for queue in got.queues:
        assert queue.mean == pytest.approx(want["queues"][queue.stream]["mean"], rel=0.015)


@pytest.mark.shared
def test_hta_on_a_trace_where_it_counts_a_host_operator(shared: Path) -> None:
    file = next(f for f in ANSWERS if "b200" in f)
    got, want = as_hta(trace(shared, file)), ANSWERS[file]["hta"]
    assert got is not None and got.kernel_time_us == want["kernel_time_us"]
    assert want["compute_us"] - got.compute_us == 73


@pytest.mark.shared
@pytest.mark.parametrize("file", TRACELENS)
def test_tracelens_to_a_tenth_of_a_microsecond(shared: Path, file: str) -> None:
    got, want = as_tracelens(trace(shared, file)), ANSWERS[file]["tracelens"]
    assert got is not None
    for name, ms in want.items():
        assert getattr(got, name) == pytest.approx(ms, abs=1.01e-4), name


@pytest.mark.shared
@pytest.mark.parametrize("file", SHAPES)
def test_rates_of_matmuls_and_attention(shared: Path, file: str) -> None:
    found = report_of(trace(shared, file), file=file)
    assert found is not None
    for want in ANSWERS[file]["shapes"]:
        shape = (1, want["M"], want["N"], want["K"]) if "M" in want else (want["B"], want["H"], want["N"], want["N"], want["d"])
        name = want["op"] if "M" in want else "aten::_flash_attention_forward"
        row = next(s for s in found.shapes if s.shape == shape and s.operator == name)
        # Over all calls here, the mean of each call's rate there: 1 % apart; a bias is 0.05 % of these FLOPs.
        assert row.flops / 1e9 == pytest.approx(want["gflop"], rel=1e-3)
        assert (row.calls, row.flops_per_s / 1e12) == (want["count"], pytest.approx(want["tflops_mean"], rel=0.03))
