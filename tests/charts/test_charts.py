"""Plots: the same definition as PNG, SVG and a page that needs no network."""

from pathlib import Path

import pytest

from vramcast.charts.measured import draw_measured
from vramcast.charts.sweep import draw_sweep
from vramcast.cli import run

ROWS = [{"rank": r, "micro_batch": b, "verdict": "fits", "device_bytes": (b + r) * 2**30} for r in (2, 4) for b in (1, 2)]


@pytest.mark.parametrize(("ending", "start"), [(".png", b"\x89PNG"), (".svg", b"<svg"), (".html", b"<!DOCTYPE html>")])
def test_a_sweep_is_drawn(tmp_path: Path, ending: str, start: bytes) -> None:
    file = tmp_path / f"sweep{ending}"
    draw_sweep(ROWS, ["rank", "micro_batch"], str(file))
    assert file.read_bytes().lstrip().startswith(start)


def test_a_page_needs_no_network(tmp_path: Path) -> None:
    file = tmp_path / "sweep.html"
    draw_sweep(ROWS, ["rank", "micro_batch"], str(file))
    assert 'src="http' not in file.read_text()


def test_measured_beside_forecast(tmp_path: Path) -> None:
    rows = [{**row, "figures": {"allocated": 2**30}, "forecast": {"allocated_bytes": 2**30}} for row in ROWS]
    draw_measured(rows, ["rank", "micro_batch"], str(tmp_path / "measured.svg"))
    assert b"forecast" in (tmp_path / "measured.svg").read_bytes()


def test_the_command_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "sweep.svg"
    arguments = ["train", "meta-llama/Llama-3.1-8B", "--gpu", "H100", "--method", "lora", "--seq", "512"]
    assert run([*arguments, "--sweep", "rank=2,4", "micro_batch=1,2", "--plot", str(file)]) == 0
    assert file.exists()
    assert "micro_batch=2" in capsys.readouterr().out


def test_a_sweep_has_a_title_the_card_and_its_own_values_as_ticks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "serve.svg"
    line = ["serve", "Qwen/Qwen2.5-7B-Instruct", "--gpu", "4090", "--sweep", "concurrency=1,4", "context=4096,8192,16384"]
    assert run([*line, "--plot", str(file)]) == 0
    assert "16384" in capsys.readouterr().out
    drawn = file.read_text()
    for shown in ("Qwen/Qwen2.5-7B-Instruct, 4090", "the card: 23.5 GiB", ">4,096<", ">8,192<", ">16,384<"):
        assert shown in drawn, shown
    assert "unknown" not in drawn, "no legend for verdicts that no point has"


@pytest.mark.parametrize(("ending", "start"), [(".png", b"\x89PNG"), (".svg", b"<svg"), (".html", b"<!doctype html>")])
def test_an_answer_is_drawn_as_the_page_draws_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str, start: bytes
) -> None:
    file = tmp_path / f"answer{ending}"
    line = ["train", "meta-llama/Llama-3.1-8B", "--gpu", "H100", "--method", "lora", "--seq", "512", "--lang", "zh"]
    assert run([*line, "--plot", str(file)]) == 0
    assert file.read_bytes().startswith(start)
    if ending != ".png":
        text = file.read_text("utf-8")
        assert 'class="part weights"' in text
        assert "激活值" in text
    assert run([*line, "--plot", str(tmp_path / "answer.bmp")]) == 2
    assert "a plot cannot be written to" in capsys.readouterr().err
