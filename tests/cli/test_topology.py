"""``vramcast topology`` as a user meets it."""

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from vramcast.cli import run

PAIR = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\t0-23\t0\nGPU1\tNV4\t X \t0-23\t0\n"


def test_a_pasted_matrix_gives_links_groups_and_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "topo.txt"
    file.write_text(PAIR)
    assert run(["topology", str(file), "--gpu", "3090"]) == 0
    page = capsys.readouterr().out
    assert "56 GB/s one way" in page and "tensor parallel  2 in 0,1" in page and "256 MiB" in page
    assert run(["topology", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["kind"], told["islands"], told["all_reduce"]) == ("topology", [[0, 1]], [])


def test_standard_input_and_wrong_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PAIR.encode())))
    assert run(["topology", "-"]) == 0
    assert run(["topology", "absent.txt"]) == 2
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"hello")))
    assert run(["topology", "-"]) == 2
    assert "no matrix of cards found" in capsys.readouterr().err


def test_live_asks_the_driver_and_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert run(["topology"]) == 3
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if name == "nvidia-smi" else None)
    monkeypatch.setattr(subprocess, "run", lambda words, **_: subprocess.CompletedProcess(words, 0, stdout=PAIR, stderr=""))
    assert run(["topology"]) == 0
    monkeypatch.setattr(
        subprocess, "run", lambda words, **_: subprocess.CompletedProcess(words, 9, stdout="", stderr="no driver")
    )
    assert run(["topology"]) == 3
    errors = capsys.readouterr().err
    assert "no nvidia-smi" in errors and "`nvidia-smi topo -m` failed: no driver" in errors
