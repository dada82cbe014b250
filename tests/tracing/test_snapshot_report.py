"""What a snapshot tells: peak, categories by stack, fragmentation, leaks."""

import pickle
from pathlib import Path

import msgspec
import pytest

from vramcast.cli import run
from vramcast.tracing.snapshots.file import parse_snapshot
from vramcast.tracing.snapshots.report import explain_snapshot
from vramcast.units import MiB

_SEGMENT = 200 * MiB


def _frame(filename: str, name: str, line: int = 7) -> dict[str, object]:
    return {"filename": filename, "name": name, "line": line}


FORWARD = [_frame("/app/model.py", "forward", 12), _frame("/site-packages/torch/nn/modules/module.py", "_call_impl")]
BACKWARD = [_frame("??", "torch::autograd::Engine::evaluate_function", 0)]
STEP = [_frame("/site-packages/torch/optim/adamw.py", "step", 88), _frame("/app/train.py", "main", 30)]


def _snapshot(steps: int, *, leaks: bool) -> bytes:
    """Steps of a training loop in one segment: activations up, gradients, down again; a leak keeps 3 MiB of each step."""
    trace, at, kept = [], 4096, []
    trace.append({"action": "segment_alloc", "addr": at, "size": _SEGMENT, "stream": 0})
    for _ in range(steps):
        made = []
        for size, frames in ((3 * MiB, FORWARD), (40 * MiB, FORWARD), (30 * MiB, BACKWARD), (10 * MiB, STEP)):
            trace.append({"action": "alloc", "addr": at, "size": size, "stream": 0, "frames": frames})
            made.append((at, size))
            at += size
        if leaks:
            kept.append(made.pop(0))
        for address, size in made:
            trace += [{"action": a, "addr": address, "size": size, "stream": 0} for a in ("free_requested", "free_completed")]
    blocks = [{"address": a, "size": s, "requested_size": s, "state": "active_allocated", "frames": FORWARD} for a, s in kept]
    blocks.append({"address": at, "size": _SEGMENT - sum(s for _, s in kept), "state": "inactive"})
    segment = {"device": 0, "address": 4096, "total_size": _SEGMENT, "stream": 0, "segment_type": "large", "blocks": blocks}
    return pickle.dumps({"segments": [segment], "device_traces": [trace]})


def test_the_peak_and_its_categories_come_from_the_stacks() -> None:
    reading = explain_snapshot(parse_snapshot(_snapshot(1, leaks=False)))
    assert (reading.peak_allocated, reading.peak_reserved, reading.allocated) == (83 * MiB, _SEGMENT, 0)
    assert dict(reading.categories) == {"forward": 43 * MiB, "backward": 30 * MiB, "optimizer": 10 * MiB}
    assert reading.top[0].frames == ("/app/model.py:12 forward",)
    assert (reading.whole_free, reading.split_free, reading.leak) == (_SEGMENT, 0, None)


def test_floors_that_rise_after_every_step_are_a_leak_with_its_origin() -> None:
    assert explain_snapshot(parse_snapshot(_snapshot(4, leaks=False))).leak is None
    leak = explain_snapshot(parse_snapshot(_snapshot(4, leaks=True))).leak
    assert leak is not None
    assert leak.floors == (3 * MiB, 6 * MiB, 9 * MiB, 12 * MiB)
    assert leak.origins[0].frames == ("/app/model.py:12 forward",)


def test_the_command_explains_a_snapshot_and_refuses_what_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(_snapshot(4, leaks=True))
    assert run(["explain", str(path), "--json"]) == 0
    found = msgspec.json.decode(capsys.readouterr().out)
    assert (found["schema"], found["kind"], found["peak_allocated"]) == ("vramcast/1", "memory snapshot", 92 * MiB)
    assert run(["explain", str(path)]) == 0
    assert "something seems to be kept" in capsys.readouterr().out
    path.write_text("hello")
    assert run(["explain", str(path)]) == 2
    assert "nothing that can be explained" in capsys.readouterr().err
    assert run(["explain", str(tmp_path / "none.pickle")]) == 2
    assert "cannot read" in capsys.readouterr().err
