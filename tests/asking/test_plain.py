"""Questions in a person's words become the words of a command; what is none stays an error."""

import pytest

from vramcast.asking.plain import plain_question
from vramcast.cli import run


@pytest.mark.parametrize(
    ("text", "command", "model", "flags"),
    [
        ("llama 3.1 8b on a 4090", "serve", "llama 3.1 8b", "--gpu=4090 --context=auto"),
        ("can I run qwen3 32b on 2x 3090 with 32k?", "serve", "qwen3 32b", "--gpu=2x 3090 --context=32k"),
        ("can i run deepseek r1 on 8xA100 80GB", "serve", "deepseek r1", "--gpu=8 x A100 80GB --context=auto"),
        ("用4090能跑Qwen3-8B吗", "serve", "Qwen3-8B", "--gpu=4090 --context=auto"),
        ("通义千问7B在3060上能跑吗", "serve", "通义千问7B", "--gpu=3060 --context=auto"),
        ("两张3090微调Qwen3-8B", "train", "Qwen3-8B", "--gpu=3090x2"),
        ("Qwen3-32B 需要多少显存", "serve", "Qwen3-32B", ""),
        ("how much vram do i need to run llama 3.3 70b?", "serve", "llama 3.3 70b", ""),
        ("full fine-tune qwen2.5 7b on 8 H100s", "train", "qwen2.5 7b", "--gpu=H100x8 --method=full"),
        ("fine-tune mistral 7b with lora and batch size 4 on a rtx 3090", "train", "mistral 7b",
         "--gpu=rtx 3090 --method=lora --micro-batch=4"),
        ("train llama 3 8b on colab with unsloth 4bit", "train", "llama 3 8b", "--gpu=colab --method=qlora --framework=unsloth"),
        ("llama 3.1 70b on 4 H100s with vllm for 16 users", "serve", "llama 3.1 70b",
         "--gpu=H100x4 --context=auto --concurrency=16 --engine=vllm"),
        ("Qwen3-30B-A3B 4bit on mac studio m2 ultra 192gb", "serve", "Qwen3-30B-A3B",
         "--gpu=mac studio m2 ultra 192gb --context=auto --quant=Q4_K_M"),
        ("qwen3:32b on g5.12xlarge", "serve", "qwen3:32b", "--gpu=g5.12xlarge --context=auto"),
        ("qwen3", "serve", "qwen3", ""),
    ],
)  # fmt: skip
def test_a_line_names_model_card_and_settings(text: str, command: str, model: str, flags: str) -> None:
    found = plain_question(text)
    assert found is not None
    assert (found.command, found.model, " ".join(found.flags)) == (command, model, flags)


@pytest.mark.parametrize(
    "text",
    ["what is the weather on mars", "hello world", "sevre", "vllm", "show me the money", "", "x " * 200, "serve --gpu 4090"],
)
def test_what_is_no_question_is_none(text: str) -> None:
    assert plain_question(text) is None


def test_it_is_asked_without_quotes_too_and_says_how(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["llama", "3.1", "8b", "on", "a", "4090"]) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("asked as: vramcast serve 'llama 3.1 8b' --gpu=4090 --context=auto")
    assert "FITS" in captured.out


def test_an_id_alone_is_asked_about_and_a_slip_of_a_command_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["Qwen/Qwen3-8B"]) == 0
    assert run(["sevre"]) == 2
    assert "did you mean serve?" in capsys.readouterr().err


def test_where_no_context_fits_a_short_one_is_asked_and_advised(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["qwen2.5 72b on 2x3090"]) == 1
    out = capsys.readouterr().out
    assert "context 1,024 tokens" in out and "--quant awq" in out


@pytest.mark.parametrize(("line", "card"), [("llama 3.1 8b on a nocard", "nocard"), ("qwen3 8b on my 4070 tii", "4070 tii")])
def test_a_card_that_nobody_knows_is_refused_and_not_dropped(line: str, card: str) -> None:
    asked = plain_question(line)
    assert asked is not None
    assert f"--gpu={card}" in asked.flags
    assert " on " not in asked.model
