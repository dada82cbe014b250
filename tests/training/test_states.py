"""Weights, gradients and states of a rank: exact counts, then shards."""

import pytest

from vramcast.errors import QuestionError
from vramcast.ledger import Instant
from vramcast.training.forecast import forecast_training
from vramcast.training.shape import Shape, shape_model
from vramcast.units import GiB
from vramcast.workload import Adapter, Parallel, Training

LLAMA2_7B = shape_model(Shape(layers=32, hidden=4096, heads=32, ffn=11008, vocab=32000))
SMALL = shape_model(Shape(layers=8, hidden=1024, heads=16, kv_heads=4, ffn=4096, vocab=32000, experts=8, expert_ffn=512))


def steady(question: Training, model=LLAMA2_7B) -> dict[str, int]:
    """The named terms at the optimizer step, without what it makes for a moment."""
    return {name: size for name, size in stepping(question, model).items() if name not in ("temporaries", "gradient_copy")}


def stepping(question: Training, model=LLAMA2_7B) -> dict[str, int]:
    step = forecast_training(question, model=model).worst.instants[-1]
    return {t.name: t.bytes for t in step.terms}


def ask(**changes: object) -> Training:
    return Training(**({"model": "x", "framework": "pytorch", "micro_batch": 1, "seq": 512} | changes))


def test_lora_of_rank_8_on_every_linear_layer_of_llama_2_7b() -> None:
    answer = forecast_training(ask(method="lora", adapter=Adapter(rank=8)), model=LLAMA2_7B)
    assert answer.trainable_parameters == 19_988_480
    assert answer.trainable_parameters / LLAMA2_7B.parameters == pytest.approx(0.002966, abs=1e-6)


def test_pure_bf16_adamw_is_eight_bytes_per_parameter() -> None:
    assert sum(steady(ask(param_dtype="bfloat16")).values()) == pytest.approx(8 * LLAMA2_7B.parameters, rel=1e-6)


def test_the_distributed_optimizer_holds_six_bytes_and_twelve_shared() -> None:
    plain = {"placeholders": False}  # no fused accumulation: nothing stays of the gradients themselves
    held = sum(steady(ask(framework="megatron", gpus=8, parallel=Parallel(dp=8), options=plain)).values())
    assert held == pytest.approx((6 + 12 / 8) * LLAMA2_7B.parameters, rel=2e-3)  # the vocabulary is padded to 128


@pytest.mark.parametrize(("stage", "bytes_per_parameter"), [(1, 4 + 12 / 4), (2, 2 + 14 / 4), (3, 16 / 4)])
def test_what_each_zero_stage_divides(stage: int, bytes_per_parameter: float) -> None:
    plain = {"bucket_elements": 0, "reduce_bucket": 0}  # buckets take other ranks' gradients in
    question = ask(param_dtype="bfloat16", zero=stage, gpus=4, parallel=Parallel(dp=4), options=plain)
    gradients = max(sized(i, "gradients") for i in forecast_training(question, model=LLAMA2_7B).worst.instants)
    held = sum(size for name, size in steady(question).items() if name not in ("communication", "gradients")) + gradients
    assert held == pytest.approx(bytes_per_parameter * LLAMA2_7B.parameters, rel=1e-3)  # ZeRO, arXiv 1910.02054, table 1


def sized(instant: Instant, name: str) -> int:
    return sum(t.bytes for t in instant.terms if t.name == name)


def test_zero_1_steps_with_the_gradients_of_its_own_partition() -> None:
    question = ask(param_dtype="bfloat16", zero=1, gpus=4, parallel=Parallel(dp=4))
    assert steady(question)["gradients"] == pytest.approx(2 * LLAMA2_7B.parameters / 4, rel=1e-6)


def test_adapters_under_deepspeed_are_flattened_too() -> None:
    question = ask(framework="deepspeed", method="lora", adapter=Adapter(rank=8), zero=2, gpus=2, parallel=Parallel(dp=2))
    assert stepping(question)["gradient_copy"] == pytest.approx(19_988_480 / 2 * (2 + 4), rel=1e-6)  # 16 bits, then fp32


def test_foreach_adamw_of_torch_2_0_makes_two_lists() -> None:
    old, new = (stepping(ask(framework="hf_trainer", framework_version=v, compute_dtype="bfloat16")) for v in ("4.31", "4.37"))
    assert old["temporaries"] == 2 * new["temporaries"]


def test_zero_3_holds_as_many_whole_weights_as_its_limits() -> None:
    question = ask(
        framework="deepspeed",
        zero=3,
        gpus=4,
        parallel=Parallel(dp=4),
        options={"live_elements": 500_000_000, "reuse_elements": 0},
    )
    moments = forecast_training(question, model=LLAMA2_7B).worst.instants
    whole = {i.name: sized(i, "gathered") for i in moments}
    assert whole["loss"] == whole["backward of the last block"] == 2 * 500_000_000
    assert whole["backward of the first block"] == 2 * 202_383_360


def test_zero_3_keeps_what_is_used_again_whatever_it_may_fetch() -> None:
    """With a small limit of live elements alone, a traced step holds all that lies within the reuse distance."""
    limits = {"live_elements": 1_000_000, "reuse_elements": 700_000_000}
    question = ask(framework="deepspeed", zero=3, gpus=4, parallel=Parallel(dp=4), options=limits)
    moments = forecast_training(question, model=LLAMA2_7B).worst.instants
    assert next(sized(i, "gathered") for i in moments if i.name == "loss") == 2 * 700_000_000


@pytest.mark.parametrize(("version", "at_the_loss"), [("4.56", True), ("5.23", False)])
def test_buckets_of_zero_2_exist_in_backward_alone(version: str, at_the_loss: bool) -> None:
    """DeepSpeed 0.18.2 makes them before the loss's backward, 0.18.3 at the first weight's gradient; both release them after."""
    question = ask(framework="hf_trainer", framework_version=version, zero=2, gpus=4, parallel=Parallel(dp=4))
    moments = {i.name: i for i in forecast_training(question, model=LLAMA2_7B).worst.instants}
    two = 2 * 4096**2 * 2  # overlap_comm: one is filled while the other is reduced
    assert sized(moments["backward of the last block"], "communication") == two
    assert sized(moments["backward of the loss"], "communication") == (two if at_the_loss else 0)
    assert not any(sized(moments[name], "communication") for name in ("end of forward", "loss", "optimizer step"))


def test_data_parallel_copies_gradients_into_buckets() -> None:
    alone = sum(steady(ask(param_dtype="bfloat16")).values())
    shared = sum(steady(ask(param_dtype="bfloat16", gpus=2, parallel=Parallel(dp=2))).values())
    assert shared - alone == 2 * LLAMA2_7B.parameters


def test_nf4_weights_are_four_bits_and_their_scales() -> None:
    held = steady(ask(method="qlora", quant="nf4", adapter=Adapter(rank=8), options={"double_quant": True}))
    linear = 32 * (4 * 4096 * 4096 + 3 * 4096 * 11008)
    rest = LLAMA2_7B.parameters - linear
    adapters, code_books = 19_988_480 * 4, 32 * 7 * (16 * 4 + 256 * 4 + 4)
    assert held["weights"] == linear * (0.5 + (1 + 4 / 256) / 64) + rest * 4 + adapters + code_books


def test_modules_to_save_are_trained_beside_their_frozen_original() -> None:
    plain = steady(ask(method="lora", adapter=Adapter(rank=8)))
    saving = steady(ask(method="lora", adapter=Adapter(rank=8, modules_to_save=("embed_tokens", "lm_head"))))
    ends = 2 * 32000 * 4096
    assert saving["weights"] - plain["weights"] == 2 * ends
    assert saving["gradients"] - plain["gradients"] == 2 * ends


def test_offloaded_states_move_to_the_host() -> None:
    answer = forecast_training(
        ask(framework="colossalai", zero=2, gpus=2, parallel=Parallel(dp=2), offload=("optimizer",)), model=LLAMA2_7B
    )
    held = {t.name: t.bytes for t in answer.host}
    assert held["host_optimizer"] == pytest.approx(12 * LLAMA2_7B.parameters / 2, rel=1e-3)
    assert "optimizer" not in {t.name for t in answer.worst.instants[-1].terms}


def test_experts_are_shared_out_over_expert_parallel_ranks() -> None:
    whole = steady(ask(framework="megatron"), SMALL)["weights"]
    shared = steady(ask(framework="megatron", gpus=4, parallel=Parallel(dp=4, ep=4)), SMALL)["weights"]
    experts = 8 * 8 * 3 * 1024 * 512 * 2
    assert whole - shared == experts * 3 // 4


def test_four_ranks_hold_a_quarter_of_frozen_experts_however_they_are_cut() -> None:
    """FSDP has nobody left to share experts with when all four ranks are expert parallel."""
    lora = {"framework": "torchtitan", "method": "lora", "adapter": Adapter(rank=8), "fsdp": 2, "gpus": 4}
    sharded = steady(ask(**lora, parallel=Parallel(dp=4)), SMALL)
    spread = steady(ask(**lora, parallel=Parallel(dp=4, ep=4)), SMALL)
    assert spread["weights"] == pytest.approx(sharded["weights"], rel=1e-3)
    assert spread["optimizer"] == pytest.approx(sharded["optimizer"], rel=1e-3)


def test_an_unknown_target_gets_the_nearest() -> None:
    with pytest.raises(QuestionError, match=r"unknown adapter target 'q_prj': did you mean q_proj"):
        forecast_training(ask(method="lora", adapter=Adapter(targets=("q_prj",))), model=LLAMA2_7B)


def test_the_ledger_of_every_instant_sums_to_it() -> None:
    for rank in forecast_training(ask(framework="torchtitan", gpus=8, parallel=Parallel(dp=8)), model=LLAMA2_7B).ranks:
        assert all(i.bytes == sum(t.bytes for t in i.terms) for i in rank.instants)
        assert rank.allocated_bytes <= rank.reserved_bytes <= rank.device_bytes < 200 * GiB


def test_deepspeed_flattens_its_share_of_the_gradients_before_the_step() -> None:
    """16 bits and fp32 beside the gradients of the partition, the others' being freed; or the largest in float64 for the norm."""
    one = stepping(ask(framework="megatron_deepspeed"))["gradient_copy"]
    assert one == pytest.approx(6 * LLAMA2_7B.parameters, rel=1e-3)
    eight = stepping(ask(framework="megatron_deepspeed", gpus=8, parallel=Parallel(dp=8)))["gradient_copy"]
    assert eight == 8 * 32000 * 4096


def test_a_quantised_scheme_has_several_names() -> None:
    named = [steady(ask(method="qlora", quant=q, adapter=Adapter(rank=8)))["weights"] for q in ("int8", "llm.int8", "8bit")]
    assert len(set(named)) == 1


def test_no_bucket_is_left_when_the_step_looks_at_gradients() -> None:
    """DeepSpeed releases buckets when backward is over; its overflow check is part of step()."""
    asked = {"framework": "megatron_deepspeed", "gpus": 2, "parallel": Parallel(dp=2)}
    held, released = (
        {i.name: {t.name for t in i.terms} for i in forecast_training(ask(**asked, options=options), model=SMALL).worst.instants}
        for options in ({}, {"buckets_from": "loss"})
    )
    assert "communication" in held["overflow check"] and "communication" not in released["overflow check"]
    assert "communication" in released["backward of the first block"]
