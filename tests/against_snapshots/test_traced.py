"""The tracer against recordings of a real GPU: the same program on fake tensors asks for the same bytes."""

import os
from pathlib import Path

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
TRACES = Path(os.environ.get("VRAMCAST_SHARED", ROOT.parent / "shared")) / "traces"

pytestmark = [pytest.mark.shared, pytest.mark.torch]


@pytest.fixture(autouse=True)
def _programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "tracing"))


@pytest.mark.skipif(not TRACES.exists(), reason="the recorded snapshots are not beside this checkout")
def test_a_recorded_program_asks_for_the_same_bytes() -> None:
    import against_snapshots

    (file,) = (file for file in against_snapshots.RECORDED if "512_training" in file)
    requested, reserved = against_snapshots.errors(TRACES, file)
    assert abs(requested) < 0.001
    assert abs(reserved) < 0.006
