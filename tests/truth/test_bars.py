"""Bars of answers: the exact part stays, the measured part carries the spread of its kind."""

import math
from collections.abc import Iterator

import msgspec
import pytest

from vramcast.hardware.cards import find_accelerator
from vramcast.models.reading import read_model
from vramcast.serving.engines.base import answer_of
from vramcast.training.forecast import forecast_training
from vramcast.truth import bars, scales
from vramcast.truth.bars import Cell
from vramcast.truth.judgement import Pair
from vramcast.truth.scoring import in_its_unit
from vramcast.truth.steps import certain_bytes, step_scale, training_spread
from vramcast.units import GiB
from vramcast.workload import Parallel, Serving, Training

CELL = Cell(low=0.9, high=1.2, quantiles=(0.8, 0.9, 0.92, 0.98, 1.0, 1.02, 1.08, 1.1, 1.2), cases=30, sources=3)


@pytest.fixture(autouse=True)
def _nothing_remembered() -> Iterator[None]:
    bars.forget()
    yield
    bars._cell_of.cache_clear()


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = {f"{measure}|*|*|*": CELL for measure in ("overhead", "allocated", "compute_buffer", "device")}
    cells["device_of_a_step|*|*|*"] = msgspec.structs.replace(
        CELL, low=-0.9, quantiles=(-2, -0.9, -0.5, -0.2, 0, 0.2, 0.8, 1.1, 1.2)
    )
    monkeypatch.setattr(bars, "_table", lambda: cells)


def test_weights_and_a_requested_cache_are_exact(table: None) -> None:
    answer = answer_of(Serving(model="Qwen/Qwen2.5-7B-Instruct", gpu="RTX 4090", engine="vllm", context=8192))
    rank = answer.ranks[0]
    bar = bars.serving_spread(answer, rank).interval()
    beside = bars.overhead_bytes(answer, rank)
    exact = rank.needed_bytes - beside
    assert bar is not None and bar.cases == 30
    scale = scales.error_scale(beside, 14.25 * GiB)
    assert bar.high_bytes - exact == pytest.approx(beside + 1.2 * scale, rel=1e-4)
    assert bar.low_bytes - exact == pytest.approx(beside + 0.9 * scale, rel=1e-4)


def test_graphs_err_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of a GiB and half of the forecast: a bar of graphs of 0.1 GiB adds 0.15 GiB, and not a multiple of a tenth."""
    assert scales.graphs_scale(0.1 * GiB) == pytest.approx(0.15 * GiB)
    cell = Cell(low=-1.0, high=2.0, quantiles=(-1.5, -1, -0.8, -0.2, 0.0, 0.2, 1.5, 2.0, 2.5), cases=30, sources=3)
    monkeypatch.setattr(bars, "_table", lambda: {"graphs|*|*|*": cell})
    bar = bars.interval_for("graphs", 0.1 * GiB, {"engine": "vllm"}, scales.graphs_scale(0.1 * GiB))
    assert bar is not None
    assert (bar.low, bar.high) == pytest.approx((0, 0.4 * GiB)), "no graphs are smaller than none"
    assert bars.interval_for("graphs", 0.1 * GiB, {"engine": "vllm"}) is None, "without its unit it has no bar"


def test_an_overhead_errs_by_bytes_and_the_pool_by_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of a GiB, a fifth of the overhead and a fiftieth of the weights: 2 GiB beside 10 GiB of weights err by 0.85."""
    assert scales.error_scale(2 * GiB, 10 * GiB) == pytest.approx(0.85 * GiB)
    cell = Cell(low=-1.0, high=2.0, quantiles=(-1.5, -1, -0.8, -0.2, 0.0, 0.2, 1.5, 2.0, 2.5), cases=30, sources=3)
    monkeypatch.setattr(bars, "_table", lambda: {"overhead|*|*|*": cell, "kv_pool|*|*|*": cell})
    wide = bars.interval_for("overhead", 2 * GiB, {"engine": "vllm"}, 0.85 * GiB)
    assert wide is not None
    assert (wide.low, wide.high) == pytest.approx((1.15 * GiB, 3.7 * GiB))
    small = bars.interval_for("kv_pool", 0.5 * GiB, {"engine": "vllm"}, 0.85 * GiB)
    assert small is not None
    assert (small.low, small.high) == pytest.approx((0, 2.2 * GiB)), "no pool is smaller than none"
    assert bars.interval_for("kv_pool", 0.5 * GiB, {"engine": "vllm"}) is None, "without its scale it has no bar"
    assert bars.probability_fits("overhead", 2 * GiB, 2 * GiB, {"engine": "vllm"}, 0.85 * GiB) == pytest.approx(0.5)


def test_a_dense_model_of_text_has_looks_of_its_own_in_bytes() -> None:
    dense, seeing = ({"engine": "sglang", "family": "x", "kind": kind} for kind in ("dense", "vlm"))
    assert bars.first_look_names(bars.Combination.of("overhead", dense))[0] == "first|overhead|plain|new"
    assert bars.first_look_names(bars.Combination.of("kv_pool", seeing))[0] == "first|kv_pool|*|new"
    assert bars.first_look_names(bars.Combination.of("weights", dense))[0] == "first|weights|sglang|new"


def test_training_is_barred_whole(table: None) -> None:
    model = read_model("Qwen/Qwen2.5-0.5B")
    answer = forecast_training(Training(model=model.id, framework="torchtune"), model=model)
    needed, certain = answer.worst.needed_bytes, certain_bytes(answer.worst)
    bar = training_spread(answer, answer.worst).interval()
    assert bar is not None
    scale = 0.25 * GiB + (needed - certain) / 10 + certain / 20
    assert (bar.low_bytes, bar.high_bytes) == pytest.approx((needed - 0.9 * scale, needed + 1.2 * scale), abs=1)
    assert bar.low_bytes > certain


def test_the_chance_of_fitting_follows_the_cases(table: None) -> None:
    spread = bars.Spread(measure="allocated", exact_bytes=500, uncertain_bytes=1000, keys={"engine": "vllm"})
    assert spread.chance_within(1500) == pytest.approx(0.5)
    assert (spread.chance_within(1699) or 1) < 0.95 <= (spread.chance_within(1701) or 0), "the bar's end: 5 % lie beyond it"
    assert 0.9 <= (spread.chance_within(1600) or 0) < 0.95, "within the quantiles of cases, not yet within the bar"
    assert spread.chance_within(400) == pytest.approx(0.005)


@pytest.mark.parametrize(
    ("model", "kinds"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", {"dense"}),
        ("deepseek-ai/DeepSeek-V3", {"moe", "mla"}),
        ("google/gemma-2-9b-it", {"swa"}),
        ("Qwen/Qwen2.5-VL-7B-Instruct", {"vlm"}),
    ],
)
def test_kinds_of_models(model: str, kinds: set[str]) -> None:
    assert kinds <= set(bars.model_keys(read_model(model))["kind"].split("+"))


def test_no_case_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bars, "_table", dict)
    answer = answer_of(Serving(model="Qwen/Qwen2.5-7B-Instruct", engine="transformers", context=1024))
    assert bars.serving_spread(answer, answer.ranks[0]).interval() is None


def test_shared_memory_and_other_vendors_have_cases_of_their_own() -> None:
    assert bars.platform_key(find_accelerator("H100")) == bars.platform_key(None) == {}
    assert bars.platform_key(find_accelerator("GB10")) == bars.platform_key(find_accelerator("MI300X")) == {"platform": "other"}
    names = list(bars.cell_names("overhead", {"engine": "vllm", "platform": "other"}))
    assert names == ["overhead|vllm@other|*|*", "overhead|*@other|*|*"]


def test_classes_stored_alike_come_before_the_engine() -> None:
    names = list(bars.cell_names("overhead", {"engine": "vllm", "kind": "moe", "quant": "none"}))
    assert names == ["overhead|vllm|*|moe, 16-bit", "overhead|vllm|*|16-bit", "overhead|vllm|*|*", "overhead|*|*|*"]


@pytest.mark.parametrize("engine", ["llama_cpp", "ollama"])
def test_of_a_file_s_run_the_compute_buffer_alone_is_uncertain(table: None, engine: str) -> None:
    question = Serving(model="Qwen/Qwen2.5-7B-Instruct", gpu="RTX 4090", engine=engine, quant="Q4_K_M", context=8192)
    answer = answer_of(question)
    rank = answer.ranks[0]
    bar = bars.serving_spread(answer, rank).interval()
    assert bar is not None
    assert bar.high_bytes - bar.low_bytes < 0.2 * rank.needed_bytes


def test_slack_widens_both_sides_and_draws_the_verdict_to_the_middle(table: None) -> None:
    """Independent errors add as squares: 200 up and 1,000 of slack are 1,020 up."""
    plain = bars.Spread(measure="device", exact_bytes=0, uncertain_bytes=1000, keys={"engine": "trl"})
    loose = bars.Spread(measure="device", exact_bytes=0, uncertain_bytes=1000, keys={"engine": "trl"}, slack_bytes=1000)
    bar = loose.interval()
    assert bar is not None
    assert bar.high == pytest.approx(1000 + math.hypot(200, 1000), abs=1)
    assert bar.low == pytest.approx(1000 - math.hypot(100, 1000), abs=1)
    for room in (900, 1150):
        near, far = loose.chance_within(room), plain.chance_within(room)
        assert near is not None
        assert far is not None
        assert abs(near - 0.5) < abs(far - 0.5)


def test_a_factor_of_few_cases_widens_the_bar_of_its_release_alone(table: None) -> None:
    """vLLM 0.6.5 on two cards rests on one start: 45 % of 0.39 GiB; 0.19 on one card on 24, whose cell holds what they miss."""
    slack = {}
    for version, tp in (("0.6.5", 2), ("0.19", 2), ("0.19", 1)):
        question = Serving(
            model="Qwen/Qwen2.5-7B-Instruct", gpu="H100", gpus=tp, parallel=Parallel(tp=tp), engine_version=version
        )
        answer = answer_of(question)
        spread = bars.serving_spread(answer, answer.ranks[0])
        slack[version, tp] = spread.slack_bytes / 2**30
        wide, plain = spread.interval(), msgspec.structs.replace(spread, slack_bytes=0).interval()
        assert (wide.high - wide.low > plain.high - plain.low) is bool(slack[version, tp])
    assert slack["0.6.5", 2] == pytest.approx(0.455 * 0.39, rel=0.01)
    assert slack["0.19", 2] == pytest.approx(0.455 * 2.10 / 4, rel=0.01)
    assert slack["0.19", 1] == 0


def test_what_the_layers_traces_were_off_by_is_slack(table: None) -> None:
    """A class whose layers were traced within nothing has the plain bar; one that nobody traced a wider one."""
    spreads = {}
    for name in ("Qwen/Qwen2.5-0.5B", "internlm/internlm2-1_8b"):
        model = read_model(name)
        answer = forecast_training(Training(model=name, framework="hf_trainer", micro_batch=4), model=model)
        spreads[name] = training_spread(answer, answer.worst).slack_bytes / answer.worst.needed_bytes
    assert spreads["Qwen/Qwen2.5-0.5B"] < 0.001 < 0.03 < spreads["internlm/internlm2-1_8b"]


def test_no_bar_of_a_step_reaches_below_its_states(table: None) -> None:
    """A 7B's weights, gradients and moments are 8 bytes a parameter: 50.2 GiB, whatever cases say of the rest."""
    model = read_model("meta-llama/Llama-2-7b-hf")
    answer = forecast_training(Training(model=model.id, framework="hf_trainer", micro_batch=1, seq=128), model=model)
    certain = certain_bytes(answer.worst)
    assert certain == 8 * 6_738_415_616
    bar = training_spread(answer, answer.worst).interval()
    assert bar is not None
    assert certain == bar.low_bytes < answer.worst.needed_bytes < bar.high_bytes
    spread = training_spread(answer, answer.worst)
    assert spread.chance_within(certain - 1) == pytest.approx(0.005)
    assert (spread.chance_within(answer.worst.needed_bytes) or 0) == pytest.approx(0.5)


def test_what_is_known_to_be_unknown_may_be_a_state(table: None) -> None:
    model = read_model("Qwen/Qwen2.5-0.5B")
    answer = forecast_training(Training(model=model.id, framework="hf_trainer"), model=model)
    novel = msgspec.structs.replace(answer, novel=True)
    assert training_spread(answer, answer.worst).certain_bytes == certain_bytes(answer.worst)
    assert training_spread(novel, answer.worst).certain_bytes == 0


def test_counters_of_a_step_have_cells_of_their_own() -> None:
    assert scales.bar_name("device", 0) == "device"
    assert scales.bar_name("device", 1.0) == "device_of_a_step"
    assert scales.bar_name("weights", 1.0) == "weights"
    assert step_scale(60 * GiB, 40 * GiB) == pytest.approx(4.25 * GiB)
    assert bars.first_look_names(bars.Combination.of("device_of_a_step", {"engine": "trl"}))[0] == "first|device_of_a_step|*|new"


def test_a_peak_of_a_kind_that_was_not_measured_errs_by_bytes() -> None:
    row = Pair(measure="activation", predicted=2 * GiB, measured=GiB)
    assert scales.bar_name("activation", scales.activation_scale(2 * GiB)) == "activation_of_a_new_kind"
    known = {"engine": "vllm", "family": "llama"}
    assert in_its_unit(row, known).scale == 0
    new = in_its_unit(row, {"engine": "vllm", "family": "nobody has measured it"})
    assert new.scale == pytest.approx(1.1 * GiB)
    interval = bars.interval_for("activation", 2 * GiB, {"engine": "vllm", "family": "?"}, scale=new.scale)
    assert interval is not None
    assert interval.high < 5 * GiB
