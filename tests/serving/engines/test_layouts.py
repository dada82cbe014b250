"""Layouts by engine: how experts are spread under --dp and --ep, and what an engine refuses to cut, with its reason."""

import pytest

from vramcast.errors import QuestionError
from vramcast.models.reading import read_model
from vramcast.serving.engines.base import answer_of
from vramcast.serving.engines.layouts import Spread, spread_of
from vramcast.units import GiB
from vramcast.workload import Parallel, Serving

POOLS = ("vllm", "sglang", "tensorrt_llm")


def weights(model: str, engine: str = "vllm", *, dtype: str | None = None, parallel: Parallel, **options: object) -> float:
    """GiB of weights of one rank."""
    question = Serving(model=model, engine=engine, dtype=dtype, parallel=parallel, context=4096, options=options)
    answer = answer_of(question, model=read_model(model, offline=True))
    return next(t.bytes for t in answer.ranks[0].terms if t.name == "weights") / GiB


def test_vllm_deals_experts_out_over_tensor_and_data_parallel_ranks() -> None:
    spread = weights("openai/gpt-oss-120b", parallel=Parallel(dp=8, ep=8))
    assert spread == pytest.approx(11.1, abs=0.1)
    assert weights("openai/gpt-oss-120b", parallel=Parallel()) == pytest.approx(60.8, abs=0.1)
    assert weights("openai/gpt-oss-120b", parallel=Parallel(dp=8), enable_expert_parallel=True) == spread
    whole, scout = (weights("meta-llama/Llama-4-Scout-17B-16E-Instruct", parallel=Parallel(dp=dp, ep=dp)) for dp in (1, 8))
    assert whole - scout == pytest.approx(96.6e9 * 2 * 7 / 8 / GiB, rel=1e-3)  # 96.6 of 107.8 B parameters are routed experts


def test_vllm_cuts_experts_over_tensor_and_data_parallel_ranks_without_expert_parallelism() -> None:
    """docs, data parallel deployment: expert layers form a group of the size DP x TP."""
    name = "Qwen/Qwen3-30B-A3B"
    assert weights(name, parallel=Parallel(dp=4)) == pytest.approx(weights(name, parallel=Parallel(dp=4, ep=4)), rel=1e-3)
    assert weights(name, parallel=Parallel(dp=4)) < weights(name, parallel=Parallel()) / 3


def test_vllm_refuses_expert_parallelism_without_experts() -> None:
    with pytest.raises(QuestionError, match=r"vllm .* spreads experts, and this model has none .*: leave --ep out"):
        weights("Qwen/Qwen2.5-7B-Instruct", parallel=Parallel(tp=4, ep=4))
    assert weights("Qwen/Qwen2.5-7B-Instruct", "sglang", parallel=Parallel(tp=4, ep=4)) > 0


def test_vllm_says_that_a_number_of_expert_ranks_only_switches_them_on() -> None:
    question = Serving(model="openai/gpt-oss-120b", parallel=Parallel(tp=2, dp=4, ep=4))
    notes = answer_of(question).resolved.assumed
    assert [(n.value, n.because) for n in notes if n.name == "ep"] == [
        (8, "--enable-expert-parallel deals experts out over all tp x dp = 8 ranks")
    ]


@pytest.mark.parametrize("engine", ["sglang", "tensorrt_llm"])
def test_other_engines_spread_experts_over_their_tensor_parallel_ranks(engine: str) -> None:
    assert spread_of(engine, Parallel(tp=8, ep=2), {}) == Spread(attention=8, experts=2, each_expert=4)
    assert spread_of(engine, Parallel(tp=8), {"enable_expert_parallel": True}) == Spread(attention=8, experts=8)
    name = "Qwen/Qwen3-30B-A3B"
    cut, dealt = (weights(name, engine, parallel=Parallel(tp=4, ep=ep)) for ep in (1, 4))
    assert cut == pytest.approx(dealt, rel=1e-3)
    with pytest.raises(QuestionError, match=r"ep has to divide tp: ep=8, tp=1; use --tp 8 --ep 8"):
        weights(name, engine, parallel=Parallel(dp=8, ep=8))


def test_data_parallel_attention_repeats_attention_in_each_group() -> None:
    name = "Qwen/Qwen3-30B-A3B"
    shared = weights(name, "sglang", parallel=Parallel(tp=8, ep=8))
    repeated = weights(name, "sglang", parallel=Parallel(tp=8, ep=8), enable_dp_attention=True, dp_size=8)
    attention = 48 * 2048 * 128 * (2 * 32 + 2 * 4) * 2 / GiB  # 32 query and output heads, 4 keys and values
    held_already = 48 * 2048 * 128 * (2 * 4 + 2 * 1) * 2 / GiB
    assert repeated - shared == pytest.approx(attention - held_already, rel=0.05)


@pytest.mark.parametrize("engine", POOLS)
@pytest.mark.parametrize(
    ("model", "tp"), [("microsoft/phi-4", 4), ("microsoft/phi-4", 8), ("microsoft/Phi-3-medium-128k-instruct", 4)]
)
def test_key_value_heads_that_cannot_be_cut_are_refused(engine: str, model: str, tp: int) -> None:
    """vllm-project/vllm#16021 and #5951: ten key-value heads over four ranks."""
    with pytest.raises(
        QuestionError, match=rf"{engine} .* needs key-value heads divisible .*: 10 heads, tp={tp} .*use tp of 1, 2, 5, 10"
    ):
        weights(model, engine, parallel=Parallel(tp=tp))
    assert weights(model, engine, parallel=Parallel(tp=2)) > 0


def test_fewer_key_value_heads_than_ranks_are_repeated_evenly_or_refused() -> None:
    assert weights("Qwen/Qwen2.5-7B-Instruct", parallel=Parallel(tp=4)) > 0  # four heads
    assert weights("THUDM/GLM-4-9B-0414", parallel=Parallel(tp=8)) > 0  # two heads, each on four ranks
    with pytest.raises(QuestionError, match=r"needs attention heads divisible by tensor parallel size: 28 heads, tp=8"):
        weights("Qwen/Qwen2.5-7B-Instruct", parallel=Parallel(tp=8))


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_parts_of_fp8_matrices_are_whole_blocks_of_scales(engine: str) -> None:
    """Qwen3-235B-A22B-FP8: experts of width 1,536 over eight ranks are 192, and a block of scales spans 128."""
    name = "Qwen/Qwen3-235B-A22B-FP8"
    with pytest.raises(QuestionError, match=r"expert width 1536 / 8 ranks = 192, blocks of 128 .*--enable-expert-parallel"):
        weights(name, engine, parallel=Parallel(tp=8))
    assert weights(name, engine, parallel=Parallel(tp=8, ep=8)) == pytest.approx(
        weights(name, engine, parallel=Parallel(tp=4)) / 2, rel=0.1
    )


@pytest.mark.parametrize("engine", ["llama_cpp", "transformers"])
def test_engines_that_cut_no_heads_refuse_no_head_count(engine: str) -> None:
    question = Serving(model="microsoft/phi-4", engine=engine, gpus=4, parallel=Parallel(tp=4), context=2048)
    assert answer_of(question).ranks
