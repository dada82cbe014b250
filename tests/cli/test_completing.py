"""Completion in three shells: the line each one loads, and the names that it is offered."""

import os
import subprocess
import sys

import pytest


def ask(**words: str) -> str:
    environment = {**os.environ, **words}
    done = subprocess.run([sys.executable, "-m", "vramcast"], env=environment, capture_output=True, text=True, check=False)
    return done.stdout


@pytest.mark.parametrize(
    ("shell", "mark"), [("bash", "complete -o nosort"), ("zsh", "#compdef"), ("fish", "complete --no-files")]
)
def test_each_shell_gets_its_script(shell: str, mark: str) -> None:
    script = ask(**{"_VRAMCAST_COMPLETE": f"{shell}_source", "_PYTHON_M_VRAMCAST_COMPLETE": ""})
    assert mark in script and "vramcast" in script


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("vramcast ser", "serve"),
        ("vramcast serve qwen3.5", "Qwen/Qwen3.5-9B"),
        ("vramcast serve X --gpu h10", "h100-sxm5-80"),
        ("vramcast serve X --engine sg", "sglang"),
        ("vramcast train X --framework uns", "unsloth"),
        ("vramcast train X --method qlo", "qlora"),
        ("vramcast gpus rtx-409", "rtx-4090"),
    ],
)
def test_names_complete(typed: str, offered: str) -> None:
    count = str(len(typed.split()) - 1)
    for shell in ("bash", "zsh", "fish"):
        words = {"COMP_WORDS": typed, "COMP_CWORD": typed.rsplit(maxsplit=1)[-1] if shell == "fish" else count}
        assert offered in ask(_VRAMCAST_COMPLETE=f"{shell}_complete", **words), shell
