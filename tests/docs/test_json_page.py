"""docs/json.md names every field of an answer, and no other."""

import json
import re
from pathlib import Path

import pytest

from vramcast.cli import run

PAGE = Path(__file__).parents[2] / "docs" / "json.md"
LINES = (
    ["serve", "Qwen/Qwen2.5-7B-Instruct", "--gpu", "3060", "--prompt", "1000", "--output", "100"],
    ["serve", "Qwen/Qwen2.5-7B-Instruct"],
    ["train", "Qwen/Qwen2.5-7B", "--gpu", "4090", "--offload", "optimizer"],
)
ROWS = {"terms[]": ("memory", "per_gpu", 0, "terms", 0), "fit": ("fit",), "limits": ("limits",), "advice[]": ("advice", 0),
        "model": ("model",), "memory.per_gpu[]": ("memory", "per_gpu", 0), "assumed": ("assumed", 0)}  # fmt: skip
NESTED = {"terms", "low_bytes", "high_bytes", "coverage", "cases", "instants", "instant"}


def answers(capsys: pytest.CaptureFixture[str]) -> list[dict]:
    found = []
    for line in LINES:
        run([*line, "--json"])
        found.append(json.loads(capsys.readouterr().out))
    return found


def row(field: str) -> str:
    return next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{field}`"))


def test_every_top_level_field_has_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    first_words = re.findall(r"^\| `([a-z_]+)", PAGE.read_text(), re.MULTILINE)
    for answer in answers(capsys):
        assert set(answer) <= set(first_words)
        assert set(first_words) - set(answer) <= {"terms"}, "a row for a field that no answer has"


@pytest.mark.parametrize("field", ROWS)
def test_every_field_of_an_object_is_in_its_row(field: str, capsys: pytest.CaptureFixture[str]) -> None:
    for answer in answers(capsys):
        value = answer
        try:
            for key in ROWS[field]:
                value = value[key]
        except IndexError:
            continue  # an answer without advice
        said = set(re.findall(r"`([a-z_]+)(?:\[\])?`", row(field)))
        assert set(value) <= said, f"docs/json.md, {field}: {set(value) - said} is missing"
        assert said - set(value) - NESTED <= {field.rpartition(".")[2].removesuffix("[]"), "first_step_bytes", "interval"}
