"""The plan's pages: 80 columns, one JSON object, exit codes, files ready to start."""

import json

import pytest

from vramcast.cli import run

SERVE = ["plan", "serve", "Qwen/Qwen2.5-7B-Instruct", "--gpu", "H100x2", "--gpu", "4090x4@0.4", "--users", "8", "--prompt", "1k"]
TRAIN = ["plan", "train", "meta-llama/Llama-3.1-8B", "--gpu", "H100x8", "--seq", "4096", "--batch", "64", "--tokens", "1B"]


def test_many_list_prices_are_one_line_and_few_are_told_each(capsys) -> None:
    run(["plan", "qwen2.5-7b", "--users", "2", "--prompt", "500", "--output", "100"])
    told = capsys.readouterr().out
    assert told.count("\n  price = ") == 1
    assert "price = the list prices of " in told
    run([*SERVE[:3], "--gpu", "H100", "--users", "2"])
    assert "list price of" in capsys.readouterr().out.split("Assumed")[1]


@pytest.mark.parametrize("line", [SERVE, [*TRAIN, "--framework", "torchtitan"]], ids=("serve", "train"))
def test_a_terminal_of_eighty_columns(line: list[str], capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert run(line) == 0
    shown = capsys.readouterr().out
    assert "Ranked by" in shown and "The fewest cards" in shown
    assert max(len(text) for text in _plain(shown).splitlines()) <= 80


def _plain(text: str) -> str:
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_one_json_object_of_serving(capsys) -> None:
    assert run([*SERVE, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    best = plan["ranked"][0]
    assert best["verdict"] == "fits" and best["command"].startswith(("vllm serve", "python -m sglang", "trtllm-serve"))
    assert "lost" in plan["ranked"][1] and plan["tried"] > 100


def test_one_json_object_of_training(capsys) -> None:
    assert run([*TRAIN, "--framework", "megatron", "--json"]) == 0
    best = json.loads(capsys.readouterr().out)["plan"]["ranked"][0]
    assert best["framework"] == "megatron" and best["days"] > 0 and best["usd"] > 0


def test_a_level_out_of_reach_is_exit_code_one(capsys) -> None:
    assert run([*SERVE, "--slo", "ttft=1us"]) == 1
    assert "OUT OF REACH" in capsys.readouterr().out


def test_emitted_alone_on_standard_output(capsys) -> None:
    assert run([*SERVE, "--engine", "vllm", "--emit", "compose"]) == 0
    assert "vllm/vllm-openai" in capsys.readouterr().out
    assert run([*TRAIN, "--emit", "megatron"]) == 0
    assert "--tensor-model-parallel-size" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--emit", "helm2"], "unknown --emit 'helm2'"),
        (["--users", "0"], "--users is 0"),
        (["--gpu", "H999"], "unknown GPU 'H999'"),
        (["--slo", "ttft=now"], "'now' is no time"),
    ],
)  # fmt: skip
def test_bad_words_are_one_line(more: list[str], message: str, capsys) -> None:
    assert run([*SERVE, *more]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


def test_which_card_for_a_training_with_what_it_costs(capsys) -> None:
    words = [
        "plan",
        "train",
        "Qwen/Qwen2.5-0.5B",
        "--gpu",
        "any",
        "--method",
        "lora",
        "--samples",
        "2k",
        "--by",
        "cost",
        "--json",
    ]
    assert run(words) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert len({offer["gpu"] for offer in plan["task"]["offers"]}) > 5
    assert all(offer["usd_per_hour"] for offer in plan["task"]["offers"])
    costs = [choice["usd"] for choice in plan["ranked"] if choice["verdict"] == "fits"]
    assert costs == sorted(costs) and costs[0] > 0
    assert run([*words[:-1]]) == 0
    told = capsys.readouterr().out
    assert "more time for a token" not in told or "-" not in told.split("more time for a token")[0].rsplit(":", 1)[1]


def test_a_card_without_a_price_is_said_in_both_plans(capsys) -> None:
    for line in (
        [*SERVE[:3], "--gpu", "H20", "--users", "2"],
        [*TRAIN[:3], "--gpu", "H20x8", *TRAIN[5:], "--framework", "megatron"],
    ):
        run([*line, "--json"])
        assumed = json.loads(capsys.readouterr().out)["assumed"]
        assert any(a["name"] == "price" and a["value"] == "unknown" and "@2.50" in a["because"] for a in assumed), line


@pytest.mark.parametrize("line", [SERVE, [*TRAIN, "--framework", "torchtitan"]], ids=("serve", "train"))
def test_python_shows_the_same_page_and_object(line: list[str], capsys, monkeypatch) -> None:
    import vramcast

    monkeypatch.setenv("COLUMNS", "100")
    _, task, model, *words = line
    given: dict[str, object] = {}
    for name, value in zip(words[::2], words[1::2], strict=True):
        key = name.removeprefix("--")
        given[key] = [*given.get(key, []), value] if key == "gpu" else value
    plan = vramcast.plan(task, model, **given)
    assert run(line) == 0
    assert capsys.readouterr().out == str(plan)
    assert run([*line, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"] == json.loads(json.dumps(plan.to_dict()["plan"]))
