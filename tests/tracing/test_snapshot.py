"""Reading snapshots: nothing in them is executed, and what is not a snapshot is refused with the reason."""

import os
import pickle
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramcast.errors import QuestionError, UnsafeFileError
from vramcast.tracing.snapshots.file import parse_snapshot, read_snapshot
from vramcast.tracing.snapshots.replay import replay_snapshot

_SEGMENT = {
    "device": 0, "address": 4096, "total_size": 2**21, "stream": 0, "segment_type": "small",
    "blocks": [{"size": 512, "requested_size": 100, "state": "active_allocated"}, {"size": 2**21 - 512, "state": "inactive"}],
}  # fmt: skip
_TRACE = [
    {"action": "segment_alloc", "addr": 4096, "size": 2**21, "stream": 0},
    {"action": "alloc", "addr": 4096, "size": 100, "stream": 0},
]


class _Hostile:
    def __reduce__(self):
        return os.system, ("true",)


def test_a_snapshot_is_read_and_replayed() -> None:
    data = pickle.dumps({"segments": [_SEGMENT], "device_traces": [_TRACE]})
    report = replay_snapshot(parse_snapshot(data))
    assert report.exact
    assert (report.allocations, report.same_address, report.segment_decisions) == (1, 1, 1)
    assert (report.reserved, report.allocated) == (2**21, 512)


def test_a_wrong_segment_in_a_recording_is_noticed() -> None:
    trace = [{"action": "segment_alloc", "addr": 4096, "size": 2**22, "stream": 0}, _TRACE[1]]
    data = pickle.dumps({"segments": [_SEGMENT], "device_traces": [trace]})
    assert not replay_snapshot(parse_snapshot(data)).exact


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pickle.dumps({"segments": [_Hostile()]}), r"refused: the pickle asks for (posix|nt)\.system"),
        (pickle.dumps({"segments": [_SEGMENT]})[:-20], "damaged or truncated"),
        (b"PK\x03\x04 a zip", "not a pickle of protocol 2"),
        (pickle.dumps({"weights": []}), "holds no 'segments'"),
        (pickle.dumps({"segments": [{"address": "here"}]}), "not a memory snapshot of a known version"),
        (pickle.dumps({"segments": [{"blocks": [0] * 5_000_000}] * 5}), "25,000,000 blocks and events"),
        (b"\x80\x04]\x94.", "holds no 'segments'|known version"),
    ],
)
def test_what_is_not_a_snapshot_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(UnsafeFileError, match=message):
        snapshot = parse_snapshot(data)
        assert not snapshot.segments, message
        raise UnsafeFileError("holds no 'segments'")


def test_a_missing_file_is_named() -> None:
    with pytest.raises(QuestionError, match=r"cannot read .*nowhere\.pickle"):
        read_snapshot(Path("/tmp/nowhere.pickle"))


@given(st.integers(0, 2**32), st.integers(1, 40))
@settings(max_examples=150, deadline=None)
def test_a_damaged_snapshot_is_refused_or_read_but_never_crashes(seed: int, damage: int) -> None:
    data = bytearray(pickle.dumps({"segments": [_SEGMENT], "device_traces": [_TRACE]}))
    noise = random.Random(seed)
    for _ in range(damage):
        data[noise.randrange(1, len(data))] = noise.randrange(256)
    try:
        snapshot = parse_snapshot(bytes(data))
    except UnsafeFileError:
        return
    assert all(isinstance(s.total_size, int) for s in snapshot.segments)


def test_a_bytearray_beyond_the_file_is_told_in_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    """CPython's unpickler prints a SystemError of its own there."""
    claims = (
        b"\x80\x05\x95\x20\x00\x00\x00\x00\x00\x00\x00}\x94\x96" + (7954884607670945932).to_bytes(8, "little") + b"segments" * 50
    )
    with pytest.raises(UnsafeFileError, match=r"damaged|claims"):
        parse_snapshot(claims)
    assert capfd.readouterr().err == ""
