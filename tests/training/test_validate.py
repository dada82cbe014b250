"""Impossible questions get one clear line."""

import pytest

from vramcast.errors import QuestionError
from vramcast.training.counts import in_flight, stages
from vramcast.training.forecast import forecast_training
from vramcast.training.recipe.parts import ModelParallel, Recipe
from vramcast.training.shape import Shape, shape_model
from vramcast.workload import Adapter, Parallel, Training

MODEL = shape_model(Shape(layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=32000, positions=4096))

CASES = [
    ({"gpus": 8, "parallel": Parallel(tp=2, pp=2)}, r"tp 2 x pp 2 x cp 1 x dp 1 is 4 ranks, but 8 GPUs .* dp would be 2"),
    ({"parallel": Parallel(tp=3)}, r"32 attention heads are not divisible by tp 3: tp can be 1, 2, 4, 8, 16, 32"),
    ({"parallel": Parallel(ep=4)}, r"ep 4 needs experts"),
    ({"framework": "megatron", "parallel": Parallel(pp=5)}, r"32 layers are not divisible by pp 5 x 1 chunks: pp can be 1, 2, 4"),
    ({"framework": "deepspeed", "parallel": Parallel(pp=64)}, r"32 layers cannot be cut into 64 stages"),
    ({"framework": "deepspeed", "parallel": Parallel(pp=2), "zero": 3}, r"DeepSpeed refuses ZeRO-3 with pipeline parallelism"),
    ({"framework": "llama_factory", "param_dtype": "bf16", "zero": 3}, r"refuses pure_bf16 with ZeRO-3"),
    ({"framework": "hf_trianer"}, r"unknown framework 'hf_trianer': did you mean hf_trainer"),
    ({"optimizer": "adamx"}, r"unknown optimizer 'adamx'"),
    ({"loss": "magic"}, r"unknown loss 'magic': known: blocks"),
    ({"attention": "flashy"}, r"unknown attention 'flashy'"),
    ({"checkpointing": "some"}, r"unknown checkpointing 'some'"),
    ({"seq": 8192}, r"a sequence of 8,192 tokens exceeds the 4,096 positions of the model: use --seq 4096"),
    ({"options": {"wieghts": "bf16"}}, r"unknown training option 'wieghts': did you mean weights"),
    ({"options": {"norm": "banana"}}, r"unknown norm 'banana': known: eager, fused, native"),
    ({"options": {"sharding": "zero9"}}, r"unknown sharding 'zero9': did you mean zero3"),
    ({"options": {"autocast": "perhaps"}}, r"training option autocast is 'perhaps': expected bool, got str"),
    ({"offload": ("banana",)}, r"unknown offload 'banana': known: activations, gradients, optimizer, parameters"),
    ({"method": "qlora", "quant": "nf5"}, r"unknown quant 'nf5': did you mean nf4"),
    ({"quant": "nf4"}, r"weights in nf4 are frozen, so method full cannot train them: use --method qlora"),
    ({"adapter": Adapter()}, r"method full has none: add --method lora"),
    ({"checkpointing": "layer:x"}, r"'layer:x' names no number of layers: write layer:2"),
    ({"checkpointing": "layer:0"}, r"'layer:0' names no number of layers"),
    ({"checkpointing": "uniform:0"}, r"'uniform:0' names no number of layers: write uniform:2"),
    ({"checkpointing": "block"}, r"'block' names no number of layers"),
    ({"checkpointing": "modules:core_atn"}, r"unknown recomputed module 'core_atn': did you mean core_attn"),
    ({"checkpointing": "modules"}, r"unknown recomputed module ''"),
    ({"checkpointing": "modules:mla_up_proj"}, r"mla_up_proj is a part of latent attention"),
    ({"checkpointing": "modules:moe_act+moe"}, r"moe and moe_act need experts, and this model has none"),
    ({"method": "freeze", "options": {"trainable_layers": 33}}, r"33 trained layers of 32: expected 1 to 32"),
    ({"method": "badam", "options": {"trainable_layers": 0}}, r"0 trained layers of 32: expected 1 to 32"),
    ({"method": "llama_pro", "options": {"trainable_layers": 5}}, r"not divisible by 5 trained ones: .* can be 1, 2, 4"),
    ({"method": "banana"}, r"unknown method 'banana'"),
    ({"method": "dopo"}, r"unknown method 'dopo': did you mean dpo"),
    ({"parallel": Parallel(vpp=2)}, r"vpp 2 cuts pipeline stages into chunks, and pp is 1"),
    ({"parallel": Parallel(pp=2)}, r"hf_trainer has no pipeline parallelism: .* spread=true"),
    ({"framework": "unsloth", "parallel": Parallel(tp=2)}, r"unsloth has no tensor parallelism: use --framework megatron"),
    ({"framework": "torchtitan", "zero": 2}, r"torchtitan does not run DeepSpeed ZeRO: use --fsdp"),
    ({"zero": 3, "fsdp": 2}, r"zero 3 and fsdp 2 both shard the model: give one"),
    ({"parallel": Parallel(cp=3)}, r"1,024 tokens do not divide over 3 ranks .* use --seq 1026"),
    ({"optimizer": "lomo", "accumulate": 2}, r"2 micro-batches cannot accumulate: use --accumulate 1"),
    ({"param_dtype": "bf17"}, r"unknown dtype of weights 'bf17': known: bfloat16, float16"),
]


@pytest.mark.parametrize(("changes", "message"), CASES, ids=[m[:30] for _, m in CASES])
def test_impossible_questions_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(QuestionError, match=message):
        forecast_training(Training(**({"model": "x", "seq": 1024} | changes)), model=MODEL)


@pytest.mark.parametrize(("field", "value"), [("micro_batch", 0), ("seq", -1), ("gpus", 0)])
def test_sizes_must_be_positive(field: str, value: int) -> None:
    with pytest.raises(QuestionError, match=f"{field} is {value}: expected at least 1"):
        Training(model="x", **{field: value})


@pytest.mark.parametrize("changes", [{"rank": 0}, {"rank": -2}, {"dropout": 1.0}])
def test_an_adapter_has_a_rank_and_a_dropout(changes: dict[str, float]) -> None:
    name, value = next(iter(changes.items()))
    with pytest.raises(QuestionError, match=f"{name} is {value}: expected"):
        Adapter(**changes)


def test_a_task_given_as_the_method_is_that_task() -> None:
    shortly = forecast_training(Training(model="x", seq=1024, method="dpo"), model=MODEL)
    fully = forecast_training(Training(model="x", seq=1024, options={"task": "dpo"}), model=MODEL)
    assert (shortly.recipe.task.kind, shortly.worst) == ("dpo", fully.worst)
    tuned = forecast_training(Training(model="x", seq=1024, method="dpo", adapter=Adapter(rank=4)), model=MODEL)
    assert (tuned.recipe.task.method, tuned.recipe.task.frozen_copies) == ("adapter", 0)


def test_layers_may_be_spread_over_cards_without_a_schedule() -> None:
    question = Training(model="x", seq=1024, parallel=Parallel(pp=2), gpus=2, options={"spread": True})
    assert [r.rank for r in forecast_training(question, model=MODEL).ranks] == ["first stage", "last stage"]


def test_one_forward_one_backward_keeps_what_is_ahead_of_a_stage() -> None:
    plain, grouped = Recipe(), Recipe(model_parallel=ModelParallel(microbatch_group=5))
    ahead = Recipe(model_parallel=ModelParallel(overlaps_experts=True))
    assert [in_flight(i, Parallel(pp=4), plain, micro_batches=64) for i in range(4)] == [4, 3, 2, 1]
    assert in_flight(0, Parallel(pp=4), plain, micro_batches=2) == 2
    assert in_flight(0, Parallel(pp=4, vpp=2), plain, micro_batches=64) == (3 * 2 + 4 + 1) / 2
    assert in_flight(3, Parallel(pp=4, vpp=3), grouped, micro_batches=64) == (2 * 5 + 1) / 3
    assert in_flight(3, Parallel(pp=4, vpp=3), ahead, micro_batches=64) == (2 * 4 + 2) / 3


def test_every_layer_is_on_one_stage() -> None:
    plan = stages(MODEL, Parallel(pp=2))
    assert [s.layers for s in plan] == [16, 16]
    assert (plan[0].first, plan[0].last, plan[1].first, plan[1].last) == (True, False, False, True)
