"""Engines by name, the defaults they fill in, and the questions they refuse."""

import time

import pytest

from vramcast.errors import QuestionError
from vramcast.hardware.cards import find_accelerator
from vramcast.models.reading import read_model
from vramcast.serving.engines import canonical_name, engine, engine_names
from vramcast.serving.engines.base import answer_of, at, parse_version
from vramcast.units import GiB
from vramcast.workload import Parallel, Serving

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
OURS = ("vllm", "sglang", "tensorrt_llm", "transformers")


def ask(name: str = "vllm", gpu: str | None = None, **fields):
    card = find_accelerator(gpu) if gpu else None
    return answer_of(Serving(model=LLAMA, engine=name, **fields), model=read_model(LLAMA, offline=True), card=card)


@pytest.mark.parametrize(
    ("typed", "name"), [("trtllm", "tensorrt_llm"), ("HF", "transformers"), ("vLLM", "vllm"), ("llama.cpp", "llama_cpp")]
)
def test_aliases(typed: str, name: str) -> None:
    assert canonical_name(typed) == name
    assert name in engine_names()


def test_an_unknown_engine_is_refused_with_the_nearest() -> None:
    with pytest.raises(QuestionError, match="unknown engine 'vlm': did you mean vllm"):
        engine("vlm")


@pytest.mark.parametrize("name", OURS)
def test_an_unknown_option_is_refused(name: str) -> None:
    with pytest.raises(QuestionError, match=f"unknown {name} option 'max_num_seq'"):
        ask(name, options={"max_num_seq": 4})


def test_heads_that_do_not_divide_are_refused_with_sizes_that_do() -> None:
    with pytest.raises(QuestionError, match=r"32 heads, tp=3 .*; use tp of 1, 2, 4, 8"):
        ask(parallel=Parallel(tp=3))


def test_a_context_beyond_the_model_is_refused() -> None:
    with pytest.raises(QuestionError, match=r"context 200,000 is beyond .*131,072 positions"):
        ask(context=200_000)


def test_a_version_that_is_none_is_refused() -> None:
    with pytest.raises(QuestionError, match=r"vllm version 'latest' is not a version: write for example vllm==0.19.0"):
        ask(engine_version="latest")


def test_versions_pick_the_last_row_that_is_not_newer() -> None:
    table = (((0,), "a"), ((0, 9), "b"), ((0, 21), "c"))
    assert [at(parse_version(v, "vllm"), table) for v in ("0.8.5.post1", "v0.9.2", "0.20.1rc1", "0.21.0", "1.0")] == list("abbcc")


@pytest.mark.parametrize(
    ("version", "gpu", "tokens", "seqs", "utilization"),
    [
        ("0.33.0", "H100 SXM", 8192, 1024, 0.92),
        ("0.33.0", "RTX 4090", 2048, 256, 0.92),
        ("0.33.0", "A100 SXM4 80GB", 2048, 256, 0.92),
        ("0.33.0", "B200", 16384, 1024, 0.92),
        ("0.19.0", "B200", 8192, 1024, 0.90),
    ],
)
def test_vllm_batch_tiers(version: str, gpu: str, tokens: int, seqs: int, utilization: float) -> None:
    options = ask(gpu=gpu, engine_version=version, context=8192).resolved.options
    assert (options["max_num_batched_tokens"], options["max_num_seqs"], options["gpu_memory_utilization"]) == (
        tokens,
        seqs,
        utilization,
    )


@pytest.mark.parametrize("name", OURS)
def test_without_a_card_the_answer_is_what_the_requests_need(name: str) -> None:
    one, four = (ask(name, context=4096, concurrency=n).ranks[0].needed_bytes for n in (1, 4))
    assert four - one >= 3 * 4096 * 131_072


@pytest.mark.parametrize("name", OURS)
def test_terms_have_reasons_and_sum_to_their_parts(name: str) -> None:
    for rank in ask(name, "L4", context=4096).ranks:
        for instant in rank.instants:
            for top in instant.terms:
                for _, term in top.walk():
                    assert term.why
                    assert not term.terms or sum(t.bytes for t in term.terms) == term.bytes


@pytest.mark.parametrize("name", OURS)
def test_cards_too_small_are_told_so_in_the_engine_s_words(name: str) -> None:
    assert ask(name, "RTX 3060", context=4096).start_error


@pytest.mark.parametrize("name", OURS)
def test_a_warm_answer_takes_a_millisecond(name: str) -> None:
    model, card = read_model(LLAMA, offline=True), find_accelerator("H100 SXM")
    question = Serving(model=LLAMA, engine=name, context=8192)
    answer_of(question, model=model, card=card)
    took = []
    for _ in range(20):
        start = time.process_time()
        answer_of(question, model=model, card=card)
        took.append(time.process_time() - start)
    assert min(took) < 0.001


def test_a_cache_of_8_bits_holds_twice_the_tokens() -> None:
    plain, small = (ask(gpu="H100 SXM", context=8192, kv_dtype=kv).cache.tokens for kv in (None, "fp8"))
    assert small == pytest.approx(2 * plain, rel=0.001)


def test_the_longest_context_is_whole_blocks_of_what_is_left() -> None:
    answer = ask(gpu="RTX 4090", engine_version="0.19.0", context=4096)
    assert answer.max_context == min(131_072, answer.cache.blocks * 16)


def test_tensorrt_llm_takes_its_share_of_what_is_told_to_be_free() -> None:
    """An L4's log: 0.45 of 16.25 GiB that were free is a cache of 7.31 GiB."""
    options = {"free_gpu_memory_fraction": 0.45, "free_gpu_bytes": round(16.25 * GiB)}
    question = Serving(model="Qwen/Qwen2.5-1.5B-Instruct", gpu="L4", engine="tensorrt_llm", options=options)
    assert answer_of(question).cache.pool_bytes / GiB == pytest.approx(7.31, abs=0.01)
