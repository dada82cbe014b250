import gzip
import io
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_events import GEMM, HAND, annotation, call, document, kernel

from vramcast.errors import QuestionError
from vramcast.profiling.events import Trace
from vramcast.profiling.files import read_stream, read_trace, trace_files
from vramcast.profiling.readers import pieces


def read_bytes(data: bytes) -> Trace:
    return read_stream(io.BytesIO(data), data[:16])


def summary(trace: Trace) -> tuple:
    names = [trace.names[i] for i in trace.name]
    return (
        trace.reading.events,
        names,
        trace.start.tolist(),
        trace.end.tolist(),
        trace.call_start.tolist(),
        trace.launch.tolist(),
    )


MANY = [
    event
    for i in range(300)
    for event in (
        call(10.5 * i, 4, i + 1),
        annotation(
            'with } , { "ph": and \\ "quotes"', 10 * i, 1, cat="python_function", list=[{"a": 1}, {"name": "x"}, {"ph": 2}]
        ),
        kernel(f"kernel_{i % 7}", 10.25 * i + 3, 2.125, correlation=i + 1),
    )
]


@pytest.mark.parametrize("form", ["compact", "indented", "bare list", "sorted keys"])
@pytest.mark.parametrize("piece", [2000, 10_000, 10**6])
def test_cutting_into_pieces_loses_nothing(form: str, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = summary(read_bytes(json.dumps(document(MANY)).encode()))
    assert whole[0] == 900 and len(whole[1]) == 300
    monkeypatch.setattr(pieces, "PIECE_BYTES", piece)
    monkeypatch.setattr(pieces, "_TAIL_BYTES", 300)
    text = {
        "compact": json.dumps(document(MANY), separators=(",", ":")),
        "indented": json.dumps(document(MANY), indent=4),
        "bare list": json.dumps(MANY),
        "sorted keys": json.dumps(document(MANY), sort_keys=True),
    }[form]
    assert summary(read_bytes(text.encode())) == whole
    assert summary(read_bytes(gzip.compress(text.encode()))) == whole


def test_nanoseconds_survive_times_since_1970() -> None:
    trace = read_bytes(json.dumps([kernel(GEMM, 1661203463029566, 7), kernel(GEMM, 4458676983543.183, 41.407)]).encode())
    assert trace.start.tolist() == [1661203463029566000, 4458676983543183]
    assert (trace.end - trace.start).tolist() == [7000, 41407]


def test_header_and_trailer_tell_gpu_and_rank() -> None:
    late = {"traceEvents": HAND, "distributedInfo": {"rank": 5, "world_size": 16, "backend": "nccl"}}
    assert (read_bytes(json.dumps(late).encode()).origin.rank, read_bytes(json.dumps(late).encode()).origin.world_size) == (5, 16)
    early = read_bytes(json.dumps(document(HAND)).encode())
    assert early.origin.gpu_names == ("NVIDIA H100 80GB HBM3",)


def test_events_of_another_form_are_skipped_and_counted() -> None:
    odd = [
        *HAND, kernel(GEMM, 1, -5), {**kernel(GEMM, 1, 1), "ts": "soon"}, {**kernel(GEMM, 1, 1), "args": [1]}, 7, None,
        {**kernel(GEMM, 1, 1), "ts": 1e300},
    ]  # fmt: skip
    trace = read_bytes(json.dumps(document(odd)).encode())
    assert len(trace.start) == 5
    assert trace.reading.skipped == 6
    assert trace.reading.damage == ""


def test_bare_nan_and_broken_names_are_repaired() -> None:
    text = json.dumps(document([kernel("caf\u00e9", 1, 2, bandwidth=0.5), kernel(GEMM, 4, 2)])).encode("utf-8")
    text = text.replace(b"0.5", b"Infinity").replace(b"caf\\u00e9", b"caf\xe9")
    trace = read_bytes(text)
    assert [trace.names[i] for i in trace.name] == ["caf\ufffd", GEMM]
    assert trace.reading.skipped == 0


@given(st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_a_cut_file_gives_what_came_before_or_one_clear_error(seed: int) -> None:
    text = json.dumps(document(HAND)).encode()
    cut = random.Random(seed).randrange(len(text))
    try:
        trace = read_bytes(text[:cut])
    except QuestionError as error:
        assert str(error)
        return
    after_list = cut > text.rindex(b'], "traceName"')
    assert bool(trace.reading.damage) != after_list
    assert len(trace.start) + len(trace.call_start) <= len(HAND)


def test_a_cut_gzip_file_says_so() -> None:
    random.seed(1)
    many = [kernel(f"k{random.random()}", i, 1) for i in range(20_000)]
    packed = gzip.compress(json.dumps(document(many)).encode())
    trace = read_bytes(packed[: len(packed) * 2 // 3])
    assert trace.reading.damage == "the gzip stream ends early"
    assert 5_000 < len(trace.start) < 20_000


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "the file is empty"),
        (b"hello", "JSON expected"),
        (b'{"a": [1, 2, 3]}', 'no list "traceEvents"'),
        (b'{"traceEvents": [', "cut off"),
        (b'{"traceEvents": [}]}', "not JSON"),
        (b"PK\x03\x04abc", "a zip archive"),
        (b"\x28\xb5\x2f\xfd....", "zstd"),
        (b"\x80\x04\x95", "vramcast explain"),
        (b"\x1f\x8b\x08\x00" + b"\xff" * 50, "the gzip stream is broken"),
        (b"[" * 100_000, "could be read"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_sentence(data: bytes, told: str) -> None:
    with pytest.raises(QuestionError, match=told):
        read_bytes(data)


def test_a_folder_is_listed_in_the_order_of_its_numbers(write_trace: Callable[..., Path]) -> None:
    for rank in (10, 2, 1):
        folder = write_trace(HAND, f"run/rank{rank}.json.gz").parent
    (folder / "notes.txt").write_text("x")
    assert [p.name for p in trace_files(folder)] == ["rank1.json.gz", "rank2.json.gz", "rank10.json.gz"]
    empty = folder / "empty"
    empty.mkdir()
    with pytest.raises(QuestionError, match="holds no trace"):
        trace_files(empty)


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(QuestionError, match="cannot read"):
        read_trace(tmp_path / "absent.json")
