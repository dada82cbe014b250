"""What people typed on forums in 2025 and 2026 and what they should read: each was wrong or half an answer once."""

import pytest

from vramcast.asking.asked import answer_serving, answer_training
from vramcast.asking.serving import serving_question
from vramcast.asking.training import training_question
from vramcast.cli import run
from vramcast.reading.out_of_memory import read_out_of_memory

_OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {wanted}. GPU 0 has a total capacity of 79.15 GiB of which "
    "1.42 GiB is free. Including non-PyTorch memory, this process has 77.71 GiB memory in use. Of the allocated memory 65.20 GiB "
    "is allocated by PyTorch, and {cached} is reserved by PyTorch but unallocated."
)


def said(words: list[str], capsys: pytest.CaptureFixture[str], *, code: int = 0) -> str:
    assert run(words) == code
    captured = capsys.readouterr()
    return captured.out + captured.err


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.", "leave nothing"),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "mem-fraction-static"),
        (_OOM.format(wanted="2.61 GiB", cached="11.24 GiB"), "CUDA out of memory"),
    ],
)
def test_a_message_is_explained_where_a_file_could_stand(text: str, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert word in said(["explain", text], capsys)


def test_a_file_that_is_not_there_is_no_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert "cannot read train.log" in said(["explain", "train.log"], capsys, code=2)
    assert "'my gpu is sad' holds nothing" in said(["explain", "my gpu is sad"], capsys, code=2)


def test_a_run_that_held_for_hours_is_told_from_one_that_never_fitted() -> None:
    late = " 37%|███▋ | 1423/3846 [4:31:02<7:41:29, 11.43s/it]\n" + _OOM.format(wanted="2.61 GiB", cached="11.24 GiB")
    found = read_out_of_memory(late)
    assert found is not None and found.step == (1423, 3846)
    first, second, *_ = found.advice()
    assert first.startswith("PYTORCH_ALLOC_CONF=expandable_segments:True") and "11.24 GiB" in first and "2.61 GiB" in first
    assert second.startswith("1,423 of 3,846 steps held: the longest samples decide")
    early = read_out_of_memory(" 0%| | 1/3846 [0:31<7:41:29]\n" + _OOM.format(wanted="12.61 GiB", cached="11.24 GiB"))
    assert early is not None and "steps held" not in " ".join(early.advice())
    assert not early.advice()[0].startswith("PYTORCH_ALLOC_CONF")


@pytest.mark.parametrize(
    "words",
    [
        ["serve", "llama-3.1-8b-instruct", "--gpu", "H100", "--best", "users", "--context", "4096"],
        ["plan", "serve", "llama-3.1-8b-instruct", "--gpu", "H100x1"],
    ],
)
def test_a_line_to_type_names_the_model_by_its_id(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    out = said(words, capsys)
    assert "vllm serve meta-llama/Llama-3.1-8B-Instruct " in out
    assert "serve llama-3.1-8b" not in out.replace("asked as: vramcast plan serve llama-3.1-8b", "")


def test_a_ladder_names_what_each_rung_adds(capsys: pytest.CaptureFixture[str]) -> None:
    out = said(["serve", "Qwen/Qwen2.5-7B-Instruct", "--gpu", "4090", "--best", "context"], capsys)
    rungs = [line for line in out.splitlines() if " tokens  " in line]
    assert rungs[0].endswith("as asked") and all("  and -" in line or "  or -" in line for line in rungs[1:])


def test_users_are_sequences_at_once() -> None:
    four = answer_serving(serving_question("Qwen/Qwen2.5-7B-Instruct", flags=["--users", "4"], gpu="H100", context=4096))
    assert four.workload["concurrency"] == 4


def test_a_task_that_is_typed_as_the_method_is_one_for_the_cards_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert "What would hold it" in said(["train", "Qwen/Qwen3-8B", "--method", "grpo"], capsys)


@pytest.mark.parametrize("spelling", ["--num-generations", "--num_generations"])
def test_flags_of_trl_are_its_settings(spelling: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "Qwen/Qwen2.5-7B", "--method", "grpo", "--gpu", "H100x8", spelling, "8"]
    assert "TRL" in said(words, capsys, code=1)
    assert "beside --from" in said([*words, "--from", "x.yaml"], capsys, code=2)


def test_a_throughput_of_all_cards_told_for_one_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["utilization", "meta-llama/Llama-3.1-8B", "--gpu", "H100x8", "--tokens-per-second", "100000", "--seq", "4096"]
    assert "if the figure is that of all 8 cards, it is 65.0%" in said(words, capsys)


def test_two_cards_are_told_apart_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    out = said(["gpus", "A6000", "4090"], capsys)
    assert "1.31 times the tokens/s of one user (bandwidth decides)" in out and "1.07 times" in out


def _changes(model: str, **words: str) -> list[tuple[str, str]]:
    answer = answer_serving(serving_question(model, **words))  # type: ignore[arg-type]
    return [(advice.change, advice.then_verdict) for advice in answer.advice]


def test_another_program_comes_before_weights_read_over_pcie() -> None:
    changes = [change for change, _ in _changes("openai/gpt-oss-20b", gpu="4080")]
    assert changes[0].startswith("--engine llama.cpp --quant MXFP4_MOE")
    assert any("--cpu-offload-gb" in change for change in changes[1:])


@pytest.mark.parametrize(
    ("model", "gpu", "how"),
    [
        ("Qwen/Qwen2.5-14B-Instruct", "3060", "--engine llama.cpp --quant Q4_K_M -c 8192"),
        ("meta-llama/Llama-3.1-70B", "4090", "--engine llama.cpp --quant Q4_K_M -c 8192 -ngl 40"),
    ],
)
def test_a_card_too_small_is_sent_to_a_shorter_context_or_to_the_cpu(model: str, gpu: str, how: str) -> None:
    assert (how, "fits") in _changes(model, gpu=gpu)
    flags = how.removeprefix("--engine llama.cpp --quant Q4_K_M ").split()
    again = answer_serving(serving_question(model, gpu=gpu, engine="llama.cpp", quant="Q4_K_M", flags=flags))
    assert again.fit.verdict == "fits"


def test_a_32b_on_one_24_gb_card_is_trained_as_people_do() -> None:
    answer = answer_training(training_question("Qwen/Qwen2.5-32B", gpu="4090", method="lora"))
    first = answer.advice[0]
    assert (first.change, first.then_verdict) == ("--framework unsloth --method qlora --rank 16", "tight")
    again = training_question("Qwen/Qwen2.5-32B", gpu="4090", method="qlora", rank=16, framework="unsloth")
    assert answer_training(again).fit.verdict == "tight"


def test_an_encoder_is_bounded_by_the_engine_and_not_by_a_cache_it_has_not() -> None:
    answer = answer_serving(serving_question("BAAI/bge-m3", gpu="T4"))
    assert (answer.limits.max_concurrency, answer.limits.cache_tokens) == (256, None)


def test_what_was_run_may_stand_behind_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["explain", "ValueError: No available memory for the cache blocks.", "--gpu", "3090"]
    out = said([*words, "--", "vllm", "serve", "Qwen/Qwen3-32B-AWQ"], capsys)
    assert "The same run, asked again" in out and "Corrected" in out and "vllm serve Qwen/Qwen3-32B-AWQ" in out
