"""``vramcast rules``: the folklore as a calculator; every formula it prints evaluates to its figure."""

import json

import pytest

from vramcast import cli
from vramcast.errors import QuestionError
from vramcast.hardware.cards import find_accelerator
from vramcast.quantity import evaluated
from vramcast.truth.folklore import entries
from vramcast.truth.folklore.calculator import RULES, reckon


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_every_formula_is_its_figure_and_a_model_gives_its_own_exact_answer(rule) -> None:
    card = find_accelerator("A100 SXM 80GB") if {"card_bytes", "peak_flops"} & set(rule.asks) else None
    found = reckon(rule.name, model="Qwen/Qwen2.5-7B-Instruct", card=card)
    assert found.said
    for line in found.said:
        assert evaluated(line.why) == pytest.approx(line.value, rel=1e-9), line.label
    assert found.of_reference is (rule.exact is None)
    assert found.exact
    assert found.why


def test_names_and_entries_are_one_to_one() -> None:
    known = {entry.id for entry in entries()}
    assert len({rule.name for rule in RULES}) == len({rule.entry for rule in RULES}) == len(RULES)
    assert {rule.entry for rule in RULES} <= known


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("16-bytes", {"parameters": 7e9}, (112e9, 140e9)),
        ("F5", {"tokens": 1024}, (512 * 2**20,)),
        ("two-n-flops", {"tokens": 1024}, (14_336e9, 14e9)),
        ("ttft-tpot", {"tokens": 1024}, (0.0552, 0.00929)),
        ("throughput-ratio", {"gpus": 4}, (1536, 0.4655)),
        ("two-widths", {"bytes_each": 1}, (989.86e6,)),
    ],
)
def test_the_articles_own_numbers_come_out(name: str, given: dict[str, float], said: tuple[float, ...]) -> None:
    assert [line.value for line in reckon(name, **given).said] == pytest.approx(said, rel=2e-3)


def test_a_model_brings_its_shape_and_grouped_heads_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["rules", "kv-cache", "meta-llama/Llama-3.1-8B", "--tokens", "8192", "--batch", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["said"][0]["value"] == 16 * 2**30
    assert found["exact"][0]["value"] == 4.0
    assert found["of_reference"] is False


def test_the_list_names_every_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["rules"]) == 0
    page = capsys.readouterr().out
    for rule in RULES:
        assert f" {rule.name} " in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "unknown rule 'nope'"),
        (["kv-cache", "--params", "7e9"], "the rule 'kv-cache' does not ask --params: it takes --hidden"),
        (["16-bytes", "--params", "x"], "is not a number"),
        (["16-bytes", "--params", "0"], "--params is 0"),
        (["--params", "7e9"], "which rule?"),
    ],
)
def test_a_wrong_question_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["rules", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(QuestionError, match="unknown model"):
        reckon("16-bytes", model="nomodel-at-all")
