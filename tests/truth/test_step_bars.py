"""The bar of a training step: wider for what is not known, and no narrower than first looks were off."""

import json
import math
from pathlib import Path

import pytest

from vramcast.hardware.cards import find_accelerator
from vramcast.models.reading import read_model
from vramcast.speed.training.job import Job
from vramcast.speed.training.step import step_time
from vramcast.speed.training.unknowns import Unknown, unknowns
from vramcast.truth.bars import COVERAGE
from vramcast.truth.first_look import Look, read_looks
from vramcast.truth.step_bars import step_bars, step_interval

TRUTH = Path(__file__).parents[2] / "truth"
EVERY = tuple(Unknown(what=what, share=1.0, because="") for what in ("experts", "launches", "few_runs"))


def _unknown(model: str, card: str, **changed: object) -> dict[str, float]:
    settings = {"seq": 4096, "rows": 2, "micro_batches": 4, "gpus": 8, "dp": 8, "shards": 8, "framework": "megatron"} | changed
    found, accelerator = read_model(model), find_accelerator(card)
    speed = step_time(Job(sharding="distributed_optimizer", **settings), found, accelerator)
    return {one.what: one.share for one in unknowns(speed, found, accelerator)}


def test_a_dense_model_of_a_measured_kind_has_nothing_unknown() -> None:
    assert _unknown("meta-llama/Llama-3.1-8B", "H100") == {}


def test_what_is_not_known_is_named() -> None:
    assert _unknown("Qwen/Qwen3-30B-A3B", "H100", ep=8)["experts"] == 1.0
    assert _unknown("meta-llama/Llama-3.1-8B", "RTX 4090", framework="hf_trainer").keys() == {"few_runs"}
    short = _unknown("meta-llama/Llama-3.1-8B", "H100", seq=128, rows=1)
    assert 0.5 < short["launches"] <= 1.0, "128 tokens are launched for longer than they run"


@pytest.mark.parametrize("one", EVERY, ids=lambda one: one.what)
def test_each_unknown_widens_the_bar(one: Unknown) -> None:
    plain, wider, widest = (step_interval(1.0, found) for found in ((), (one,), EVERY))
    assert plain.coverage == COVERAGE
    assert widest.low < wider.low < plain.low < 1 < plain.high < wider.high < widest.high


def test_half_an_unknown_widens_by_less() -> None:
    half = Unknown(what="experts", share=0.5, because="")
    assert step_bars().base < step_bars().unit([half]) < step_bars().unit(EVERY[:1])


def test_every_look_of_a_step_has_its_row() -> None:
    looks: list[Look] = [look for look in read_looks(TRUTH / "speed_first_look.jsonl") if look.measure == "step_s"]
    rows = json.loads((TRUTH / "step_look_rows.json").read_text())
    assert len(rows) == len([look for look in looks if not look.id])
    assert len(looks) == step_bars().cases
    assert len({look.group for look in looks}) == step_bars().groups


def test_the_widest_bar_holds_nine_of_ten_looks_and_the_narrowest_does_not() -> None:
    looks = [look.ratio for look in read_looks(TRUTH / "speed_first_look.jsonl") if look.measure == "step_s"]
    widest, plain = (step_interval(1.0, found) for found in (EVERY, ()))
    assert sum(widest.low <= ratio <= widest.high for ratio in looks) >= COVERAGE * len(looks)
    assert sum(plain.low <= ratio <= plain.high for ratio in looks) < COVERAGE * len(looks)
    assert math.log(plain.high / plain.low) < 0.9
