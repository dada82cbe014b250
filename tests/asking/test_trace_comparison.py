import pytest
from trace_events import ADD, GEMM, REDUCE, annotation, call, kernel, read_events

from vramcast.asking.trace_comparison import compare_with_trace
from vramcast.errors import QuestionError
from vramcast.hardware.cards import find_accelerator
from vramcast.profiling.report import Report, report_of

WORDS = {"fsdp": 2, "micro_batch": 1, "framework": "torchtitan"}
RUN = {"model": "meta-llama/Llama-3.1-8B", "gpu": "H100x8", "seq": 8192, "words": WORDS}


def traced(*, shape: tuple[int, int, int] | None = None, steps: bool = True) -> Report:
    """Two steps of 100 ms: 60 ms of matmul, 20 of an addition, 10 of communication that nothing hides."""
    events = []
    for i in range(2):
        begin = 100_000.0 * i
        events += [annotation(f"ProfilerStep#{i}", begin, 100_000)] if steps else []
        if shape:
            m, n, k = shape
            dims = {"Input Dims": [[m, k], [k, n]], "Input type": ["c10::BFloat16"] * 2}
            events += [annotation("aten::mm", begin, 20, cat="cpu_op", **dims)]
        launches = ((GEMM, 10.0, 60_000.0), (ADD, 60_010.0, 20_000.0), (REDUCE, 80_010.0, 10_000.0))
        for n, (name, at, us) in enumerate(launches):
            events += [call(begin + 2 + n, 1, 10 * i + n + 1), kernel(name, begin + at, us, correlation=10 * i + n + 1)]
    found = report_of(read_events(events), file="x", card=find_accelerator("H100"))
    assert found is not None
    return found


def test_parts_of_a_step_stand_beside_the_forecasts_ledger() -> None:
    found = compare_with_trace(traced(), **RUN)
    parts = {part.name: part for part in found.parts}
    assert found.steps == 2 and found.trace_step_s == pytest.approx(0.095, rel=0.06)
    assert parts["matmuls"].trace_s == pytest.approx(0.06)
    assert parts["other kernels"].trace_s == pytest.approx(0.02)
    assert parts["exposed communication"].trace_s == pytest.approx(0.01)
    assert sum(part.forecast_s for part in found.parts) == pytest.approx(found.forecast_step_s)
    assert found.trace_mfu / found.forecast_mfu == pytest.approx(found.forecast_step_s / found.trace_step_s)
    assert found.doubt == ""


def test_a_trace_of_another_run_is_doubted() -> None:
    assert "another model" in compare_with_trace(traced(shape=(8192, 4096, 4096)), **RUN).doubt
    tokens, parameters = 8192, 7_504_924_672
    work = compare_with_trace(traced(shape=(tokens, 3 * 51_466, parameters // 51_466)), **RUN)
    assert work.doubt == ""


def test_what_is_missing_is_asked_for() -> None:
    with pytest.raises(QuestionError, match="no steps"):
        compare_with_trace(traced(steps=False), **RUN)
    with pytest.raises(QuestionError, match="give --seq and --gpu"):
        compare_with_trace(traced(), **{**RUN, "seq": None})
