"""Replicas of shards, and the second partition of ZeRO++: who holds what."""

import pytest

from vramcast.ledger import RankMemory
from vramcast.training.counters import communicators
from vramcast.training.counts import stages
from vramcast.training.forecast import forecast_training
from vramcast.training.resolve import resolved
from vramcast.training.shape import Shape, shape_model
from vramcast.training.structure import numbers_of, structure_under
from vramcast.workload import Parallel, Training

MODEL = shape_model(Shape(layers=8, hidden=1024, heads=16, ffn=4096, vocab=32000))


def asked(**question: object) -> Training:
    parallel = question.get("parallel", Parallel())
    assert isinstance(parallel, Parallel)
    return Training(**({"model": "x", "seq": 512, "gpus": parallel.dp * parallel.model_ranks} | question))


def worst(**question: object) -> RankMemory:
    return forecast_training(asked(**question), model=MODEL).worst


def term(rank: RankMemory, name: str) -> int:
    return max((t.bytes for i in rank.instants for t in i.terms if t.name == name), default=0)


@pytest.mark.parametrize("framework", ["torchtitan", "accelerate", "llm_foundry"])
def test_replicas_hold_what_their_own_shards_would(framework: str) -> None:
    replicated = worst(framework=framework, fsdp=2, parallel=Parallel(dp=32, replicate=4))
    alone = worst(framework=framework, fsdp=2, parallel=Parallel(dp=8))
    assert replicated.instants == alone.instants
    assert replicated.device_bytes > alone.device_bytes  # a communicator across the replicas


def test_context_parallel_ranks_share_the_shards() -> None:
    assert Parallel(dp=8, cp=2, replicate=4).shards == 4


def test_instances_of_megatrons_optimizer_share_less() -> None:
    whole = worst(framework="megatron", parallel=Parallel(dp=16))
    instances = worst(framework="megatron", parallel=Parallel(dp=16, replicate=4))
    assert term(instances, "optimizer") == pytest.approx(4 * term(whole, "optimizer"), rel=1e-6)
    assert term(instances, "weights") == term(whole, "weights")


def test_the_second_partition_is_the_16_bit_weights_over_the_ranks_of_a_node() -> None:
    parallel = Parallel(dp=16, hpz=8)
    rank = worst(framework="deepspeed", zero=3, parallel=parallel)
    assert term(rank, "secondary_weights") == pytest.approx(2 * MODEL.parameters / 8, rel=1e-6)
    plain = worst(framework="deepspeed", zero=3, parallel=Parallel(dp=16))
    assert rank.peak.bytes - plain.peak.bytes == term(rank, "secondary_weights")


def test_weights_on_the_links_in_8_bits_pass_through_a_buffer_of_their_own() -> None:
    question = {"framework": "deepspeed", "zero": 3, "parallel": Parallel(dp=16)}
    plain, narrow = worst(**question), worst(**question, options={"quantized_gathers": True})
    block = sum(t.elements for t in MODEL.blocks[0].tensors)
    assert term(narrow, "gathered") - term(plain, "gathered") == pytest.approx(block, rel=1e-6)


def test_4_bit_gradients_are_sent_and_received_beside_the_gradient() -> None:
    question = {"framework": "deepspeed", "zero": 3, "parallel": Parallel(dp=16)}
    plain, narrow = worst(**question), worst(**question, options={"quantized_gradients": True})
    assert term(narrow, "temporaries") - term(plain, "temporaries") == 32_000 * 1024  # the embedding's, a byte per element


def test_a_smaller_sub_group_makes_a_smaller_fp32_copy() -> None:
    question = {"framework": "deepspeed", "zero": 3, "parallel": Parallel(dp=2)}
    small = worst(**question, options={"sub_group": 1_000_000})
    assert term(small, "gradient_copy") < term(worst(**question), "gradient_copy")


def test_torchtitan_gathered_both_ends_at_once_until_mid_2025() -> None:
    """And left the last block whole; since then it is gathered again when its backward begins (parallelize_llama)."""
    question = {"framework": "torchtitan", "parallel": Parallel(dp=8)}
    old, new = worst(**question, framework_version="0.1.0"), worst(**question, framework_version="0.2.0")
    loss = {r: next(i for i in rank.instants if i.name == "loss") for r, rank in (("old", old), ("new", new))}
    block, embedding = sum(t.elements for t in MODEL.blocks[0].tensors), 32_000 * 1024
    held = {r: next(t.bytes for t in i.terms if t.name == "gathered") for r, i in loss.items()}
    assert held == pytest.approx({"old": 2 * (block + 2 * embedding), "new": 2 * embedding}, rel=1e-6)


def test_each_axis_has_a_communicator_and_so_do_the_replicas() -> None:
    parallel = Parallel(dp=32, replicate=4, tp=2)
    question = asked(framework="torchtitan", parallel=parallel)
    structure = structure_under(question, MODEL, *resolved(question, MODEL))
    found = communicators(structure, stages(MODEL, parallel)[0], numbers_of(question))
    assert found == (8, 4, 2, 64)


def test_fsdp2_reduces_one_block_while_the_next_runs_backward() -> None:
    """The buffer of the reduction, in its own dtype, stands beside the live layer (_fsdp_param_group.py, post_backward)."""
    rank = worst(framework="torchtitan", checkpointing="full", parallel=Parallel(dp=8))
    block = sum(t.elements for t in MODEL.blocks[0].tensors)
    found = {i.name: {t.name: t.bytes for t in i.terms} for i in rank.instants}
    last, before = found["backward of the last block"], found["backward of the block before the last"]
    assert before["temporaries"] - last["temporaries"] == pytest.approx(4 * (block - 32_000 * 1024), rel=1e-6)
    assert before["gathered_ahead"] == 2 * block


def test_fsdp1_holds_a_blocks_gradients_twice_when_they_become_one() -> None:
    rank = worst(framework="hf_trainer", fsdp=1, seq=64, parallel=Parallel(dp=8))
    block = sum(t.elements for t in MODEL.blocks[0].tensors)
    moment = next(i for i in rank.instants if i.name == "gradients of the last block")
    assert next(t.bytes for t in moment.terms if t.name == "temporaries") > 2 * 2 * block
