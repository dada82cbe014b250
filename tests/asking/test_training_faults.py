"""Training questions that used to be answered without a word."""

import pytest

import vramcast
from vramcast.asking import training_question
from vramcast.cli import run
from vramcast.errors import QuestionError


@pytest.mark.parametrize("name", ["param_dtype", "compute_dtype", "grad_dtype"])
def test_trained_weights_are_floats(name: str) -> None:
    with pytest.raises(QuestionError, match=r"int8: trained weights are floats .*--method qlora"):
        training_question("01-ai/Yi-6B", **{name: "int8"})


def test_a_type_that_the_card_only_emulates_is_said_first(capsys: pytest.CaptureFixture[str]) -> None:
    run(["train", "huggyllama/llama-7b", "--gpu", "V100-32G", "--method", "lora", "--checkpointing", "full"])
    lines = capsys.readouterr().out.splitlines()
    place = next(i for i, line in enumerate(lines) if "bfloat16 is emulated on this card: Tesla V100" in line)
    assert place < lines.index("The step, moment by moment")


def test_the_share_that_is_trained_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    run(["train", "meta-llama/Llama-2-7b-hf", "--method", "lora", "--rank", "8"])
    assert "19,988,480 parameters are trained: 0.2958% of all, adapters included" in capsys.readouterr().out


def test_a_term_that_is_not_there_is_zero(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "meta-llama/Llama-2-7b-hf", "--optimizer", "sgd", "--explain", "optimizer"]) == 0
    assert "optimizer  0 B  nothing of it" in capsys.readouterr().out


def test_what_was_chosen_for_the_user_is_told() -> None:
    told = {a.name: a.value for a in vramcast.train("meta-llama/Llama-2-7b-hf", method="lora").assumed}
    assert (told["rank"], told["targets"], told["micro_batch"], told["seq"]) == (8, "all-linear", 1, 2048)
    said = {a.name for a in vramcast.train("meta-llama/Llama-2-7b-hf", method="lora", rank=4, seq=512).assumed}
    assert not {"rank", "seq"} & said


def test_weights_in_host_memory_are_told_beside_the_sum(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "meta-llama/Llama-2-7b-hf", "--gpu", "3070", "--cpu-offload-gb", "10", "--context", "2048"]) == 0
    assert "12.55 GiB on this rank, less 10.00 GiB in host memory" in capsys.readouterr().out


def test_a_task_of_trl_is_asked_of_trl_where_no_framework_is_named() -> None:
    asked = training_question("Qwen/Qwen2.5-1.5B-Instruct", method="grpo", gpu="A100-80G")
    assert asked.question.framework == "trl"
    assert any(one.name == "framework" and one.value == "trl" for one in asked.assumed)
    assert (
        training_question("Qwen/Qwen2.5-1.5B-Instruct", method="dpo", framework="hf_trainer").question.framework == "hf_trainer"
    )
    assert training_question("Qwen/Qwen2.5-1.5B-Instruct", method="lora").question.framework == "hf_trainer"
