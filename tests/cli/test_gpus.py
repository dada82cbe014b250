"""``vramcast gpus``: the list in an order, one card, several side by side."""

import json

import pytest

from vramcast.cli import run


def test_cards_side_by_side_with_bits_ratios_and_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gpus", "A100-40G", "4090", "L40S"]) == 0
    page = capsys.readouterr().out
    lines = {line.strip().split("  ")[0]: line for line in page.splitlines() if line.strip()}
    assert "1,008  0.65x" in lines["bandwidth, GB/s"]
    assert lines["tf32 1+8+10 = 19"].split()[4] == "156.0"
    assert lines["FlashAttention 3"].split()[2:] == ["no", "no", "no"]
    assert lines["fp8 arithmetic"].split()[2:] == ["emulated", "yes", "yes"]
    assert max(len(line) for line in page.splitlines()) <= 80


def test_words_of_one_name_are_one_card(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gpus", "RTX", "4090"]) == 0
    assert capsys.readouterr().out.startswith("GeForce RTX 4090")


def test_the_list_is_sorted_with_the_unknown_last(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gpus", "--sort", "price", "--json"]) == 0
    prices = [card.get("price_usd", 0) for card in json.loads(capsys.readouterr().out)["gpus"]]
    known = [price for price in prices if price]
    assert known == sorted(known) and prices[: len(known)] == known and len(known) > 20
    assert run(["gpus", "H100", "B200", "--sort", "bf16", "--json"]) == 0
    cards = json.loads(capsys.readouterr().out)["gpus"]
    assert [card["name"] for card in cards] == ["B200", "H100 SXM5 80GB"]
    assert cards[0]["runs"]["nvfp4"] == "native" and cards[1]["runs"]["flash_attention_3"] == "native"


def test_the_list_fits_eighty_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gpus", "--sort", "bandwidth"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 150 and max(map(len, lines)) <= 80


def test_an_unknown_card_among_several_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gpus", "H100", "nonsense"]) == 2
    assert "unknown GPU 'nonsense'" in capsys.readouterr().err
