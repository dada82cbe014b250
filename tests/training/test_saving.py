"""The moments beside a step: a checkpoint written, an evaluation run."""

import pytest

from vramcast.cli import run
from vramcast.training.forecast import TrainingForecast, forecast_training
from vramcast.training.shape import Shape, shape_model
from vramcast.workload import Parallel, Training

MODEL = shape_model(Shape(layers=8, hidden=1024, heads=16, ffn=4096, vocab=32000))
EMBEDDING = 32_000 * 1024
BLOCK = sum(t.elements for t in MODEL.blocks[0].tensors)


def answer(saves: str, *, ranks: int = 8, **question: object) -> TrainingForecast:
    options = {"saves": saves} if saves else {}
    asked = {"model": "x", "seq": 512, "gpus": ranks, "parallel": Parallel(dp=ranks), "options": options} | question
    return forecast_training(Training(**asked), model=MODEL)


def gathered(found: TrainingForecast) -> int:
    moment = next(i for i in found.worst.instants if i.name == "checkpoint save")
    return sum(t.bytes for t in moment.terms if t.name == "gathered")


def host(found: TrainingForecast) -> int:
    return next((t.bytes for t in found.host if t.name == "host_checkpoint"), 0)


def test_fsdp1_unshards_one_unit_inside_the_root_in_full_precision() -> None:
    question = {"framework": "accelerate", "fsdp": 1, "param_dtype": "float32"}
    found = answer("full", **question)
    assert gathered(found) == pytest.approx((BLOCK + 2 * EMBEDDING) * 4, rel=1e-6)
    assert host(found) == pytest.approx(8 * MODEL.parameters, rel=1e-3)  # two fp32 moments, written after the weights
    assert gathered(answer("device", **question)) == pytest.approx(4 * MODEL.parameters, rel=1e-6)
    assert host(answer("device", **question)) == 0


def test_fsdp2_gathers_tensor_after_tensor() -> None:
    assert gathered(answer("full", framework="torchtitan")) == EMBEDDING * 4


def test_zero_3_gathers_modules_in_16_bits_and_the_host_holds_all_of_them() -> None:
    found = answer("full", framework="deepspeed", zero=3)
    assert gathered(found) == EMBEDDING * 2
    assert host(found) == pytest.approx(2 * MODEL.parameters, rel=1e-6)


def test_below_zero_3_every_process_clones_its_weights() -> None:
    found = answer("full", framework="deepspeed", zero=1)
    assert (gathered(found), host(found)) == (0, 2 * MODEL.parameters)


def test_a_sharded_checkpoint_gathers_nothing_and_an_async_one_copies_its_share() -> None:
    question = {"framework": "torchtitan"}
    sharded, copied = answer("sharded", **question), answer("async", **question)
    assert (gathered(sharded), host(sharded), gathered(copied)) == (0, 0, 0)
    assert host(copied) == pytest.approx(12 * MODEL.parameters / 8, rel=1e-3)


def test_one_card_serialises_a_file_at_a_time() -> None:
    assert host(answer("full", ranks=1, param_dtype="bfloat16")) == 2 * MODEL.parameters


def test_nothing_is_saved_unless_asked() -> None:
    assert "checkpoint save" not in {i.name for i in answer("").worst.instants}
    with pytest.raises(Exception, match="unknown saves 'fulll': did you mean full"):
        answer("fulll")


def test_kept_logits_are_concatenated_beside_the_old_ones() -> None:
    def loss(**options: int) -> int:
        found = forecast_training(
            Training(model="x", seq=512, compute_dtype="bf16", param_dtype="fp32", options=options), model=MODEL
        )
        moment = next(i for i in found.worst.instants if i.name == "evaluation")
        return next(t.bytes for t in moment.terms if t.name == "loss")

    batch = 4 * 512 * 32_000
    assert loss(eval_batch=4) == batch * 6
    assert loss(eval_batch=4, eval_kept=10) == batch * 6 + batch * 4 * 18  # nine kept and ten made of them, in float


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--eval-batch 0", "eval_batch is 0: expected at least 1"),
        ("--eval-batch 8 --eval-kept -1", "eval_kept is -1: expected at least 1"),
        ("--save whole", "unknown saves 'whole'"),
    ],
)
def test_moments_that_cannot_be(flags: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "meta-llama/Llama-3.1-8B", *flags.split()]) == 2
    assert message in capsys.readouterr().err


def test_a_host_term_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    command = (
        "train meta-llama/Llama-3.1-8B --framework deepspeed --zero 3 --gpu H100x8 --offload optimizer --save full --explain"
    )
    assert run([*command.split(), "host_checkpoint"]) == 0
    assert "the whole weights on rank 0" in capsys.readouterr().out
    run([*command.split(), "host_optimizer"])
    assert "x 8 B of adamw's states / 8 ranks + 8,030,261,248 trained x 4 B of masters / 8 ranks" in capsys.readouterr().out
