"""Accuracy budgets: what the program reaches on the committed rows, asserted so that it only gets better.

A line is (engine or framework, measure, median error, p90 error), as fractions. Lower a number whenever a rule improves it.
"""

from types import ModuleType

import msgspec
import pytest

from vramcast.truth.calibration import Choice, fold_of_row, held_out
from vramcast.truth.evaluation import Evaluation
from vramcast.truth.scoring import fit

BUDGETS = [
    ("vllm", "weights", 0.0005, 0.014),
    ("vllm", "kv_per_token", 0.001, 0.002),
    ("vllm", "kv_pool", 0.003, 0.1),
    ("vllm", "overhead", 0.009, 0.46),
    ("vllm", "activation", 0.007, 0.025),
    ("transformers", "allocated", 0.006, 0.03),
    ("autoawq", "allocated", 0.02, 0.09),
    ("llama_cpp", "weights", 0.001, 0.001),
    ("llama_cpp", "kv_buffer", 0.0005, 0.001),
    ("llama_cpp", "model_buffer", 0.0005, 0.005),
    ("llama_cpp", "compute_buffer", 0.005, 0.12),
    ("llama_cpp", "total", 0.008, 0.02),
    ("ik_llama_cpp", "kv_buffer", 0.0005, 0.001),
    ("ik_llama_cpp", "model_buffer", 0.0005, 0.005),
    ("ik_llama_cpp", "compute_buffer", 0.005, 0.12),
    ("ik_llama_cpp", "weights", 0.0005, 0.001),
    ("torchtitan", "allocated", 0.03, 0.20),
    ("transformers", "reserved", 0.04, 0.15),
    ("unsloth", "reserved", 0.07, 0.07),
    ("fsdp_qlora", "reserved", 0.06, 0.18),
    ("trl", "allocated", 0.003, 0.015),
    ("trl", "device", 0.05, 0.1),
    ("hf_trainer", "allocated", 0.015, 0.035),
    ("torchtune", "allocated", 0.015, 0.06),
    ("litgpt", "allocated", 0.015, 0.07),
    ("megatron", "allocated", 0.035, 0.13),
    ("torchtitan", "reserved", 0.035, 0.14),
    ("peft_bench", "reserved", 0.06, 0.13),
    ("ms_swift", "reserved", 0.08, 0.26),
    ("qwen_finetune", "device", 0.03, 0.08),
    ("megatron_deepspeed", "device", 0.055, 0.1),
]


@pytest.mark.parametrize(("engine", "measure", "median", "p90"), BUDGETS, ids=str)
def test_errors_stay_within_budget(corpus: Evaluation, engine: str, measure: str, median: float, p90: float) -> None:
    score = next(s for s in corpus.scores() if s.group == f"engine={engine}" and s.measure == measure)
    assert score.median_error is not None and score.p90_error is not None
    assert score.median_error <= median
    assert score.p90_error <= p90


def test_runs_that_did_not_fit_are_called(corpus: Evaluation) -> None:
    counts = fit(corpus.judgements)
    assert counts["oom_called"] >= 0.95 * counts["oom"] > 90
    assert counts["false_no"] <= 0.03 * counts["ran"]


def test_almost_every_row_can_be_asked(corpus: Evaluation) -> None:
    assert len(corpus.judgements) >= 0.88 * corpus.rows


def test_bars_hold_what_they_promise(corpus: Evaluation) -> None:
    for score in corpus.scores():
        if score.group == "all" and score.n >= 30:
            assert score.interval_coverage is not None and score.interval_coverage >= 0.87, score.measure


def test_bars_hold_rows_they_were_not_made_from(corpus: Evaluation, writer: ModuleType) -> None:
    choices = msgspec.json.decode(writer.CHOICES.read_bytes(), type=dict[str, Choice])
    bars = held_out(list(corpus.points), fold_of_row, choices)
    inside = [bar.inside for held in bars.values() for bar in held]
    assert 0.87 <= sum(inside) / len(inside) <= 0.94


def test_no_row_breaks_a_converter(corpus: Evaluation) -> None:
    assert [row for row in corpus.unexpressed if row["reason"].startswith("the converter failed")] == []


def test_the_accuracy_page_is_current(corpus: Evaluation, writer: ModuleType) -> None:
    kept, now = (text.splitlines() for text in (writer.PAGE.read_text("utf-8"), writer.page(corpus)))
    if kept != now:  # pytest's own difference of two texts of this length takes a minute
        told = [line for line in now if line not in set(kept)][:5]
        pytest.fail("\n".join(["run: python truth/write_accuracy.py; now it says", *told]))


def test_the_picture_of_first_looks_is_current(writer: ModuleType) -> None:
    drawing = writer.draw_accuracy
    assert drawing.PICTURE.read_text("utf-8") == drawing.picture(), "run: python truth/draw_accuracy.py"
