"""Megatron's fine-grained activation offloading: what a module saves lies on the host, but for the last layer's."""

import pytest

from vramcast.training.forecast import forecast_training
from vramcast.training.shape import Shape, shape_model
from vramcast.workload import Training

TOKENS, HIDDEN, LAYERS = 2048, 1024, 8
MODEL = shape_model(Shape(layers=LAYERS, hidden=HIDDEN, heads=8, kv_heads=8, ffn=4096, vocab=32000))


def waiting(*modules: str, **changes: object) -> float:
    asked = {"model": "x", "framework": "megatron", "seq": TOKENS, "options": {"offload_modules": modules}} | changes
    answer = forecast_training(Training(**asked), model=MODEL)
    forward = next(i for i in answer.worst.instants if i.name == "end of forward")
    return next(t.bytes for t in forward.terms if t.name == "activations")


@pytest.mark.parametrize(("module", "elements"), [("attn_proj", 1), ("attn_norm", 1)])
def test_a_module_s_input_leaves_the_card_in_every_layer_but_the_last(module: str, elements: int) -> None:
    assert waiting() - waiting(module) == pytest.approx((LAYERS - 1) * TOKENS * HIDDEN * 2 * elements, rel=0.01)


def test_attention_takes_its_queries_keys_values_and_output_with_it() -> None:
    assert waiting() - waiting("core_attn") >= (LAYERS - 1) * TOKENS * 4 * HIDDEN * 2


def test_what_two_modules_share_is_moved_once() -> None:
    assert waiting("core_attn") == pytest.approx(waiting("core_attn", "attn_proj"), rel=0.001)


def test_experts_alone_have_expert_modules() -> None:
    assert waiting("expert_fc1", "moe_act") == waiting()
