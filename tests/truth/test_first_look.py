"""Bars from first looks hold groups they were not made from, tell the measured from the new, and refuse to speak for too few."""

import math
import random
from pathlib import Path

import msgspec
import pytest

from vramcast.errors import QuestionError
from vramcast.truth import bars
from vramcast.truth.bars import Cell, Combination, cell_in
from vramcast.truth.first_look import FEWEST_GROUPS, Look, add_looks, held_groups, looked_cells, read_looks
from vramcast.truth.judgement import Judgement, Pair
from vramcast.truth.scoring import points_of

LOOKS = Path(__file__).parents[2] / "truth" / "first_look.jsonl"


def look(ratio: float, group: int, *, seen: bool = True, measure: str = "weights", engine: str = "vllm") -> Look:
    return Look(look=1, commit="0", measure=measure, engine=engine, ratio=ratio, source=f"s{group}", group=f"g{group}", seen=seen)


def drawn(groups: int, *, seed: int, between: float = 0.06, within: float = 0.02, seen: bool = True) -> list[Look]:
    rng = random.Random(seed)
    centres = [rng.gauss(0, between) for _ in range(groups)]
    return [
        look(math.exp(rng.gauss(centre, within)), g, seen=seen)
        for g, centre in enumerate(centres)
        for _ in range(rng.choice((1, 2, 15)))
    ]


@pytest.mark.parametrize("seed", range(4))
def test_bars_hold_about_nine_of_ten_new_groups(seed: int) -> None:
    cell = looked_cells(drawn(30, seed=seed))["first|weights|*|seen"]
    fresh = drawn(400, seed=100 + seed)
    by_group: dict[str, list[bool]] = {}
    for one in fresh:
        by_group.setdefault(one.group, []).append(cell.low <= one.ratio <= cell.high)
    share = sum(sum(held) / len(held) for held in by_group.values()) / len(by_group)
    assert 0.8 <= share <= 0.99


def test_a_group_of_many_rows_weighs_as_one() -> None:
    cases = [look(1.0 + g / 1000, g) for g in range(40)] + [look(2.0, 99) for _ in range(500)]
    cell = looked_cells(cases)["first|weights|*|seen"]
    assert cell.high < 1.1
    assert (cell.cases, cell.groups) == (540, 41)


def test_fewer_than_nine_groups_make_no_cell() -> None:
    assert looked_cells([look(1.01, g) for g in range(FEWEST_GROUPS - 1)]) == {}
    assert "first|weights|vllm|seen" in looked_cells([look(1.01, g) for g in range(FEWEST_GROUPS)])


def test_measured_and_new_combinations_have_bars_of_their_own() -> None:
    cells = looked_cells(
        [look(1.0 + g / 1e4, g) for g in range(12)] + [look(1.0 + g / 20, 50 + g, seen=False) for g in range(12)]
    )
    assert cells["first|weights|*|seen"].high < 1.01 < cells["first|weights|*|new"].high


@pytest.mark.parametrize(
    ("keys", "seen"),
    [
        ({"engine": "vLLM", "family": "llama"}, True),
        ({"engine": "vllm", "family": "never_met"}, False),
        ({"engine": "vllm", "family": "llama", "novel": "yes"}, False),
        ({"engine": "vllm", "family": "llama", "platform": "other"}, False),
        ({"engine": "vllm"}, False),
    ],
)
def test_what_is_known_to_be_unknown_was_not_seen(monkeypatch, keys, seen) -> None:
    monkeypatch.setattr(bars, "_combinations", lambda: {"vllm": frozenset({"llama"})})
    assert Combination.of("weights", keys).seen is seen


def test_an_engine_less_certain_than_the_others_keeps_its_own_spread() -> None:
    flat = dict.fromkeys(("cases", "sources"), 30)
    table = {
        "first|reserved|*|*": Cell(low=0.9, high=1.1, quantiles=(0.9,) * 4 + (1.0,) + (1.1,) * 4, groups=20, **flat),
        "reserved|unsloth|*|*": Cell(low=0.4, high=1.05, quantiles=(0.4,) * 4 + (0.9,) + (1.05,) * 4, **flat),
        "reserved|*|*|*": Cell(low=0.1, high=9.0, quantiles=(0.1,) * 4 + (1.0,) + (9.0,) * 4, **flat),
    }
    own = cell_in(table, "reserved", {"engine": "unsloth"})
    assert (own.low, own.high, own.quantiles[0], own.quantiles[-1]) == (0.4, 1.1, 0.4, 1.1)
    assert cell_in(table, "reserved", {"engine": "other"}) == table["first|reserved|*|*"]


def test_the_committed_looks_hold_what_the_page_promises() -> None:
    held = held_groups(read_looks(LOOKS))
    for measure in ("weights", "allocated", "device_of_a_step", "reserved_of_a_step", "kv_pool"):
        groups = held[measure, True]
        assert sum(g.share for g in groups) / len(groups) >= 0.85, measure
    widest = {"weights": 0.30, "allocated": 0.63, "device_of_a_step": 0.65, "reserved_of_a_step": 0.67}
    for measure, most in widest.items():
        widths = sorted(g.width for g in held[measure, True])
        assert widths[len(widths) // 2] <= most, measure


def test_a_step_s_looks_speak_in_bytes_and_a_server_s_as_a_factor() -> None:
    step = [
        Look(look=1, commit="0", measure="device", engine="trl", ratio=1 + g / 100, source=f"s{g}", group=f"g{g}", seen=True,
             predicted=100, scale=10, certain=90)
        for g in range(12)
    ]  # fmt: skip
    cells = looked_cells([*step, *(look(1.0 + g / 1000, 40 + g, measure="device") for g in range(12))])
    assert cells["first|device_of_a_step|*|seen"].high == pytest.approx(1.1, abs=0.03)
    assert cells["first|device|*|seen"].low >= 1.0


def test_looks_are_added_and_never_changed(tmp_path) -> None:
    pair = Pair(measure="weights", predicted=100, measured=104)
    judged = Judgement(id="1", keys={"engine": "vllm", "family": "llama", "source": "a/b"}, pairs=(pair,))
    path = tmp_path / "looks.jsonl"
    assert add_looks(path, points_of([judged])) == 1
    first = path.read_bytes()
    assert add_looks(path, points_of([judged])) == 1
    assert path.read_bytes().startswith(first)
    assert [one.look for one in read_looks(path)] == [1, 2]
    assert read_looks(path)[0].ratio == 1.04


def test_a_damaged_line_is_named(tmp_path) -> None:
    path = tmp_path / "looks.jsonl"
    path.write_bytes(msgspec.json.encode(look(1.0, 1)) + b'\n{"look": 1}\n')
    with pytest.raises(QuestionError, match="line 2 is no first look"):
        read_looks(path)
