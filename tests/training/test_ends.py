"""Both ends of the network: what the embedding's gradient and kept logits add, and who opens autocast."""

import msgspec
import pytest

from vramcast.ledger import Instant
from vramcast.training.activations.choice import style_of
from vramcast.training.forecast import forecast_training
from vramcast.training.resolve import resolve
from vramcast.training.shape import Shape, shape_model
from vramcast.workload import Adapter, Training

NUMBERS = Shape(layers=4, hidden=2048, heads=32, kv_heads=8, ffn=8192, vocab=128256, tied=True)
TIED = shape_model(NUMBERS)
UNTIED = shape_model(msgspec.structs.replace(NUMBERS, tied=False))
MATRIX = 128256 * 2048 * 2


def moment(question: Training, name: str, *, tied: bool = True) -> Instant:
    answer = forecast_training(question, model=TIED if tied else UNTIED)
    return next(i for i in answer.worst.instants if i.name == name)


def part(instant: Instant, name: str) -> int:
    return next((t.bytes for t in instant.terms if t.name == name), 0)


def test_a_tied_embedding_makes_its_gradient_beside_the_heads() -> None:
    """Traced (Llama-3.2-1B, four layers, 256 tokens): 501.0 MiB of embedding_dense_backward beside 501.0 MiB of the head's."""
    question = Training(model="x", seq=256)
    assert part(moment(question, "backward of the embedding"), "temporaries") == MATRIX + 256 * 2048 * 2


def test_an_untied_embedding_keeps_its_first_gradient_and_adds_the_next() -> None:
    once = moment(Training(model="x", seq=256), "backward of the embedding", tied=False)
    again = moment(Training(model="x", seq=256, accumulate=2), "backward of the embedding", tied=False)
    assert part(once, "temporaries") == 256 * 2048 * 2
    assert part(again, "temporaries") == MATRIX + 256 * 2048 * 2


def test_a_frozen_embedding_makes_none() -> None:
    answer = forecast_training(Training(model="x", method="lora"), model=TIED)
    assert "backward of the embedding" not in {i.name for i in answer.worst.instants}


def test_ends_that_peft_saves_have_gradients_of_their_own() -> None:
    """PEFT's modules_to_save trains copies of both ends beside their frozen originals."""
    saving = Adapter(modules_to_save=("embed_tokens", "lm_head"))
    question = Training(model="x", method="lora", adapter=saving, seq=256, accumulate=2, param_dtype="bfloat16")
    assert part(moment(question, "backward of the embedding", tied=False), "temporaries") == MATRIX + 256 * 2048 * 2
    plain = msgspec.structs.replace(question, adapter=Adapter())
    head = [part(moment(q, "backward of the loss", tied=False), "loss") for q in (question, plain)]
    assert head[0] > MATRIX > head[1]


def test_a_loop_over_gathered_units_names_logits_in_their_dtype() -> None:
    """Traced: Llama-3.2-3B under FSDP1 with float32 shards holds 501 MiB of bfloat16 logits, not 1,002."""
    asked = Training(model="x", framework="pytorch", fsdp=1, gpus=2, param_dtype="float32", compute_dtype="bfloat16")
    assert resolve(asked, TIED)[0].loss.holds_logits == "bfloat16"
    assert resolve(msgspec.structs.replace(asked, fsdp=None), TIED)[0].loss.holds_logits == "float32"


def test_litgpt_s_whole_logits_are_float() -> None:
    """Fabric converts the output: logits, their chunks' gradients and those put together, 4 B each."""
    step = moment(Training(model="x", framework="litgpt", seq=4096), "backward of the loss")
    assert part(step, "loss") == pytest.approx(12 * 4096 * 128256, rel=0.02)


@pytest.mark.parametrize(("framework", "held"), [("pytorch", "bfloat16"), ("hf_trainer", ""), ("llama_recipes", "")])
def test_a_loop_that_names_the_output_holds_the_logits_through_backward(framework: str, held: str) -> None:
    """The Trainer's compute_loss and llama-recipes keep the loss alone."""
    recipe, _ = resolve(Training(model="x", framework=framework), TIED)
    assert recipe.loss.holds_logits == held


@pytest.mark.parametrize(
    ("fields", "opened"),
    [
        ({}, True),
        ({"compute_dtype": "float32"}, False),
        ({"fsdp": 1, "gpus": 8}, True),
        ({"fsdp": 1, "gpus": 8, "framework_version": "4.35"}, True),  # accelerate 0.24
        ({"fsdp": 1, "gpus": 8, "framework_version": "4.34"}, False),
    ],
)
def test_the_trainer_opens_autocast_whatever_the_weights(fields: dict[str, object], opened: bool) -> None:
    question = msgspec.convert({"model": "x", "method": "lora", **fields}, Training)
    question = msgspec.structs.replace(question, adapter=Adapter(), param_dtype="bfloat16")
    assert resolve(question, TIED)[0].precision.autocast is opened


@pytest.mark.parametrize(("held", "copied"), [("float32", True), ("bfloat16", False)])
def test_autocast_keeps_copies_of_frozen_float_weights(held: str, copied: bool) -> None:
    """Each linear layer's input needs a gradient, so its 16-bit copy waits for backward: without, a trace was 24 % above."""
    asked = Training(
        model="x", method="lora", checkpointing="none", seq=256, adapter=Adapter(), param_dtype=held, compute_dtype="bfloat16"
    )
    recipe, _ = resolve(asked, TIED)
    assert style_of(recipe, asked.parallel, asked.adapter, {"q": 8}).cast_weights is copied
