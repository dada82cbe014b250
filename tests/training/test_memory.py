"""Many layouts of one structure at once: every figure is the one that its layout gets alone, to the byte."""

import random
from typing import Any

import msgspec
import pytest

import vramcast
from vramcast.hardware.cards import least_card
from vramcast.models.reading import read_model
from vramcast.training.forecast import forecast_training
from vramcast.training.memory import StepBytes, peak_bytes
from vramcast.training.shape import Shape, shape_model
from vramcast.training.structure import StepNumbers
from vramcast.workload import Adapter, Parallel, Training

np = pytest.importorskip("numpy")

LLAMA = shape_model(Shape(layers=8, hidden=1024, heads=16, kv_heads=4, ffn=4096, vocab=32_000))
GEMMA = "google/gemma-2-9b-it"  # a window of 4,096 that some lengths reach
ASKED: list[tuple[str, Any, dict[str, Any]]] = [
    ("trainer", LLAMA, {}),
    ("sharded", LLAMA, {"fsdp": 2}),
    ("fsdp1, recomputed lora", LLAMA, {"fsdp": 1, "method": "lora", "adapter": Adapter(rank=8), "checkpointing": "full"}),
    ("zero 3, varying lengths", LLAMA, {"zero": 3, "options": {"lengths": "variable"}}),
    ("megatron", LLAMA, {"framework": "megatron", "parallel": Parallel(tp=2, pp=4, sp=True)}),
    ("pipeline of torchtitan", LLAMA, {"framework": "torchtitan", "parallel": Parallel(pp=2)}),
    ("deepspeed's engine", LLAMA, {"framework": "megatron_deepspeed", "parallel": Parallel(tp=2, pp=2)}),
    ("windows, written out", GEMMA, {"attention": "eager", "checkpointing": "none"}),
    ("fused head", LLAMA, {"loss": "linear", "options": {"eval_batch": 2}}),
]
COUNTERS = StepBytes.__struct_fields__


def drawn(layouts: int, *, at_most_dp: int = 16) -> StepNumbers:
    draw = random.Random(7)
    one_of = lambda *values: np.array([draw.choice(values) for _ in range(layouts)])  # noqa: E731
    ranks = [n for n in (1, 2, 8, 16) if n <= at_most_dp]
    return StepNumbers(
        micro_batch=one_of(1, 2, 3, 8), seq=one_of(256, 1000, 2048, 8192), accumulate=one_of(1, 4), dp=one_of(*ranks)
    )


def alone(question: Training, numbers: StepNumbers, index: int) -> Training:
    fields = {name: int(getattr(numbers, name)[index]) for name in ("micro_batch", "seq", "accumulate")}
    parallel = msgspec.structs.replace(question.parallel, dp=int(numbers.dp[index]))
    return msgspec.structs.replace(question, parallel=parallel, **fields)


@pytest.mark.parametrize(("name", "model", "fields"), ASKED, ids=[name for name, _, _ in ASKED])
def test_every_layout_is_as_it_is_alone(name: str, model: Any, fields: dict[str, Any]) -> None:
    model = read_model(model, offline=True) if isinstance(model, str) else model
    card, numbers = least_card("A100-80GB"), drawn(12)
    question = Training(model="x", **{"parallel": Parallel(), **fields})
    together = peak_bytes(question, numbers, model=model, card=card)
    for index in range(12):
        ranks = forecast_training(alone(question, numbers, index), model=model, card=card).ranks
        for counter in COUNTERS:
            assert getattr(together, counter)[index] == max(getattr(rank, counter) for rank in ranks), (name, index, counter)


def test_one_layout_is_a_number() -> None:
    question = Training(model="x", seq=512)
    found = peak_bytes(question, StepNumbers(seq=512), model=LLAMA)
    rank = forecast_training(question, model=LLAMA).worst
    assert [getattr(found, c) for c in COUNTERS] == [getattr(rank, c) for c in COUNTERS]


def test_what_is_alike_for_all_may_be_one_number() -> None:
    question = Training(model="x", fsdp=2)
    micro_batch = np.array([1, 2, 4])
    found = peak_bytes(question, StepNumbers(micro_batch=micro_batch, seq=1024, dp=8), model=LLAMA)
    assert found.allocated_bytes.shape == (3,)
    assert (np.diff(found.allocated_bytes) > 0).all()


def test_an_evaluation_reserves_its_own_blocks_alone() -> None:
    asked = {"gpu": "H200", "framework": "hf_trainer", "method": "lora", "micro_batch": 1, "seq": 2048, "loss": "fused"}
    found = vramcast.train("Qwen/Qwen3-8B", **asked, eval_batch=16, checkpointing="full").worst
    assert found.peak.name == "evaluation"
    assert found.reserved_bytes < 1.1 * found.allocated_bytes  # 1.3 with the blocks of the training loss counted
