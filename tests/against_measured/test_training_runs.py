"""Measured training runs. Facts: published peaks of torch.cuda.max_memory_allocated, GiB, with their source."""

import json
import os
import re
import statistics
from functools import cache
from pathlib import Path

import pytest

from vramcast.training.forecast import forecast_training
from vramcast.training.shape import Shape, shape_model
from vramcast.truth.judgement import Judgement, Unexpressed
from vramcast.truth.rows.training import judge
from vramcast.units import GiB
from vramcast.workload import Adapter, Parallel, Training

MISTRAL = shape_model(Shape(layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=32000))
QKVO = Adapter(rank=16, targets=("q_proj", "k_proj", "v_proj", "o_proj"), dropout=0.1)
# (what, question, GiB): foundation-model-stack/fms-acceleration, scripts/benchmarks/refs, Mistral-7B, packed to 4096 tokens
RUNS = [
    ("full, batch 4: the foreach temporary", {"micro_batch": 4}, 67.46),
    ("full, batch 8: the same peak", {"micro_batch": 8}, 67.461),
    ("LoRA, batch 4: fp32 logits", {"micro_batch": 4, "method": "lora", "adapter": QKVO}, 24.871),
    ("LoRA, batch 8: fp32 logits", {"micro_batch": 8, "method": "lora", "adapter": QKVO}, 36.082),
    ("full, two cards", {"micro_batch": 2, "gpus": 2, "parallel": Parallel(dp=2), "fsdp": 1}, 33.738),
    (
        "LoRA, two cards: checkpoints and their gradients stay",
        {"micro_batch": 4, "method": "lora", "adapter": QKVO, "gpus": 2, "parallel": Parallel(dp=2), "fsdp": 1}
        | {"options": {"update": "foreach", "autocast": False}},  # the run had no automatic mixed precision
        20.452,
    ),
]


@pytest.mark.parametrize(("what", "changes", "measured"), RUNS, ids=[r[0] for r in RUNS])
def test_published_peaks_within_two_percent(what: str, changes: dict[str, object], measured: float) -> None:
    question = Training(
        **(
            {"model": "x", "framework_version": "4.48.1", "param_dtype": "bf16", "seq": 4096, "checkpointing": "full"}
            | {"options": {"update": "foreach"}}
            | changes
        )
    )
    predicted = forecast_training(question, model=MISTRAL).worst.allocated_bytes / GiB
    assert predicted == pytest.approx(measured, rel=0.02), what


# What each counter must reach: macro-average over sources of the median error, in %.
BUDGETS = {"allocated": 5.0, "reserved": 8.0, "device": 10.0}


def corpus(name: str) -> list[dict]:
    root = Path(os.environ.get("VRAMCAST_SHARED", Path(__file__).parents[2] / "../shared"))
    path = root / "truth" / name
    if not path.is_file():
        pytest.skip("the corpus of measured runs is not beside the checkout")
    return [json.loads(line) for line in path.read_text().splitlines()]


@cache
def judged_rows(name: str) -> list[tuple[dict, Judgement | None]]:
    """Every row of a corpus with its judgement, None for one that cannot be expressed; judged once for all tests here."""
    return [(row, _judged(row)) for row in corpus(name)]


def _judged(row: dict) -> Judgement | None:
    try:
        return judge(row)
    except Unexpressed:
        return None


@pytest.mark.shared
def test_every_counter_keeps_its_budget() -> None:
    errors: dict[tuple[str, str], list[float]] = {}
    for row, judged in judged_rows("training_memory.jsonl"):
        if row["quality"] == "C" or judged is None:
            continue
        source = re.match(r"(?:github.com/)?([\w.-]+/[\w.-]+)", row["source"])[1]
        for pair in judged.pairs:
            errors.setdefault((pair.measure, source), []).append(abs(pair.predicted / pair.measured - 1))
    for measure, budget in BUDGETS.items():
        medians = [statistics.median(e) for (m, s), e in errors.items() if m == measure]
        assert 100 * statistics.mean(medians) <= budget, (measure, medians)


@pytest.mark.shared
def test_runs_that_did_not_fit_are_called() -> None:
    called = [judged.fit_called if judged else "" for _, judged in judged_rows("training_oom.jsonl")]
    assert sum(c in ("no", "tight") for c in called) / len(called) >= 0.95


@pytest.mark.shared
def test_runs_that_did_fit_are_not_refused() -> None:
    called = [judged.fit_called for _, judged in judged_rows("training_memory.jsonl") if judged and judged.fit_called]
    assert called.count("no") / len(called) <= 0.03
