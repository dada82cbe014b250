"""torch.compile under transformers: what a layer saves, and what a fused loss may spare."""

import pytest

from vramcast import read_model
from vramcast.training.forecast import TrainingForecast, forecast_training
from vramcast.workload import Training

MODEL = read_model("meta-llama/Llama-3.2-1B", offline=True)
TRACED = 4.71 * 2**30  # `vramcast trace meta-llama/Llama-3.2-1B --framework pytorch --compile --seq 4096`: saved by its layers


def ask(**changes: object) -> TrainingForecast:
    return forecast_training(Training(**({"model": "x", "framework": "pytorch", "seq": 4096} | changes)), model=MODEL)


def test_compiled_layers_save_what_the_partitioner_leaves() -> None:
    forward = next(i for i in ask(compile=True).worst.instants if i.name == "loss")
    assert next(t.bytes for t in forward.terms if t.name == "activations") == pytest.approx(TRACED, rel=0.02)


def test_compiling_saves_memory_and_bounds_what_is_not_known() -> None:
    eager, compiled = ask(), ask(compile=True)
    assert compiled.worst.allocated_bytes < 0.95 * eager.worst.allocated_bytes
    (spared,) = compiled.unmodelled
    assert spared.what.startswith("torch.compile: float copies of the logits")
    assert 0 < (spared.bound_bytes or 0) < compiled.worst.allocated_bytes / 2
    assert eager.unmodelled == ()


def test_a_part_that_was_asked_for_stays() -> None:
    assert ask(compile=True, options={"glu": "eager"}).recipe.kernels.glu == "eager"
