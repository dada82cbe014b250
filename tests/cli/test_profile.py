"""``vramcast profile`` as a user meets it: pages, JSON, pictures, exit codes and one-line errors."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from trace_events import GEMM, HAND, REDUCE, annotation, document, kernel

from vramcast.cli import run


@pytest.fixture
def trace(tmp_path: Path) -> Callable[..., Path]:
    def write(events: list[dict], name: str = "trace.json", cut: int | None = None, **header) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(json.dumps(document(events, **header)).encode()[:cut])
        return path

    return write


def test_the_page_says_where_the_time_went(trace: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profile", str(trace(HAND))]) == 0
    page = capsys.readouterr().out
    assert "H100 SXM5 80GB" in page
    assert "compute                      60.0 us   60.0%" in page
    assert "25% of 20.0 us hidden" in page
    assert all(len(line) < 140 for line in page.splitlines())


def test_json_is_one_object(trace: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profile", str(trace(HAND)), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["kind"]) == ("vramcast/1", "profile")
    assert told["where"]["span_s"] == pytest.approx(100e-6)


def test_a_cut_trace_is_answered_in_part_with_exit_code_2(trace: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profile", str(trace([*HAND, *HAND], cut=2500))]) == 2
    got = capsys.readouterr()
    assert "partly read" in got.out
    assert got.err.count("\n") == 1 and "cut off in the middle; answered from the" in got.err


@pytest.mark.parametrize(
    ("events", "said"), [([annotation("aten::add", 0, 5, cat="cpu_op")], "was the profiler given ProfilerActivity.CUDA?")]
)
def test_a_trace_without_a_gpu_is_refused(
    events: list, said: str, trace: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["profile", str(trace(events))]) == 2
    assert said in capsys.readouterr().err


def test_what_cannot_be_read_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profile", str(tmp_path / "absent.json")]) == 2
    assert run(["profile", str(tmp_path)]) == 2
    assert run(["profile", str(tmp_path), "--roofline", "x.png"]) == 2
    assert run(["profile", str(tmp_path), "--bars", "x.bmp"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert "No such file" in lines[0] and "holds no trace" in lines[1] and "about one trace" in lines[2]


def test_pictures_are_written(trace: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    matmul = annotation("aten::mm", -20, 15, cat="cpu_op", **{"Input Dims": [[64, 32], [32, 64]], "Input type": ["float"] * 2})
    file = str(trace([matmul, annotation("ProfilerStep#1", -20, 130), *HAND]))
    names = {flag: str(tmp_path / f"{flag}.svg") for flag in ("timeline", "bars", "roofline")}
    assert run(["profile", file, *(word for flag, name in names.items() for word in (f"--{flag}", name))]) == 0
    drawn = {flag: Path(name).read_text() for flag, name in names.items()}
    assert "stream 20" in drawn["timeline"] and "exposed communication" in drawn["bars"] and "GB/s" in drawn["roofline"]
    capsys.readouterr()
    assert run(["profile", str(trace(HAND)), "--roofline", names["roofline"]]) == 2
    assert "record_shapes=True" in capsys.readouterr().err


def test_two_traces_side_by_side(trace: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    before = trace([*HAND, kernel(REDUCE, 120, 80, stream=9)], "before.json")
    assert run(["profile", str(trace(HAND)), "--against", str(before)]) == 0
    page = capsys.readouterr().out
    assert "2.00 x as fast" in page and "-80.0 us" in page


def test_a_folder_of_ranks(trace: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    for rank, us in enumerate((30, 90)):
        events = [kernel(GEMM, 0, us), kernel(REDUCE, us, 100 - us, stream=9)]
        folder = trace(events, f"run/r{rank}.json", distributedInfo={"rank": rank}).parent
    assert run(["profile", str(folder)]) == 0
    assert "rank 1 waits least in collectives" in capsys.readouterr().out


def test_explain_names_the_command_that_reads_what_it_cannot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = {
        "profile": json.dumps(document(HAND)),
        "topology": "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-9\nGPU1\tNV4\t X \t0-9\n",
        "doctor": "PyTorch version: 2.6.0+cu124\nCUDA used to build PyTorch: 12.4\n",
        "utilization": "{'train_runtime': 120.5, 'train_samples_per_second': 3.0}\n",
    }
    for command, text in texts.items():
        file = tmp_path / f"{command}.txt"
        file.write_text(text)
        assert run(["explain", str(file)]) == 2
        assert f"`vramcast {command} {file}` reads it" in capsys.readouterr().err
    file.write_text("hello")
    assert run(["explain", str(file)]) == 2
    assert "holds nothing that can be explained" in capsys.readouterr().err
