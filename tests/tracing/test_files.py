"""What a script writes: found again by the script, listed, and nowhere outside the scratch folder."""

from pathlib import Path

import pytest

from vramcast.tracing.execution.overlay import Overlay
from vramcast.tracing.request import ScriptRequest, TraceResult
from vramcast.tracing.run import trace_script

pytest.importorskip("torch")
pytest.importorskip("transformers")

WRITES = """
import glob, os, pathlib, shutil, sqlite3, subprocess, sys, tempfile
import numpy as np
import torch
from safetensors.torch import load_file, save_file
def refused(error, act, *given):
    try:
        act(*given)
    except error:
        return
    raise AssertionError((error, given))
open("train.log", "w").write("begun")
with open("kept.txt", "a") as file:
    file.write("more")
assert open("kept.txt").read() == "old more"
os.makedirs("runs/a/b", exist_ok=True)
pathlib.Path("runs/a/x.json").write_text("{}")
assert sorted(os.listdir("runs/a")) == ["b", "x.json"]
assert sorted(glob.glob("runs/**", recursive=True)) == ["runs/", "runs/a", "runs/a/b", "runs/a/x.json"]
assert [(e.name, e.is_dir()) for e in sorted(os.scandir("runs/a"), key=lambda e: e.name)] == [("b", True), ("x.json", False)]
refused(FileExistsError, os.mkdir, "runs")
refused(FileExistsError, open, "kept.txt", "x")
refused(FileNotFoundError, open, "nowhere/x", "w")
refused(IsADirectoryError, open, "folder", "w")
refused(OSError, os.rmdir, "folder")
os.chdir("runs/a")
assert os.path.exists("x.json") and os.getcwd().endswith("runs/a")
os.chdir("../..")
os.remove("gone.txt")
assert not os.path.exists("gone.txt") and "gone.txt" not in os.listdir(".")
refused(FileNotFoundError, open, "gone.txt")
refused(FileNotFoundError, os.remove, "gone.txt")
os.rename("folder", "moved")
assert open("moved/inner/file").read() == "inner" and not os.path.exists("folder")
shutil.rmtree("moved")
assert not os.path.exists("moved")
os.mkdir("folder")
assert os.listdir("folder") == []
shutil.copytree("runs", "again")
shutil.move("again", "third")
assert pathlib.Path("third/a/x.json").stat().st_size == 2
np.save("a.npy", np.ones(3))
assert np.load("a.npy").sum() == 3
pathlib.Path("link").symlink_to("kept.txt")
assert open("link").read() == "old more"
open("linked/new", "w").write("through a link")
assert open("real/new").read() == "through a link"
pathlib.Path("written_module.py").write_text("value = 3")
sys.path.insert(0, os.getcwd())
import written_module
assert written_module.value == 3
connection = sqlite3.connect("rows.sqlite")
connection.execute("create table rows (value)")
connection.close()
with tempfile.NamedTemporaryFile() as file:
    assert "vramcast-trace" in file.name
refused(PermissionError, open, "sealed/new", "w") if os.getuid() else None
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(2):
    torch.save({"model": model.state_dict(), "step": step}, "checkpoint.pt")
    assert os.path.exists("checkpoint.pt")
    back = torch.load("checkpoint.pt", map_location="cpu")
    assert (back["model"]["weight"].shape, back["step"]) == ((1024, 1024), step)
    save_file(model.state_dict(), "model.safetensors", metadata={"format": "pt"})
    assert load_file("model.safetensors")["weight"].shape == (1024, 1024)
    model(torch.randn(2, 1024, device="cuda")).sum().backward()
    optimizer.step()
"""


def _filled(folder: Path) -> dict[str, str]:
    (folder / "folder" / "inner").mkdir(parents=True)
    (folder / "folder" / "inner" / "file").write_text("inner")
    (folder / "kept.txt").write_text("old ")
    (folder / "gone.txt").write_text("here")
    (folder / "real").mkdir()
    (folder / "linked").symlink_to("real")
    (folder / "sealed").mkdir(mode=0o555)
    (folder / "train.py").write_text(WRITES)
    return _held(folder)


def _held(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() if path.is_file() else "" for path in folder.rglob("*")}


def _traced(folder: Path, **options: bool) -> TraceResult:
    return trace_script(ScriptRequest(argv=(str(folder / "train.py"),), **options))


@pytest.mark.torch
def test_what_a_script_writes_it_finds_again_and_nothing_outside_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _filled(tmp_path)
    monkeypatch.chdir(tmp_path)
    result = _traced(tmp_path)
    assert (result.error, result.steps) == ("", 2)
    assert _held(tmp_path) == before
    sizes = {str(Path(name).relative_to(tmp_path)): size for name, size in result.written}
    assert sizes["kept.txt"] == len("old more") and sizes["runs/a/x.json"] == sizes["third/a/x.json"] == 2
    weights = 4 * (1024 * 1024 + 1024)
    assert weights < sizes["checkpoint.pt"] < weights + 8192 and weights < sizes["model.safetensors"] < weights + 1024
    assert result.written_files == len(result.written) == len(sizes)
    assert "gone.txt" not in sizes and not any(name.startswith("moved") for name in sizes)


@pytest.mark.torch
def test_a_script_that_may_write_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("open('here.txt', 'w').write('here')")
    monkeypatch.chdir(tmp_path)
    result = _traced(tmp_path, write_through=True)
    assert (result.written_files, (tmp_path / "here.txt").read_text()) == (0, "here")


def test_the_layer_passes_what_is_not_its_own(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    layer = Overlay(home)
    (tmp_path / "file").write_text("outside")
    assert layer.seen(str(tmp_path / "file")) == str(tmp_path / "file")
    assert layer.changed("/dev/null") == "/dev/null"
    assert layer.changed(str(home / "own")) == str(home / "own")
    assert layer.written() == [] and not layer.used
    place = layer.changed(str(tmp_path / "file"))
    Path(place).write_text("inside")
    assert (tmp_path / "file").read_text() == "outside"
    assert layer.seen(str(tmp_path / "file")) == place and layer.shown(place) == str(tmp_path / "file")
    assert layer.written() == [(str(tmp_path / "file"), len("inside"))]
    Path(place).unlink()
    layer.forget(str(tmp_path / "file"))
    with pytest.raises(FileNotFoundError):
        layer.seen(str(tmp_path / "file"))
    assert layer.names(str(tmp_path)) is not None and "file" not in (layer.names(str(tmp_path)) or ())
