"""Code that lies in the current folder is never run by the processes that trace and measure."""

from pathlib import Path

import pytest

from vramcast.measuring.process import Worker
from vramcast.tracing.process import TracingProcess

FOREIGN = ("msgspec", "torch", "transformers", "accelerate", "numpy", "json", "sitecustomize")


@pytest.fixture
def hostile_folder(tmp_path, monkeypatch):
    for name in FOREIGN:
        Path(tmp_path, f"{name}.py").write_text(f"open(r'{tmp_path / 'ran'}', 'a').write('{name} ')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("start", [TracingProcess, Worker, lambda: Worker(2)], ids=["trace", "measure", "measure under torchrun"])
@pytest.mark.parametrize("path", ["", ":"], ids=["no path", "empty entry"])
def test_a_worker_imports_nothing_from_the_current_folder(hostile_folder, monkeypatch, start, path):
    monkeypatch.setenv("PYTHONPATH", path)
    with start() as worker:
        worker._process.stdin.close()
        worker._process.wait(120)
        worker._process.stdin = None
    ran = hostile_folder / "ran"
    assert not ran.exists(), f"the worker imported {ran.read_text()}"
