"""``--best``: each rung gives more than the one before, its value surely fits, and one step more does not."""

import json

import msgspec
import pytest

from vramcast import cli
from vramcast.asking import serving_question
from vramcast.hardware.cards import least_card
from vramcast.models.reading import read_model
from vramcast.planning.core import core_of
from vramcast.planning.most import _instead, _told, most_of, with_most

ASKED = [
    ("Qwen/Qwen3-32B-AWQ", {"gpu": "4090"}, "context"),
    ("meta-llama/Llama-3.1-8B-Instruct", {"gpu": "3060"}, "context"),
    ("meta-llama/Llama-3.3-70B-Instruct", {"gpu": "H100x4", "context": "128K"}, "users"),
    ("google/gemma-3-27b-it", {"gpu": "3090", "engine": "llama.cpp", "quant": "Q4_K_M"}, "context"),
    ("Qwen/Qwen2.5-7B-Instruct", {"gpu": "4090", "engine": "sglang"}, "context"),
]


@pytest.mark.parametrize(("model", "words", "wanted"), ASKED, ids=lambda v: str(v)[:24])
def test_every_rung_is_the_edge_of_what_surely_fits(model, words, wanted) -> None:
    question = serving_question(model, **words).question
    card, facts = least_card(question.gpu), read_model(question.model)
    rungs = most_of(question, facts, card, wanted)
    values = [rung.value for rung in rungs]
    assert values == sorted(set(values)), "each gives more"
    step = {"llama_cpp": 256, "sglang": 1}.get(question.engine, 16)
    for rung in (r for r in rungs[-2:] if r.value):
        asked = with_most(rung, wanted)
        assert core_of(asked, model=facts, card=card)[1].verdict == "fits", rung.flags
        field = "context" if wanted == "context" else "concurrency"
        beyond = rung.value + (step if wanted == "context" else 1)
        if wanted == "users" or beyond <= (facts.positions or beyond):
            more = msgspec.structs.replace(asked, **{field: beyond})
            assert core_of(more, model=facts, card=card)[1].verdict != "fits", rung.flags


def test_slots_that_nobody_asked_for_make_room_for_users() -> None:
    question = serving_question("openai/gpt-oss-120b", gpu="H100", context="4096").question
    rungs = most_of(question, read_model(question.model), least_card(question.gpu), "users")
    assert "--max-num-seqs" in rungs[1].flags and rungs[1].value > rungs[0].value
    slots = int(rungs[-1].flags.split("--max-num-seqs ")[1].split()[0])
    assert rungs[-1].value <= slots


def test_the_page_ends_in_a_line_to_type_and_json_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["serve", "Qwen/Qwen3-32B-AWQ", "--gpu", "4090", "--best", "context"]
    assert cli.run(line) == 0
    page = capsys.readouterr().out
    assert cli.run([*line, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    best = told["rungs"][-1]
    assert f"{best['context_tokens']:,} tokens" in page
    assert f"--max-model-len {best['context_tokens']}" in told["command"]
    assert all(part.strip() in page for part in told["command"].splitlines())


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--best", "context"], 2, "needs the card"),
        (["--best", "users", "--gpu", "4090"], 2, "add --context"),
        (["--best", "users", "--gpu", "4090", "--engine", "llama.cpp", "--context", "4096"], 2, "shares one context"),
        (["--best", "speed", "--gpu", "4090"], 2, "'speed' is not one of"),
    ],
)
def test_what_cannot_be_answered_says_why(words, code, message, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["serve", "Qwen/Qwen2.5-7B-Instruct", *words]) == code
    assert message in capsys.readouterr().err


def test_a_flag_is_taken_word_for_word() -> None:
    flags = "--max-num-seqs 16 --kv-cache-dtype fp8"
    assert _told(flags, "--max-num-seqs 16") and not _told(flags, "--max-num-seqs 1")
    assert _instead(flags, "--max-num-seqs 16", "--max-num-seqs 128") == "--max-num-seqs 128 --kv-cache-dtype fp8"


def test_the_line_of_a_short_name_says_its_scheme(capsys: pytest.CaptureFixture[str]) -> None:
    """Qwen3-32B-AWQ is read as Qwen/Qwen3-32B in AWQ: a line without the scheme starts weights of 16 bits."""
    assert cli.run(["serve", "Qwen3-32B-AWQ", "--gpu", "4090", "--best", "context"]) == 0
    printed = capsys.readouterr().out
    assert "--quantization awq" in printed
    assert "with an upload of this model in awq" in printed
    assert cli.run(["serve", "Qwen/Qwen3-32B-AWQ", "--gpu", "4090", "--best", "context"]) == 0
    printed = capsys.readouterr().out
    assert "vllm serve Qwen/Qwen3-32B-AWQ" in printed
    assert "--quantization" not in printed
