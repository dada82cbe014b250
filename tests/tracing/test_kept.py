"""A tracing process that stays for the next question: same answers, its user's alone, gone with its terminal."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from vramcast.cli.trace import command
from vramcast.errors import QuestionError
from vramcast.tracing import kept
from vramcast.tracing.request import TraceRequest
from vramcast.tracing.run import Tracer

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "vocab_size": 128,
}  # fmt: skip
_LONG_S = 300


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="v") as short:  # a socket's path has little room
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        yield Path(short)


@pytest.mark.torch
def test_questions_are_answered_by_one_process_that_ends_with_its_terminal(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    shell = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    monkeypatch.setattr(kept, "terminal", lambda: shell.pid)
    monkeypatch.setattr(kept, "_key", lambda: ("these files", shell.pid))
    request = TraceRequest(config=CONFIG, seq=64, backend="meta")
    with Tracer() as plain:
        expected = plain.trace(request)
    with Tracer(keep=True) as tracer:
        first = tracer.trace(request)
    with Tracer(keep=True) as tracer:
        second = tracer.trace(msgspec.structs.replace(request, backend="cuda"))
        third = tracer.trace(request)
        with pytest.raises(QuestionError, match="cuda backend, not with meta"):
            tracer.trace(msgspec.structs.replace(request, autocast="bfloat16"))
    assert first.log == third.log == expected.log
    assert (second.error, second.backend) == ("", "cuda")
    (place,) = (runtime / f"vramcast-kept-{os.getuid()}").iterdir()
    assert (place.stat().st_mode & 0o777, (place / kept.SOCKET).stat().st_mode & 0o777) == (0o700, 0o600)
    shell.communicate(b"\n")
    until = time.monotonic() + _LONG_S
    while place.exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert not place.exists()


def test_a_folder_that_others_can_open_is_refused(runtime: Path) -> None:
    (runtime / f"vramcast-kept-{os.getuid()}").mkdir(mode=0o755)
    with pytest.raises(QuestionError, match="is not of this user alone: remove it, or leave --keep out"):
        kept.folder()


def test_a_path_that_no_socket_takes_is_refused(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = runtime / ("x" * 90)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    with pytest.raises(QuestionError, match="is too long a path for a socket"):
        kept.folder()


def test_scripts_are_not_kept() -> None:
    done = CliRunner().invoke(command, ["--keep", "--", "python", "train.py"])
    assert "--keep is of named models" in str(done.exception)
