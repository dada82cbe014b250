"""Limits from a few traces: toy programs whose sizes are known at every batch and length."""

from collections.abc import Callable

import pytest

from vramcast.planning.tracing.limits import find_limits
from vramcast.tracing.allocator.replay import replay
from vramcast.tracing.eventlog import Allocation, EventLog

KiB = 1024
Trace = Callable[[int, int], EventLog]


def _program(batch: int, seq: int, *, bend: int = 0, square: int = 0) -> EventLog:
    """Weights, saved activations and a loss; a batch of more than one makes a copy, from ``bend`` tokens on one more."""
    log = EventLog(allocations=[], order=[], marks=[])

    def allocate(size: int, op: str, phase: str) -> int:
        return log.allocate(Allocation(size=size, op=op, phase=phase))

    allocate(64 * KiB * KiB, "weights", "setup")
    saved = [allocate(batch * seq * KiB + 4096, "mm", "forward") for _ in range(8)]
    if batch > 1:
        saved.append(allocate(batch * seq * KiB, "copy", "forward"))
    if bend and seq > bend:
        saved.append(allocate(4 * batch * seq * KiB, "mask", "forward"))
    scores = allocate(square * batch * seq * seq, "scores", "forward") if square else 0
    log.mark("backward")
    logits = allocate(batch * seq * 8 * KiB, "logits", "backward")
    for number in (*filter(None, [scores]), logits, *reversed(saved)):
        log.free(number)
    return log


def _counted(trace: Trace) -> tuple[Trace, list[tuple[int, int]]]:
    asked: list[tuple[int, int]] = []

    def counting(batch: int, seq: int) -> EventLog:
        asked.append((batch, seq))
        return trace(batch, seq)

    return counting, asked


def _fits(trace: Trace, room: int, batch: int, seq: int) -> bool:
    return replay(trace(batch, seq)).peak_reserved_bytes <= room


@pytest.mark.parametrize("micro_batch", [1, 4])
@pytest.mark.parametrize(
    ("options", "most_traces"), [({}, 10), ({"square": 1}, 16), ({"bend": 20_000}, 48)], ids=["affine", "square", "bent"]
)
def test_the_limits_are_the_largest_that_fit(micro_batch: int, options: dict[str, int], most_traces: int) -> None:
    room, seq = 2 * 2**30, 2048

    def trace(batch: int, seq: int) -> EventLog:
        return _program(batch, seq, **options)

    counting, asked = _counted(trace)
    limits = find_limits(counting, micro_batch=micro_batch, seq=seq, room_bytes=room)
    assert _fits(trace, room, limits.max_micro_batch, seq)
    assert not _fits(trace, room, limits.max_micro_batch + 1, seq)
    assert _fits(trace, room, micro_batch, limits.max_seq)
    assert not _fits(trace, room, micro_batch, limits.max_seq + 256)
    assert len(asked) == len(set(asked)) <= most_traces
    assert limits.checks[-1].holds or options == {"bend": 20_000}


def test_the_reach_doubles_through_the_length_that_was_asked() -> None:
    limits = find_limits(_program, micro_batch=1, seq=2048, room_bytes=2**30)
    reach = {r.seq: r.micro_batch for r in limits.reach}
    assert list(reach)[:3] == [512, 1024, 2048]
    assert reach[2048] == limits.max_micro_batch
    for seq, batch in reach.items():
        assert _fits(_program, 2**30, batch, seq)
        assert not _fits(_program, 2**30, batch + 1, seq)


def test_what_does_not_fit_at_all_has_no_reach() -> None:
    limits = find_limits(_program, micro_batch=1, seq=2048, room_bytes=2**20)
    assert (limits.max_micro_batch, limits.max_seq, limits.reach) == (0, 0, ())
