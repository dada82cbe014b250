"""``vramcast check``: a verdict for each file, whatever starts in it."""

import json
from pathlib import Path

import pytest

from vramcast.asking.checking import check_files, kind_of
from vramcast.cli import run
from vramcast.errors import QuestionError

COMPOSE = """
services:
  model:
    image: vllm/vllm-openai:v0.11.0
    command: ["--model", "Qwen/Qwen2.5-7B-Instruct", "--max-model-len", "8192"]
"""
AXOLOTL = "base_model: Qwen/Qwen2.5-7B\nsequence_len: 2048\nmicro_batch_size: 1\nadapter: lora\nlora_r: 16\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "docker-compose.yml").write_text(COMPOSE)
    (tmp_path / "axolotl.yml").write_text(AXOLOTL)
    (tmp_path / "other.yml").write_text("hello: world\n")
    return tmp_path


def test_servers_and_trainings_are_told_apart(files: Path) -> None:
    assert kind_of(str(files / "docker-compose.yml")) == "serving"
    assert kind_of(str(files / "axolotl.yml")) == "training"
    with pytest.raises(QuestionError, match=r"as a training: .*; as a server: "):
        kind_of(str(files / "other.yml"))


@pytest.mark.parametrize(
    ("names", "gpu", "code"),
    [
        (["docker-compose.yml", "axolotl.yml"], "H100", 0),
        (["docker-compose.yml"], "RTX 3060", 1),
        (["docker-compose.yml", "other.yml"], "H100", 2),
        (["absent.yml"], "H100", 2),
        (["docker-compose.yml"], "no such card", 2),
    ],
)  # fmt: skip
def test_exit_codes(files: Path, names: list[str], gpu: str, code: int) -> None:
    assert run(["check", *(str(files / name) for name in names), "--gpu", gpu]) == code


def test_what_does_not_fit_says_what_would_help(files: Path, capsys) -> None:
    assert run(["check", str(files / "docker-compose.yml"), "--gpu", "RTX 3060"]) == 1
    assert "try  --" in capsys.readouterr().out


def test_json(files: Path, capsys) -> None:
    run(["check", str(files / "axolotl.yml"), str(files / "other.yml"), "--gpu", "H100", "--json"])
    first, second = json.loads(capsys.readouterr().out)["checked"]
    assert first["passes"] and first["kind"] == "training" and first["fit"]["verdict"] == "fits"
    assert "as a server" in second["error"]


def test_strict_asks_for_more_than_tight(files: Path) -> None:
    free = {c.file: c for c in check_files([files / "axolotl.yml"], gpu="H100")}
    strict = {c.file: c for c in check_files([files / "axolotl.yml"], gpu="H100", strict=True)}
    assert not next(iter(free.values())).error and not next(iter(strict.values())).error
    with pytest.raises(QuestionError, match="no files"):
        next(check_files([], gpu="H100"))
