"""``vramcast utilization`` as a user meets it."""

import json
from pathlib import Path

import pytest

from vramcast.cli import run

LLAMA = "meta-llama/Llama-2-7b-hf"


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert run(["utilization", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_throughput_flops_and_step_time_agree(capsys: pytest.CaptureFixture[str]) -> None:
    common = (LLAMA, "--gpu", "A100-80Gx4", "--seq", "2048")
    by_samples = answer(capsys, *common, "--samples-per-second", "3")
    by_step = answer(capsys, *common, "--step-time", "4", "--batch", "12")
    by_tokens = answer(capsys, *common, "--tokens-per-second", "1536")
    assert by_samples["found"]["mfu"] == by_step["found"]["mfu"] == by_tokens["found"]["mfu"]
    told = answer(capsys, "--gpu", "A100", "--tflops", str(by_samples["found"]["flops_per_s"]["causal"] / 1e12))
    assert told["found"]["mfu"]["as told"] == pytest.approx(by_samples["found"]["mfu"]["causal"])


def test_a_papers_speed_is_an_mfu(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--gpu", "A100-80Gx4", "--seq", "2048", "--samples-per-second", "3", "--reference", "3300")
    assert run(["utilisation", LLAMA, *words]) == 0
    assert "46.5% of the reference's 3,300 tokens/s per card, which are 43.6% MFU" in capsys.readouterr().out


def test_a_log_is_read_and_its_own_mfu_is_set_beside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_text("step: 20  loss: 5.1  memory: 40.9GiB(51.6%)  tps: 7,480  tflops: 433.1  mfu: 43.78%\n")
    words = ("meta-llama/Llama-3.1-8B", "--gpu", "H100x8", "--seq", "8192", "--log", str(log))
    assert run(["utilization", *words]) == 0
    page = capsys.readouterr().out
    assert "7,480 tokens/s per card" in page
    assert "the log's own MFU is 43.78%, by the same convention (full) it is 43.78% here" in page
    assert answer(capsys, str(log), "--gpu", "H100x8")["found"]["mfu"]["as told"] == pytest.approx(433.1 / 989.4, rel=1e-3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((LLAMA, "--gpu", "A100"), "none was given"),
        ((LLAMA, "--gpu", "A100", "--tflops", "1", "--step-time", "2"), "--tflops and --step-time was given"),
        ((LLAMA, "--gpu", "A100", "--step-time", "2", "--seq", "1k"), "needs --batch"),
        ((LLAMA, "--gpu", "A100", "--samples-per-second", "2"), "give --seq"),
        (("--gpu", "A100", "--tokens-per-second", "2", "--seq", "1k"), "of which model?"),
        ((LLAMA, "--gpu", "A100", "--tokens-per-second", "nan"), "is no amount"),
        (("--gpu", "A100", "--tflops", "-3"), "is no amount"),
        (("--gpu", "A100", "--tflops", "3", "--dtype", "fp8"), "no dense fp8 rate is known"),
        (("--gpu", "A100", "--tflops", "3", "--reference", "30"), "--reference compares tokens per second"),
        (("absent.log", "--gpu", "A100"), "cannot read absent.log"),
    ],
)
def test_a_wrong_question_is_one_line_and_exit_code_2(words: tuple, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["utilization", *words]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_the_forecast_of_the_run_stands_beside_the_figure(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("meta-llama/Llama-3.1-8B", "--gpu", "H100x8", "--seq", "8192", "--tokens-per-second", "6000")
    got = answer(capsys, *words, "--fsdp", "2", "--micro-batch", "1", "--framework", "torchtitan")
    ours = got["forecast"]
    assert ours["share"] == pytest.approx(6000 / ours["tokens_per_s"])
    assert ours["mfu"] == pytest.approx(got["found"]["mfu"]["causal"] / ours["share"], rel=0.01)
    assert answer(capsys, *words)["forecast"] is None
    assert run(["utilization", "--gpu", "H100", "--tflops", "300", "--fsdp", "2"]) == 2
    assert "--fsdp" in capsys.readouterr().err
