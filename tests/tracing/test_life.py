"""The stages of a job, and two traces set side by side."""

from pathlib import Path

import msgspec
import pytest

from vramcast.errors import QuestionError
from vramcast.planning.tracing.against import changes, read_earlier
from vramcast.planning.tracing.answer import finish
from vramcast.tracing.eventlog import Allocation, EventLog
from vramcast.tracing.reports.life import life
from vramcast.tracing.request import ScriptRequest, TraceResult
from vramcast.tracing.run import trace_script
from vramcast.units import MiB

JOB = """
import torch
model = torch.nn.Linear(1024, 1024, bias=False).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
def evaluate():
    with torch.no_grad():
        model(torch.randn(4096, 1024, device="cuda"))
evaluate()
for _ in range(5):
    model(torch.randn(512, 1024, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.save(model.state_dict(), "model.pt")
    torch.load("model.pt")
    evaluate()
"""


def _log(*sizes: int) -> EventLog:
    log = EventLog(allocations=[], order=[], marks=[], emptied=[], stages=[])
    for size in sizes:
        log.allocate(Allocation(size=size, module="layer", op="op"))
    return log


def test_a_stage_has_the_highest_peak_of_all_its_times() -> None:
    log = _log(4 * MiB)
    log.stages.clear()
    assert life(log) == ()
    log = EventLog(allocations=[], order=[], marks=[], emptied=[], stages=[])
    log.stage("start")
    log.stage("start")
    log.allocate(Allocation(size=4 * MiB))
    for size in (8 * MiB, 2 * MiB):
        log.stage("step")
        log.free(log.allocate(Allocation(size=size)))
        log.stage("saving")
    stages = {stage.name: stage for stage in life(log)}
    assert list(stages) == ["start", "step", "saving"]
    assert [stages[name].times for name in stages] == [1, 2, 2]
    assert (stages["start"].allocated_bytes, stages["step"].allocated_bytes) == (4 * MiB, 12 * MiB)
    assert stages["saving"].allocated_bytes == 4 * MiB and stages["saving"].reserved_bytes >= 12 * MiB


@pytest.mark.torch
def test_what_follows_the_last_step_is_part_of_a_jobs_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text(JOB)
    result = trace_script(ScriptRequest(argv=(str(tmp_path / "job.py"),), life=True))
    assert (result.error, result.steps) == ("", 2)
    stages = {stage.name: stage for stage in life(result.log)}
    assert {"start", "forward without gradients", "first step", "later steps", "saving", "loading"} <= set(stages)
    assert (stages["saving"].times, stages["forward without gradients"].times) == (2, 3)
    weights, given = 4 * MiB, 16 * MiB
    assert stages["start"].allocated_bytes == weights + given
    assert stages["forward without gradients"].allocated_bytes >= weights + 2 * given
    assert stages["saving"].allocated_bytes == stages["forward without gradients"].allocated_bytes - 2 * given
    plain = trace_script(ScriptRequest(argv=(str(tmp_path / "job.py"),)))
    assert plain.log.stages == [] and len(plain.log.order) < len(result.log.order)


def _traced(log: EventLog) -> object:
    return finish({"script": ["a.py"], "gpu": None, "gpus": 1}, TraceResult(log=log, backend="cuda", steps=2), None)


def test_two_traces_differ_by_counters_terms_and_modules(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    kept = {
        "memory": {
            "per_gpu": [{"allocated_bytes": MiB, "reserved_bytes": 2 * MiB, "terms": [{"name": "weights", "bytes": MiB}]}]
        },
        "trace": {"by_module": [{"module": "layer", "bytes": MiB}]},
    }
    file.write_bytes(msgspec.json.encode(kept))
    found = changes(read_earlier(str(file)), _traced(_log(4 * MiB)))  # type: ignore[arg-type]
    by_name = {(change.kind, change.name): change.more_bytes for change in found}
    assert by_name["counter", "allocated"] == by_name["module", "layer"] == 3 * MiB
    assert by_name["term", "weights"] == -MiB
    for wrong in ({}, {"memory": {"per_gpu": []}}, [1]):
        file.write_bytes(msgspec.json.encode(wrong))
        with pytest.raises(QuestionError, match="is no trace"):
            read_earlier(str(file))
