"""Bars: the shortest range that holds its share, honest for rows and sources it was not made from."""

import math
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramcast.truth import bars
from vramcast.truth.bars import TABLE, Cell, cell_names, interval_for, kind_class, probability_fits, release
from vramcast.truth.calibration import Case, calibrate, centred_range, choose, encode, fold_of_row, held_out, shortest_range
from vramcast.truth.judgement import Judgement, Pair
from vramcast.truth.scoring import Point, points_of

KEYS = {"engine": "vllm", "version": "0.19.0", "kind": "moe+mla", "quant": "fp8", "source": "a/b"}


def points(ratios: list[float], *, sources: int = 4) -> list[Point]:
    return points_of(
        Judgement(
            id=str(i),
            keys={**KEYS, "source": f"a/{i % sources}"},
            pairs=(Pair(measure="total", predicted=1e9, measured=1e9 * ratio),),
        )
        for i, ratio in enumerate(ratios)
    )


@given(st.lists(st.floats(-1, 1), min_size=5, max_size=60))
def test_the_range_holds_its_share_and_none_is_shorter(values: list[float]) -> None:
    values.sort()
    low, high = shortest_range([Case(v, 1.0, "") for v in values], 0.9)
    needed = min(len(values), math.ceil(0.9 * (len(values) + 1) - 1e-9))
    assert sum(low <= v <= high for v in values) >= needed
    assert high - low == min(values[i + needed - 1] - values[i] for i in range(len(values) - needed + 1))


@given(st.lists(st.floats(-1, 1), min_size=5, max_size=60))
def test_the_centred_range_holds_its_share_around_the_median(values: list[float]) -> None:
    values.sort()
    low, high = centred_range([Case(v, 1.0, "") for v in values], 0.9)
    assert sum(low - 1e-12 <= v <= high + 1e-12 for v in values) >= min(len(values), math.ceil(0.9 * (len(values) + 1) - 1e-9))
    assert values[0] - 1e-12 <= (low + high) / 2 <= values[-1] + 1e-12


def test_bars_hold_nine_tenths_of_rows_they_were_not_made_from() -> None:
    rng = random.Random(7)
    figures = points([math.exp(rng.gauss(0.02, 0.05)) for _ in range(400)])
    held = held_out(figures, fold_of_row, choose(figures))["total"]
    assert 0.88 <= sum(bar.inside for bar in held) / len(held) <= 0.94


def test_engines_nobody_measured_get_a_bar_that_holds_sources_left_out() -> None:
    rng = random.Random(3)
    figures = points_of(
        Judgement(
            id=f"{source}-{i}",
            keys={"engine": f"e{source}", "source": f"a/{source}"},
            pairs=(Pair(measure="total", predicted=1e9, measured=1e9 * math.exp(shift + rng.gauss(0, 0.01))),),
        )
        for source, shift in enumerate([-0.2, -0.1, -0.05, 0.0, 0.05, 0.1, 0.2])
        for i in range(25)
    )
    choice = choose(figures)["total"]
    assert choice.unseen > choice.share
    alike = msgspec.structs.replace(choice, unseen=choice.share)
    wide, narrow = (calibrate(figures, {"total": c}) for c in (choice, alike))
    assert wide["total|*|*|*"].high - wide["total|*|*|*"].low > narrow["total|*|*|*"].high - narrow["total|*|*|*"].low
    assert wide["total|e6|*|*"] == narrow["total|e6|*|*"]


def test_a_large_source_does_not_set_the_bar_alone() -> None:
    figures = points_of(
        Judgement(id=str(i), keys={**KEYS, "source": source}, pairs=(Pair(measure="total", predicted=1e9, measured=measured),))
        for i, (source, measured) in enumerate([("a/big", 1e9)] * 100 + [("c/small", 1.2e9)] * 9)
    )
    assert calibrate(figures)["total|*|*|*"].high == pytest.approx(1.2, abs=1e-4)


def test_questions_take_the_finest_cell_that_has_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell(low=0.9, high=1.1, quantiles=(0.8, 0.9, 0.92, 0.98, 1.0, 1.02, 1.08, 1.1, 1.2), cases=30, sources=3)
    fine = msgspec.structs.replace(cell, low=0.99, high=1.01)
    table = {"total|*|*|*": cell, "total|vllm|0.19|mla, quantised": fine}
    monkeypatch.setattr(bars, "_table", lambda: table)
    assert interval_for("total", 1000, KEYS).low_bytes == 990
    assert interval_for("total", 1000, {"engine": "sglang"}).high_bytes == 1100
    assert interval_for("unheard", 1000, KEYS) is None
    assert list(cell_names("total", KEYS))[-1] == "total|*|*|*"
    assert probability_fits("total", 1000, 1000, {"engine": "sglang"}) == pytest.approx(0.5)
    assert probability_fits("total", 1000, 1100, {"engine": "sglang"}) == pytest.approx(0.95)
    assert probability_fits("total", 1000, 500, {"engine": "sglang"}) == pytest.approx(0.005)
    assert probability_fits("total", 1000, 5000, {"engine": "sglang"}) == pytest.approx(0.995)


def test_classes_and_releases() -> None:
    assert kind_class(KEYS) == "mla, quantised"
    assert kind_class({"kind": "dense", "quant": "none (bf16/fp16/fp32)"}) == "dense, 16-bit"
    assert kind_class({"method": "qlora"}) == ""
    assert release("0.8.5.post1") == "0.8"
    assert release("torch 2.4.1, transformers 4.45") == ""


def test_the_committed_table_is_whole() -> None:
    table = msgspec.json.decode(TABLE.read_bytes(), type=dict[str, Cell])
    assert encode(table) == TABLE.read_bytes()
    for name, cell in table.items():
        assert cell.low <= cell.high and cell.cases >= 5, name
        assert list(cell.quantiles) == sorted(cell.quantiles), name
