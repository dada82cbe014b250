"""Tensor and pipeline parallelism without Megatron: what torch's own parts keep."""

import pytest

from vramcast.ledger import RankMemory
from vramcast.training.forecast import forecast_training
from vramcast.training.recipe.parts import Recipe
from vramcast.training.shape import Shape, shape_model
from vramcast.workload import Adapter, Parallel, Training

MODEL = shape_model(Shape(layers=8, hidden=1024, heads=16, ffn=4096, vocab=32000))
EMBEDDING = 32_000 * 1024


def answer(**question: object) -> tuple[Recipe, dict[str, RankMemory]]:
    parallel = question.get("parallel", Parallel())
    assert isinstance(parallel, Parallel)
    asked = {"model": "x", "seq": 512, "framework": "torchtitan", "gpus": parallel.dp * parallel.model_ranks} | question
    forecast = forecast_training(Training(**asked), model=MODEL)
    return forecast.recipe, {rank.rank: rank for rank in forecast.ranks}


def term(rank: RankMemory, name: str, instant: str) -> int:
    moment = next(i for i in rank.instants if i.name == instant)
    return next((t.bytes for t in moment.terms if t.name == name), 0)


@pytest.mark.parametrize(
    ("parallel", "compute", "stream"),
    [
        (Parallel(tp=4), "float32", "float32"),
        (Parallel(pp=4), "float32", "float32"),
        (Parallel(tp=4, dp=2), "bfloat16", "bfloat16"),
        (Parallel(tp=2, cp=2), "bfloat16", "bfloat16"),
        (Parallel(), "bfloat16", "float32"),  # autocast: the stream and its gradients have the weights' dtype
    ],
)
@pytest.mark.parametrize("given", [None, "bfloat16"])
def test_torchtitan_mixes_no_precisions_under_model_parallelism_alone(
    parallel: Parallel, compute: str, stream: str, given: str
) -> None:
    """Traced with tp 4 alone: 0.94 GiB of float32 gradients where 16 bits would be half."""
    recipe, _ = answer(parallel=parallel, compute_dtype=given)
    assert (recipe.precision.compute, recipe.precision.backward_gradients, recipe.precision.residual) == (
        compute,
        stream,
        stream,
    )


def test_a_pipeline_of_torchtitan_gathers_once_and_reduces_once() -> None:
    """Traced (2 stages x FSDP2 over 4, 8 layers of 2048): 0.94 GiB gathered on the last stage, as forecast."""
    _, ranks = answer(parallel=Parallel(pp=2, dp=4), accumulate=4)
    blocks = sum(t.elements * b.count for b in MODEL.blocks for t in b.tensors) // 2
    ends = {"first stage": EMBEDDING, "last stage": EMBEDDING}
    for name, rank in ranks.items():
        assert term(rank, "gathered", "end of forward") == pytest.approx(2 * (blocks + ends[name]), rel=1e-3)
        assert term(rank, "gradients", "end of forward") == pytest.approx(4 * (blocks + ends[name]), rel=1e-3)


def test_resharding_under_a_pipeline_can_be_asked_for() -> None:
    _, ranks = answer(parallel=Parallel(pp=2, dp=4), accumulate=4, options={"reshard": True})
    _, kept = answer(parallel=Parallel(pp=2, dp=4), accumulate=4)
    assert term(ranks["first stage"], "gathered", "end of forward") < term(kept["first stage"], "gathered", "end of forward")


@pytest.mark.parametrize("framework", ["torchtitan", "pytorch"])
@pytest.mark.parametrize(
    ("vpp", "buffers"), [(1, {"first stage": 1, "middle stage": 2, "last stage": 1}), (2, {"first stage": 3, "last stage": 3})]
)
def test_every_micro_batch_has_its_receive_buffers(framework: str, vpp: int, buffers: dict[str, int]) -> None:
    """Traced (4 stages, 4 micro-batches of 2048 x 2048 in float32): 64 MiB on the last stage."""
    recipe, ranks = answer(framework=framework, parallel=Parallel(pp=4, vpp=vpp), accumulate=8)
    width = {"float32": 4, "bfloat16": 2}[recipe.precision.residual]
    for name, count in buffers.items():
        assert term(ranks[name], "communication", "end of forward") == 8 * count * 512 * 1024 * width


@pytest.mark.parametrize(("version", "apart"), [("5.23", True), ("5.0", False)])
def test_accelerate_shards_the_ends_by_themselves_since_1_15(version: str, apart: bool) -> None:
    """What is gathered while the last block runs backward: it, the next one in its buffer, and until then both ends."""
    recipe, ranks = answer(framework="hf_trainer", framework_version=version, fsdp=2, parallel=Parallel(dp=8))
    blocks = 2 * sum(t.elements for t in MODEL.blocks[0].tensors)
    gathered = sum(term(ranks["every rank"], name, "backward of the last block") for name in ("gathered", "gathered_ahead"))
    assert recipe.sharding.separate_ends is apart
    assert gathered == pytest.approx(2 * (blocks + (0 if apart else 2 * EMBEDDING)), rel=1e-3)


def test_an_exchange_of_heads_for_tokens_keeps_the_attention_output_twice() -> None:
    from vramcast.training.forecast import forecast_training
    from vramcast.training.shape import Shape, shape_model
    from vramcast.workload import Parallel, Training

    model = shape_model(Shape(layers=8, hidden=1024, heads=8, kv_heads=8, ffn=4096, vocab=32000))

    def kept(comm: str, cp: int) -> int:
        asked = Training(model="x", framework="megatron", seq=4096, gpus=cp, parallel=Parallel(cp=cp), options={"cp_comm": comm})
        forward = next(i for i in forecast_training(asked, model=model).worst.instants if i.name == "end of forward")
        return next(t.bytes for t in forward.terms if t.name == "activations")

    assert kept("a2a", 1) == kept("p2p", 1)
    assert kept("a2a", 4) - kept("p2p", 4) == 8 * 1024 * 1024 * 2


def waiting(**question: object) -> int:
    """Activations at the end of forward of one rank that shares a sequence over 4."""
    asked = {"checkpointing": "none", "parallel": Parallel(tp=4, dp=2, sp=True)} | question
    (rank,) = answer(**asked)[1].values()
    return term(rank, "activations", "end of forward")


def test_a_dtensor_s_matmul_saves_the_gathered_sequence_and_megatron_s_its_part() -> None:
    """Measured: Llama-3.1-8B of torchtitan over fsdp 4 x tp 2 without recomputation holds 49.65 GiB (fca8ab7be), 49.8 so."""
    more = waiting() - waiting(options={"gathers_again": True})
    assert more == 8 * 2 * (512 * 1024 * 2) * 3 // 4  # of the inputs of attention and MLP, the parts of three other ranks
    megatron = {"framework": "megatron", "parallel": Parallel(tp=4, sp=True)}
    assert waiting(**megatron, options={"gathers_again": False}) - waiting(**megatron) == more


def test_an_adapter_saves_the_gathered_sequence_whatever_the_layer_beside_it_does() -> None:
    """ParallelLinearAdapter gathers (or gets gathered rows) and its first matrix saves them: one tensor for each input."""
    shared = {"framework": "megatron", "method": "lora", "parallel": Parallel(tp=4, sp=True)}
    qkv, both = (
        waiting(adapter=Adapter(rank=8, targets=names), **shared)
        for names in (("q_proj", "v_proj"), ("q_proj", "v_proj", "gate_proj", "up_proj"))
    )
    ranks = 8 * 512 * 8 * 2  # what comes between the two matrices of a pair
    assert both - qkv == 8 * 512 * 1024 * 2 + ranks
