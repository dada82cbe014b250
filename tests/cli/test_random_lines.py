"""Random command lines by tools/random_lines.py: one of the four exit codes, one line for a mistake, no contradiction."""

import importlib.util
import random
import shlex
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "random_lines.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("random_lines", TOOL)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seed", range(6))
def test_random_lines(seed: int, tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    chance, answered = random.Random(seed), 0
    for _ in range(40):
        words = tool.line(chance)
        code, wrong = tool.fault(words)
        assert not wrong, f"{wrong}: vramcast {shlex.join(words)}"
        answered += code in (0, 1)
    assert answered >= 5


def test_a_contradiction_is_seen(tool: ModuleType) -> None:
    term = {"name": "weights", "bytes": 10, "terms": []}
    bar = {"low_bytes": 9, "high_bytes": 12}
    rank = {"needed_bytes": 10, "claimed_bytes": None, "interval": bar, "terms": [term]}
    fit = {"verdict": "fits", "probability": 0.99, "capacity_bytes": 20, "refused": False}
    good = {"fit": fit, "memory": {"per_gpu": [rank]}}
    assert tool.contradiction(good, 0) == ""
    assert tool.contradiction(good, 1) == "fits with exit code 1"
    assert tool.contradiction({**good, "fit": {**fit, "probability": 0.6}}, 0) == "fits at 0.6"
    assert tool.contradiction({**good, "fit": {**fit, "capacity_bytes": 5}}, 0) == "fits beyond the card"
    halves = {**term, "terms": [{"name": "a", "bytes": 3}]}
    assert (
        tool.contradiction({**good, "memory": {"per_gpu": [{**rank, "terms": [halves]}]}}, 0) == "parts do not sum to their term"
    )
    assert (
        tool.contradiction({**good, "memory": {"per_gpu": [{**rank, "needed_bytes": 13}]}}, 0) == "the bar does not hold the need"
    )
