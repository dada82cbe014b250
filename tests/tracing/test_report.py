"""Reading a log: terms that sum to the peak, instants, remedies; and the files that other viewers open."""

import pickle
from pathlib import Path

import msgspec
import pytest

from vramcast.errors import QuestionError, UnmodelledError
from vramcast.models.reading import read_model
from vramcast.tracing.configs import check_built, derived
from vramcast.tracing.eventlog import Allocation, EventLog
from vramcast.tracing.reports.report import report
from vramcast.tracing.reports.timeline import write_timeline
from vramcast.tracing.snapshots.file import parse_snapshot
from vramcast.tracing.snapshots.replay import replay_snapshot
from vramcast.tracing.snapshots.report import explain_snapshot
from vramcast.units import MiB


@pytest.fixture
def step() -> EventLog:
    """A small step: weights, a forward pass that saves something, a backward pass with its peak, an optimizer step."""
    log = EventLog()
    log.mark("setup")
    log.allocate(Allocation(size=100 * MiB, category="weights", module="model.layers.0.mlp", op="aten.empty", phase="setup"))
    log.mark("forward")
    saved = log.allocate(Allocation(size=40 * MiB, module="model.layers.0.mlp", op="aten.mm.default", phase="forward"))
    log.free(log.allocate(Allocation(size=10 * MiB, module="model.layers.0.mlp", op="aten.add", phase="forward")))
    logits = log.allocate(Allocation(size=30 * MiB, module="lm_head", op="aten.mm.default", phase="forward"))
    log.mark("backward")
    log.allocate(Allocation(size=100 * MiB, category="gradients", module="model.layers.0.mlp", op="aten.mm", phase="backward"))
    temporary = log.allocate(Allocation(size=5 * MiB + 100, module="model.layers.0.mlp", op="aten.mm", phase="backward"))
    for number in (temporary, logits, saved):
        log.free(number)
    log.mark("optimizer")
    log.allocate(Allocation(size=60 * MiB, category="optimizer", op="aten.zeros_like", phase="optimizer"))
    return log


def test_the_terms_at_the_peak_sum_to_reserved_and_context(step: EventLog) -> None:
    reading = report(step, context_bytes=500 * MiB)
    memory, peak = reading.memory, reading.memory.peak
    assert (peak.name, peak.bytes) == ("backward", 275 * MiB + 100)
    assert {t.name: t.bytes for t in peak.terms} == {
        "weights": 100 * MiB,
        "gradients": 100 * MiB,
        "activations": 40 * MiB,
        "loss": 30 * MiB,
        "temporaries": 5 * MiB + 100,
    }
    assert {t.name: t.bytes for t in memory.outside} == {
        "fragmentation": memory.reserved_bytes - 275 * MiB - 100,
        "context": 500 * MiB,
    }
    assert sum(t.bytes for t in memory.terms) == memory.device_bytes
    assert [i.name for i in reading.memory.instants] == ["setup", "forward", "backward", "optimizer"]


def test_the_largest_origins_and_modules_are_named_with_layers_taken_together(step: EventLog) -> None:
    reading = report(step)
    assert (reading.top[0].bytes, reading.top[0].module) == (100 * MiB, "model.layers.*.mlp")
    assert dict(reading.by_module)["lm_head"] == 30 * MiB
    assert reading.expandable_saves_bytes >= 0


def test_a_timeline_opens_as_a_snapshot_and_replays_exactly(step: EventLog, tmp_path: Path) -> None:
    path = tmp_path / "step.pickle"
    write_timeline(step, path)
    snapshot = parse_snapshot(path.read_bytes())
    assert sum(b.requested_size for s in snapshot.segments for b in s.blocks) == 260 * MiB
    assert {e.action for e in snapshot.device_traces[0]} == {"segment_alloc", "alloc", "free_requested", "free_completed"}
    assert dict(explain_snapshot(snapshot).categories).keys() >= {"weights", "forward", "backward"}
    assert any(origin.frames == ("model.layers.0.mlp:1 aten.mm.default",) for origin in explain_snapshot(snapshot).top)
    again = replay_snapshot(snapshot)
    assert again.exact
    assert again.peak_reserved == report(step).usage.peak_reserved_bytes
    assert pickle.loads(path.read_bytes())["segments"][0]["device"] == 0


@pytest.mark.torch
def test_pytorchs_own_viewer_reads_a_timeline(step: EventLog, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from torch.cuda import _memory_viz

    path = tmp_path / "step.pickle"
    write_timeline(step, path)
    snapshot = pickle.loads(path.read_bytes())
    assert "cudaMalloc(1099511627776, 100.0MiB)" in _memory_viz.trace(snapshot)
    assert "100.0MiB" in _memory_viz.segsum(snapshot)
    for draw in (_memory_viz.trace_plot, _memory_viz.segment_plot):
        assert "MemoryViz.js" in draw(snapshot)


def test_a_timeline_is_a_chrome_trace_when_the_name_says_so(step: EventLog, tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    write_timeline(step, path)
    events = msgspec.json.decode(path.read_bytes())["traceEvents"]
    assert [e["name"] for e in events if e["ph"] == "X"] == ["setup", "forward", "backward", "optimizer"]
    assert max(e["args"]["allocated"] for e in events if e["ph"] == "C") == report(step).usage.peak_allocated_bytes
    with pytest.raises(QuestionError, match=r"not 'step\.png'"):
        write_timeline(step, tmp_path / "step.png")


def test_a_config_is_derived_from_the_inventory_of_a_plain_decoder() -> None:
    model = read_model("meta-llama/Llama-3.1-8B")
    config = derived(model)
    assert (config["hidden_size"], config["num_key_value_heads"], config["intermediate_size"]) == (4096, 8, 14336)
    check_built(model, model.parameters, "derived from the model's inventory")
    with pytest.raises(UnmodelledError, match=r"builds 7 parameters instead of 8,030,261,248: give its own config\.json"):
        check_built(model, 7, "derived from the model's inventory")
