"""What is drawn of a run: the peak is always among the moments, and the terms sum to what is alive."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramcast.tracing.allocator.replay import replay
from vramcast.tracing.eventlog import Allocation, EventLog
from vramcast.tracing.reports.history import history


def _log(sizes: list[int]) -> EventLog:
    log = EventLog(allocations=[], order=[], marks=[])
    log.allocate(Allocation(size=4096, category="weights", phase="setup"))
    log.mark("forward")
    saved = [log.allocate(Allocation(size=size, module="layers.0", phase="forward")) for size in sizes]
    log.mark("backward")
    for number in reversed(saved):
        gradient = log.allocate(Allocation(size=512, category="gradients", phase="backward"))
        log.free(number)
        log.free(gradient)
    return log


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=40), st.integers(1, 12))
def test_every_moment_sums_to_what_is_alive_and_the_peak_is_one(sizes: list[int], moments: int) -> None:
    log = _log(sizes)
    found = history(log, moments=moments)
    totals = [sum(values[i] for values in found.terms.values()) for i in range(len(found.places))]
    assert len(found.places) <= moments
    assert totals == [sum(a.size for a in log.alive_at(place)) for place in found.places]
    assert max(totals) == max(sum(a.size for a in log.alive_at(p)) for p in range(len(log.order)))
    assert max(found.reserved) == replay(log).peak_reserved_bytes
    assert set(found.terms) <= {"weights", "activations", "gradients"}


@pytest.mark.parametrize("ending", ["svg", "html", "png"])
def test_a_history_is_drawn(ending: str, tmp_path: Path) -> None:
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    from vramcast.charts.timeline import draw_timeline

    file = tmp_path / f"step.{ending}"
    draw_timeline(history(_log([2**30, 2**29])), str(file), title="a step", capacity_bytes=2**31)
    drawn = file.read_bytes()
    for word in (b"a step", b"reserved", b"activations", b"the card", b"backward") if ending != "png" else (b"PNG",):
        assert word in drawn
