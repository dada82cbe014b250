"""Advice is money: every piece is typed as it stands behind the question, and what it promises comes true."""

import json
import shlex

import pytest

from vramcast.cli import run

QUESTIONS = [
    "serve meta-llama/Llama-3.3-70B-Instruct --gpu H100x4 --context 128K --concurrency 5",
    "serve Qwen/Qwen3-32B-AWQ --gpu 4090",
    "serve deepseek-ai/DeepSeek-R1 --gpu A100-80Gx8 --context 8192",
    "serve meta-llama/Llama-3.1-8B-Instruct --gpu L40S --engine sglang --mem-fraction-static 0.2 --context 8192",
    "serve google/gemma-3-27b-it --gpu 'M3 Max 36GB' --engine ollama --quant BF16 --context 8192",
    "serve Qwen/Qwen2.5-14B-Instruct --gpu 3060 --engine transformers --context 4096",
    "train meta-llama/Llama-3.1-8B --gpu 4090",
    "train meta-llama/Meta-Llama-3-8B --method qlora --gpu 3060 --micro-batch 2 --seq 2048",
    "train meta-llama/Llama-3.1-8B --gpu A100-40Gx4 --micro-batch 4",
    "serve Qwen/Qwen2.5-32B-Instruct --gpu L40Sx4 --tp 1 --dp 4 --context 32k",
    "serve deepseek-ai/DeepSeek-V3 --gpu H200x8 --context 128k --concurrency 40 --engine sglang",
    "train meta-llama/Llama-3.1-70B --gpu H100x64 --framework torchtitan --seq 8192",
    "train meta-llama/Llama-3.1-70B --gpu H100x64 --framework megatron --tp 2 --seq 8192 --accumulate 32",
]


def ask(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict]:
    code = run([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("line", QUESTIONS)
def test_what_is_advised_is_typed_as_it_stands_and_fits(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = ask(shlex.split(line), capsys)
    advice = answer["advice"]
    assert code == 1
    assert 0 < len(advice) <= 8
    assert [a["then_fits"] for a in advice] == sorted((a["then_fits"] for a in advice), reverse=True)
    assert advice[0]["then_fits"]
    assert len({a["change"] for a in advice}) == len(advice)
    for piece in advice:
        if "leave out" in piece["costs"]:
            continue
        after_code, after = ask([*shlex.split(line), *shlex.split(piece["change"])], capsys)
        assert after["fit"]["verdict"] == piece["then_verdict"], piece["change"]
        assert piece["then_fits"] == (after["fit"]["verdict"] == "fits")
        assert after_code == (0 if after["fit"]["verdict"] in ("fits", "tight") else 1)


def changes(line: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [a["change"] for a in ask(shlex.split(line), capsys)[1]["advice"] if a["then_fits"]]


def test_the_changes_people_make_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    r1, sglang, mac, qlora, full = (changes(QUESTIONS[i], capsys) for i in (2, 3, 4, 7, 6))
    assert "--quant awq" in r1 and any("--engine llama.cpp" in change for change in r1)
    assert any(change.startswith("--mem-fraction-static 0.") for change in sglang)
    assert not any("--gpu" in change for change in mac), "nobody adds a card to a Mac"
    assert "--framework unsloth" in qlora
    assert any("--checkpointing full" in change and "x8 --fsdp" in change for change in full)


def test_steps_are_small_enough_to_be_worth_taking(capsys: pytest.CaptureFixture[str]) -> None:
    advised = changes(QUESTIONS[0], capsys)
    several = next(int(change.split()[1]) for change in advised if change.startswith("--concurrency"))
    line = QUESTIONS[0].replace("--concurrency 5", f"--concurrency {several + 1}")
    assert ask(shlex.split(line), capsys)[1]["fit"]["verdict"] != "fits", "one more fits, so fewer is no advice"
    context = next(int(change.split()[1]) for change in advised if change.startswith("--context"))
    line = QUESTIONS[0].replace("128K", str(context + 256))
    assert ask(shlex.split(line), capsys)[1]["fit"]["verdict"] != "fits"


def test_the_longest_context_is_found_and_no_longer_one_fits(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["serve", "Qwen/Qwen3-32B-AWQ", "--gpu", "RTX 5000 Ada"]
    code, answer = ask([*line, "--context", "auto"], capsys)
    longest = answer["workload"]["context"]
    assert (code, answer["fit"]["verdict"]) == (0, "fits")
    assert ask([*line, "--context", str(longest + 1)], capsys)[1]["fit"]["verdict"] != "fits"
    scarce = ask(
        ["serve", "Qwen/Qwen3-32B-AWQ", "--gpu", "3090", "--gpu-memory-utilization", "0.9", "--context", "auto"], capsys
    )[1]
    assert scarce["workload"]["context"] == 1024, "a context of one token is nobody's answer"
    assert run(["serve", "Qwen/Qwen3-32B-AWQ", "--context", "auto"]) == 2
    assert "--context auto needs the card" in capsys.readouterr().err


def test_layouts_of_the_planner_are_advised_for_the_same_work(capsys: pytest.CaptureFixture[str]) -> None:
    dp, latent, titan, megatron = (changes(QUESTIONS[i], capsys) for i in (9, 10, 11, 12))
    assert "--tp 4 --dp 1" in dp
    assert any(change.endswith("--enable-dp-attention --dp-size 8") for change in latent), "requests at once stay as asked"
    assert "--tp 8 --accumulate 8" in titan, "an eighth of the data-parallel ranks, eight times the accumulation"
    assert any("--tp 8 --pp 2 --sp --accumulate 256" in change for change in megatron)
    for advised in (dp, latent, titan, megatron):
        for change in advised:
            words = [word for word in change.split() if word.startswith("--")]
            assert len(words) == len(set(words)), f"{change} says one thing twice"
