import numpy as np
import pytest
from trace_events import ADD, GEMM, HAND, annotation, call, kernel, read_events

from vramcast.profiling.breakdown import where_time_went, work_of
from vramcast.profiling.events import Trace


def where(trace: Trace):
    return where_time_went(trace, work_of(trace, np.ones(len(trace.start), dtype=bool)))


def test_parts_of_a_trace_worked_out_by_hand() -> None:
    got = where(read_events(HAND))
    us = {name: round(getattr(got, name) * 1e6, 6) for name in got.__struct_fields__ if name != "idle"}
    assert us == {
        "span_s": 100, "busy_s": 80, "compute_s": 60, "communication_s": 20, "exposed_communication_s": 15,
        "copies_s": 7, "exposed_copies_s": 5, "idle_s": 20,
    }  # fmt: skip
    assert got.hidden_share == pytest.approx(0.25)
    # 25 to 40: launched at 33, so the host; 55 to 60: launched at 43, before the gap.
    assert {cause: round(s * 1e6, 6) for cause, s in got.idle.items() if s} == {"host": 15, "dependency": 5}


def test_a_gap_after_a_synchronising_call_is_the_synchronisation() -> None:
    events = [
        kernel(GEMM, 0, 10, correlation=1), call(-5, 2, 1),
        call(0, 12, 9, "cudaDeviceSynchronize"),
        kernel(GEMM, 30, 10, correlation=2), call(22, 4, 2),
    ]  # fmt: skip
    assert where(read_events(events)).idle["synchronisation"] == pytest.approx(20e-6)


def test_time_in_a_data_loader_is_waiting_for_data_and_the_rest_is_not() -> None:
    events = [
        kernel(GEMM, 0, 10, correlation=1), call(-5, 2, 1),
        annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 12, 15),
        kernel(GEMM, 40, 10, correlation=2), call(35, 4, 2),
    ]  # fmt: skip
    idle = where(read_events(events)).idle
    assert idle["data"] == pytest.approx(15e-6)
    assert idle["host"] == pytest.approx(15e-6)


def test_work_without_a_launch_in_the_trace_has_an_unknown_cause() -> None:
    idle = where(read_events([kernel(GEMM, 0, 10), kernel(ADD, 15, 5)])).idle
    assert idle["unknown"] == pytest.approx(5e-6)


def test_nothing_is_counted_twice_on_random_traces() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        events = []
        for i in range(60):
            name, stream = (GEMM, 7) if rng.random() < 0.6 else ("ncclDevKernel_AllReduce_Sum", 9)
            ts = float(rng.integers(0, 500))
            events += [kernel(name, ts, float(rng.integers(0, 30)), correlation=i + 1, stream=stream)]
            events += [call(ts - float(rng.integers(1, 60)), 3, i + 1)] if rng.random() < 0.8 else []
        got = where(read_events(events))
        parts = got.compute_s + got.exposed_communication_s + got.exposed_copies_s + got.idle_s
        assert parts == pytest.approx(got.span_s)
        assert sum(got.idle.values()) == pytest.approx(got.idle_s)
        assert min(got.idle.values()) >= 0
