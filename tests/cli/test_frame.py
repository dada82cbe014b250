"""The frame of the command line: exit codes, one line per mistake, help with examples for every command."""

import importlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from vramcast.cli import COMMANDS, run

FILES = Path(__file__).parents[2] / "src" / "vramcast" / "cli"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_file_help_and_examples(name: str) -> None:
    module, about = COMMANDS[name]
    command: click.Command = importlib.import_module(f"vramcast.cli.{module}").command
    assert (FILES / f"{module}.py").exists()
    assert about.endswith(".")
    assert command.help
    assert f"vramcast {name}" in (command.epilog or ""), "examples"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sevre", "x"], "unknown command 'sevre': did you mean serve?"),
        (["doctor", "--nope"], "No such option"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert message.lower() in error.lower()
    assert error.count("\n") == 1


def test_a_closed_pipe_is_not_an_error() -> None:
    program = "import sys; from vramcast.cli import run; sys.exit(run(['--help']))"
    pipe = f'"{sys.executable}" -c "{program}" | true'
    env = {**os.environ, "PYTHONPATH": str(FILES.parents[1])}
    done = subprocess.run(pipe, shell=True, capture_output=True, text=True, check=True, env=env)
    assert "Traceback" not in done.stderr


def test_a_dash_reads_the_config_from_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    config = (
        b'{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, '
        b'"num_attention_heads": 4, "vocab_size": 100, "torch_dtype": "bfloat16", "tie_word_embeddings": false}'
    )
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(config)))
    assert run(["models", "-", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["model"]
    assert found["parameters"] == 2 * 100 * 64 + 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64)
    assert found["source"] == "standard input"


def test_cards_that_a_layout_leaves_alone_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "Qwen/Qwen2.5-1.5B-Instruct", "--gpu", "4090x4", "--tp", "2", "--context", "4096"]) == 0
    assert "unused_cards = 2  2 of 4 cards do the work: --tp 4, or more replicas with --dp" in capsys.readouterr().out
    assert run(["serve", "Qwen/Qwen2.5-1.5B-Instruct", "--gpu", "4090x4", "--context", "4096", "--tp", "4"]) == 0
    assert "unused_cards" not in capsys.readouterr().out


def test_a_group_of_commands_without_one_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan"]) == 0
    assert "\nCommands:\n" in capsys.readouterr().out


def test_moments_stand_under_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    run(["train", "meta-llama/Llama-3.1-8B", "--gpu", "H100x8", "--framework", "torchtitan", "--fsdp", "2", "--seq", "8192"])
    moments = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  backward of the")]
    assert len(moments) > 3
    assert len({line.index(" GiB") for line in moments}) == 1, moments
