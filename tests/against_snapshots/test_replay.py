"""The allocator model against recordings of real GPUs: every address, every cudaMalloc, every release, the exact peak."""

import json
import os
from pathlib import Path

import pytest

from vramcast.tracing.snapshots.file import read_snapshot
from vramcast.tracing.snapshots.replay import replay_snapshot
from vramcast.units import MiB

TRACES = Path(os.environ.get("VRAMCAST_SHARED", Path(__file__).parents[3] / "shared")) / "traces"
INDEX = TRACES / "SNAPSHOTS.jsonl"
ROWS = [json.loads(line) for line in INDEX.read_text().splitlines()] if INDEX.exists() else []

pytestmark = pytest.mark.shared


@pytest.mark.skipif(not ROWS, reason="the recorded snapshots are not beside this checkout")
@pytest.mark.parametrize("row", ROWS, ids=[r["file"][-48:-7] for r in ROWS])
def test_every_decision_of_a_recorded_gpu_is_reproduced(row: dict) -> None:
    report = replay_snapshot(read_snapshot(TRACES / row["file"]))
    assert report.wrong_decisions == 0, report.first_difference
    assert report.same_address == report.allocations
    assert (report.peak_reserved, report.allocated) == (report.recorded_peak_reserved, report.recorded_allocated)
    assert report.reserved == row["reserved_mib"] * MiB
