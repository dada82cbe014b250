"""The page of every way: each row is the answer of the flags beside it, and the first line is the way that loses least."""

import json
import re
import shlex
from functools import cache

import pytest

from vramcast.asking.asked import answer_serving, answer_training
from vramcast.asking.ways import Way, Ways, ways_of
from vramcast.asking.which_models import models_for
from vramcast.cli import run


def _typed(ways: Ways, way: Way, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    command = "serve" if way.task == "run" else "train"
    run([command, ways.model.id, *shlex.split(f"{ways.gpu_flag} {way.flags}"), "--json"])
    answer: dict[str, object] = json.loads(capsys.readouterr().out)
    return answer


@pytest.mark.parametrize(("model", "gpu"), [("llama-3.1-8b", "4090"), ("qwen2.5 72b", "2x3090"), ("gpt-oss-20b", "t4")])
def test_every_row_is_what_its_flags_answer(
    model: str, gpu: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for half in ("serving", "training"):  # what to change instead takes ten times as long, and no row says it
        monkeypatch.setattr(f"vramcast.planning.{half}._advice", lambda *_: ())
        monkeypatch.setattr(f"vramcast.planning.{half}._cards", lambda *_: ())
    ways = ways_of(model, gpu=gpu)
    assert {way.task for way in (*ways.run, *ways.train)} == {"run", "train"}
    for way in (*ways.run, *ways.train):
        answer = _typed(ways, way, capsys)
        assert answer["fit"]["verdict"] == way.fit.verdict, way.flags  # type: ignore[index]
        worst = max(rank["needed_bytes"] for rank in answer["memory"]["per_gpu"])  # type: ignore[index]
        if "the CPU computes" in way.fit.error:  # the table tells what all of it needs, the answer what is on the card then
            assert worst <= way.needed_bytes, way.flags
            continue
        assert worst == way.needed_bytes, way.flags


def test_what_is_longest_fits_and_half_as_much_again_does_not() -> None:
    from vramcast.asking.serving import serving_question

    ways = ways_of("meta-llama/Llama-3.1-8B", gpu="4090", only="run")
    first = ways.run[0]
    assert first.longest and not ways.train
    for tokens, verdict in ((first.longest, True), (first.longest * 3 // 2, False)):
        answer = answer_serving(serving_question("meta-llama/Llama-3.1-8B", gpu="4090", context=tokens))
        assert (answer.fit.verdict == "fits") is verdict


def test_training_rows_of_several_cards_are_sharded() -> None:
    from vramcast.asking.training import training_question

    ways = ways_of("Qwen/Qwen2.5-7B", gpu="A100-80Gx4", only="train")
    full = ways.train[0]
    asked = training_question("Qwen/Qwen2.5-7B", gpu="A100-80Gx4", method="full", fsdp=2, checkpointing="full")
    assert answer_training(asked).worst.needed_bytes == full.needed_bytes
    assert "--fsdp 2" in full.flags


def test_weights_lose_bits_from_row_to_row_and_none_is_offered_that_saves_nothing() -> None:
    for model in ("meta-llama/Llama-3.1-8B", "deepseek-ai/DeepSeek-R1", "openai/gpt-oss-20b", "Qwen/Qwen3-32B-AWQ"):
        ways = ways_of(model, gpu="H200x8", only="run")
        for program in ("vLLM", "llama.cpp"):
            sizes = [way.weights_bytes for way in ways.run if way.program == program]
            assert sizes == sorted(set(sizes), reverse=True), model


def test_without_a_card_it_names_the_fewest_and_smallest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", "llama-3.1-8b"]) == 0
    out = capsys.readouterr().out
    assert "no card named" in out and "1 x L4" in out and "RUNS" not in out


def test_an_engine_that_does_not_start_says_why_and_the_other_is_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", "gemma-3-27b-it", "--gpu", "M4 Max 128GB"]) == 0
    out = capsys.readouterr().out
    assert "RUNS: Q8_0  llama.cpp" in out and "does not start" in out
    assert "vllm has no build for Apple GPU" in out and "QLoRA" not in out


def test_where_no_way_fits_the_exit_code_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", "deepseek-r1", "--gpu", "4090"]) == 1
    assert "RUNS: no" in capsys.readouterr().out


def test_the_object_holds_the_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", "llama-3.1-8b", "--gpu", "4090", "--users", "4", "--context", "4k", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["users"], found["context"]) == ("fit", 4, 4000)
    assert found["run"][0]["fit"]["verdict"] == "fits" and found["run"][0]["tokens_per_s"] > 10


@pytest.mark.parametrize(
    ("line", "error"),
    [("fit nosuchmodel", "unknown model"), ("fit llama-3.1-8b --gpu 49", "has no unit"), ("fit", "neither a model nor a card"),
     ("fit --gpu 3060 --context 0", "context"), ("fit --gpu nosuch", "unknown GPU"),
     ("fit llama-3.1-8b --gpu 4090 --users 0", "users")],
)  # fmt: skip
def test_bad_words_are_one_line(line: str, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line.split()) == 2
    assert error in capsys.readouterr().err


_ways_once, _models_once = cache(ways_of), cache(models_for)  # the same page is drawn for several widths


@pytest.mark.parametrize(
    ("columns", "words"),
    [("60", ["qwen2.5 72b", "--gpu", "2x3090"]), ("80", ["qwen2.5 72b", "--gpu", "2x3090"]),
     ("100", ["qwen2.5 72b", "--gpu", "2x3090"]), ("80", ["--gpu", "3060"]), ("100", ["--gpu", "3060"])],
)  # fmt: skip
def test_no_row_of_the_page_is_wider_than_the_terminal(
    columns: str, words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vramcast.asking.ways.ways_of", _ways_once)
    monkeypatch.setattr("vramcast.asking.which_models.models_for", _models_once)
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    run(["fit", *words])
    drawn = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert max(map(len, drawn.splitlines())) <= int(columns)


def test_a_program_that_shares_one_context_holds_that_of_every_user() -> None:
    alone, ten = (ways_of("meta-llama/Llama-2-13b-hf", gpu="A100-80G", only="run", users=users) for users in (1, 10))
    one, all_of_them = (next(way for way in found.run if way.how == "Q4_K_M") for found in (alone, ten))
    assert all_of_them.needed_bytes - one.needed_bytes > 8 * 4096 * 819_200  # bytes of a token in 16 bits
    assert "--context 40960 --concurrency 10" in all_of_them.flags


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("fit --gpu 3060 --seq 12", "--seq is the length that is trained on: say --only train beside it, or --context TOKENS"),
        ("fit qwen3-8b --only run --seq 512", "--seq is the length that is trained on"),
        ("fit --gpu 3060 --only train --users 3", "--users is of serving, and --only train asks for training alone"),
        ("fit qwen3-8b --only train --context 4k", "--context is of serving"),
    ],
)
def test_a_length_of_the_other_task_is_refused(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line.split()) == 2
    assert said in capsys.readouterr().err


def test_where_no_model_fits_the_smallest_and_a_shorter_length_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", "--gpu", "2GB", "--context", "1m"]) == 1
    said = capsys.readouterr().out
    assert "the smallest of them is " in said
    assert "vramcast fit --gpu 2.00GiB --context 8192" in said


@pytest.mark.parametrize("command", ["fit qwen3-8b --only run", "serve qwen3-8b"])
def test_cards_of_several_kinds_count_as_the_smallest(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    run([*command.split(), "--gpu", "3090, 3060"])
    assert "GeForce RTX 3060 12GB, GeForce RTX 3090: every card counts as a GeForce RTX 3060 12GB" in capsys.readouterr().out
