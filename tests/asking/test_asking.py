"""The door below the command line: words, files and engine flags become the same question from Python and from a shell."""

from pathlib import Path

import pytest

import vramcast
from vramcast.asking import serving_question, training_question
from vramcast.asking.serving import ServingWords
from vramcast.asking.training import TrainingWords
from vramcast.cli.serve import command as serve_command
from vramcast.cli.train import command as train_command
from vramcast.errors import QuestionError
from vramcast.workload import Parallel, Serving, Training

QWEN = "Qwen/Qwen2.5-1.5B-Instruct"
SHOWN = {
    "best",
    "curve",
    "explain",
    "as_json",
    "list_options",
    "sweep",
    "plot",
    "axes",
}  # how an answer is shown is no part of the question


def test_what_the_command_line_can_ask_python_can_by_the_same_names() -> None:
    typed = {p.name for p in serve_command.params} - SHOWN
    assert typed == {*ServingWords.__annotations__, "model", "engine_flags", "files", "variables", "only"}
    typed = {p.name for p in train_command.params} - SHOWN
    assert typed == {*TrainingWords.__annotations__, "model", "files"}


def test_suffix_strings_and_engine_flags_ask_the_same_as_numbers_and_options() -> None:
    in_words = serving_question(QWEN, gpu="4090x2", context="32k", flags=["--max-num-seqs", "64", "-tp", "2"])
    in_numbers = serving_question(QWEN, gpu="4090x2", context=32_000, tp=2, options={"max_num_seqs": 64})
    assert in_words == in_numbers
    assert in_words.question.options == {"max_num_seqs": 64}
    assert serving_question(QWEN, options={"max_num_seqs": "64"}).question.options == {"max_num_seqs": 64}
    assert Serving(model=QWEN, context="32k").context == 32_000
    assert Training(model=QWEN, seq="8K").seq == 8192


def test_words_that_no_question_has_are_named_with_the_nearest() -> None:
    with pytest.raises(QuestionError, match="unknown serving word 'contxt': did you mean context"):
        serving_question(QWEN, contxt=4096)
    with pytest.raises(QuestionError, match="unknown training word 'microbatch': did you mean micro_batch"):
        training_question(QWEN, microbatch=4)
    with pytest.raises(QuestionError, match="--context 'long' is not a number"):
        serving_question(QWEN, context="long")


def test_cards_in_a_name_count_in_python_too() -> None:
    answer = vramcast.forecast(Serving(model=QWEN, gpu="4090x2", context=4096))
    assert (answer.workload["gpus"], answer.workload["parallel"]["tp"]) == (2, 2)
    assert answer == vramcast.serve(QWEN, gpu="4090x2", context=4096)
    with pytest.raises(QuestionError, match="names 2 cards and gpus is 3"):
        vramcast.forecast(Serving(model=QWEN, gpu="4090x2", gpus=3))


@pytest.mark.parametrize(("typed", "own"), [("llama.cpp", "llama_cpp"), ("VLLM", "vllm"), ("trt-llm", "tensorrt_llm")])
def test_a_question_takes_the_names_of_engines_that_people_type(typed: str, own: str) -> None:
    typed_bytes, own_bytes = (
        vramcast.forecast(Serving(model=QWEN, engine=name, gpu="H100", context=4096)).ranks[0].needed_bytes
        for name in (typed, own)
    )
    assert typed_bytes == own_bytes


def test_files_stand_under_words(tmp_path: Path) -> None:
    file = tmp_path / "ax.yml"
    file.write_text(
        "base_model: Qwen/Qwen2.5-1.5B-Instruct\nadapter: lora\nlora_r: 32\nsequence_len: 4096\nmicro_batch_size: 2\n"
    )
    asked = training_question(files=[file], gpu="4090", micro_batch=4)
    assert (asked.question.model, asked.question.seq, asked.question.micro_batch) == (QWEN, 4096, 4)
    assert asked.question.adapter is not None and asked.question.adapter.rank == 32
    assert {a.name: a.because for a in asked.assumed}["adapter.rank"] == "ax.yml: lora_r"


def test_a_typed_accumulation_wins_over_a_files_global_batch(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text(
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2 --hidden-size 256 --num-attention-heads 4 --vocab-size 1000 "
        "--seq-length 128 --max-position-embeddings 128 --micro-batch-size 1 --global-batch-size 64 --bf16\n"
    )
    assert training_question(files=[file]).question.accumulate == 8
    assert training_question(files=[file], micro_batch=2).question.accumulate == 4
    assert training_question(files=[file], accumulate=3).question.accumulate == 3


def test_layouts() -> None:
    asked = training_question(QWEN, gpu="H100x16", framework="megatron", tp=2, pp=2, sp=True)
    assert asked.question.parallel == Parallel(tp=2, pp=2, dp=4, sp=True)
    assert training_question(QWEN, gpu="H100x8", fsdp=2, shard=4).question.parallel.replicate == 2
    with pytest.raises(QuestionError, match="6 cards do not divide into tp 4"):
        training_question(QWEN, gpu="H100x6", tp=4)


def test_a_notebook_completes_names() -> None:
    assert {"serve", "train", "forecast", "Serving", "read_model"} <= set(dir(vramcast))
