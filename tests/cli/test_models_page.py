"""``vramcast models``: the id that was meant, the largest block, and a windowed model's cache with its windows kept."""

import json

import pytest

from vramcast.cli import run
from vramcast.units import GiB


def test_a_windowed_models_cache_is_that_of_an_engine_which_keeps_windows(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["models", "google/gemma-3-27b-it", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["cache_bytes_at_positions"] == 8192 * (52 * 1024 + 10 * 131_072)
    assert run(["models", "google/gemma-3-27b-it"]) == 0
    page = capsys.readouterr().out
    assert f"{facts['cache_bytes_at_positions'] / GiB:.2f} GiB  (whole: 62.00 GiB" in page
    assert "largest block" in page


def test_the_id_that_a_name_means_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["models", "qwen2.5 7b"]) == 0
    assert capsys.readouterr().out.startswith("Qwen/Qwen2.5-7B (asked: qwen2.5 7b)")


def test_what_is_missing_or_taken_for_granted_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """The published config of Logics-Thinking names two towers and none of their sizes."""
    missing = "vision tower convnext-1024,siglip2-384: the config does not describe it"
    assert run(["models", "alibaba/Logics-Thinking"]) == 0
    assert f"not modelled: {missing}" in capsys.readouterr().out
    assert run(["models", "alibaba/Logics-Thinking", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unmodelled"] == [missing]
