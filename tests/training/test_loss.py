"""torch.compile under transformers: what a layer saves, and what a fused loss may spare."""

import pytest

from vramcast import read_model
from vramcast.training.forecast import TrainingForecast, forecast_training
from vramcast.workload import Parallel, Training

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


def loss_of(moment: str, **changes: object) -> int:
    asked = {"framework": "torchtitan", "checkpointing": "full", "loss": "plain", "seq": 8192} | changes
    instant = next(i for i in ask(**asked).ranks[-1].instants if i.name == moment)
    return next(t.bytes for t in instant.terms if t.name == "loss")


def test_loss_parallel_holds_sixteen_bytes_a_local_logit_in_backward() -> None:
    local = 8192 * MODEL.vocab / 2
    cut = {"gpus": 2, "parallel": Parallel(tp=2)}
    assert loss_of("backward of the loss", **cut) == pytest.approx(16 * local, rel=0.05)
    whole = loss_of("backward of the loss", **cut, framework_version="2024.4")
    assert whole == pytest.approx((12 + 4) * 2 * local, rel=0.05)  # before it: the whole vocabulary, and pred held by the loop


def test_a_pipeline_s_last_stage_keeps_the_logits_of_earlier_micro_batches() -> None:
    piped = {"gpus": 2, "parallel": Parallel(pp=2), "accumulate": 4}
    logits = 8192 * MODEL.vocab * 4  # a pipeline alone computes in the type of its weights
    kept = loss_of("backward of the loss", **piped, framework_version="2025.10")
    freed = loss_of("backward of the loss", **piped, framework_version="2025.11")
    assert kept - freed == pytest.approx(3 * logits, rel=0.001)


@pytest.mark.parametrize(("accumulate", "zero", "outputs"), [(1, 0, 1), (2, 0, 2), (8, 0, 2), (8, None, 8)])
def test_deepspeed_s_last_stage_has_two_buffers_for_outputs(accumulate: int, zero: int | None, outputs: int) -> None:
    """Its own pipeline (a stage of ZeRO is told, 0 too); torch's keeps the logits of every micro-batch."""
    piped = {"framework": "pytorch", "gpus": 2, "parallel": Parallel(pp=2), "param_dtype": "float32"}
    logits = 8192 * MODEL.vocab * 4
    one = loss_of("backward of the loss", **piped, zero=zero, accumulate=1)
    assert loss_of("backward of the loss", **piped, zero=zero, accumulate=accumulate) - one == pytest.approx(
        (outputs - 1) * logits, rel=0.001, abs=1
    )


@pytest.mark.parametrize(("weights", "each"), [("bfloat16", 2 + 4), ("float32", 4)])
def test_logits_that_become_their_gradient_are_copied_to_float_where_they_are_not(weights: str, each: int) -> None:
    """accelerate utils/operations.py, convert_outputs_to_fp32: 16-bit logits get a float copy; hidden states stand beside."""
    unsloth = {"framework": "unsloth", "framework_version": "2024.10", "loss": None}
    held = loss_of("loss", **unsloth, param_dtype=weights, compute_dtype=weights)
    assert held == pytest.approx(8192 * MODEL.vocab * each, rel=0.04)
