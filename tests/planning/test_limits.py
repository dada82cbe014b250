"""Limits are exact: what one names is served by the engine, one step more is not, under every other setting of the question."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramcast.hardware.cards import find_accelerator
from vramcast.largest import edge_near
from vramcast.models.reading import read_model
from vramcast.planning.serving import ServingOnCard, forecast_serving
from vramcast.serving.engines.base import answer_of
from vramcast.workload import Parallel, Serving

QUESTIONS = [
    Serving(model="Qwen/Qwen2.5-7B-Instruct", gpu="RTX 4090"),
    Serving(model="meta-llama/Llama-3.1-8B-Instruct", gpu="L4", kv_dtype="fp8", options={"enforce_eager": True}),
    Serving(model="google/gemma-3-27b-it", gpu="A100-80G", context=8192, concurrency=4),
    Serving(model="Qwen/Qwen3-32B", gpu="L40S", gpus=2, parallel=Parallel(tp=2), context=16384, options={"max_num_seqs": 8}),
    Serving(model="meta-llama/Llama-3.1-8B-Instruct", gpu="RTX 4090", engine="sglang", context=4096),
    Serving(model="meta-llama/Llama-3.1-8B-Instruct", gpu="RTX 3060", engine="llama_cpp", quant="Q4_K_M", context=8192),
    Serving(model="Qwen/Qwen2.5-7B-Instruct", gpu="RTX 4090", engine="transformers", context=4096, concurrency=2),
    Serving(model="Qwen/Qwen2.5-7B-Instruct", gpu="A100-40G", engine="tensorrt_llm", context=8192),
]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: f"{q.engine} {q.model.split('/')[1]} {q.gpu}")
def test_what_a_limit_names_is_served_and_one_step_more_is_not(question: Serving) -> None:
    card, model = find_accelerator(question.gpu or ""), read_model(question.model)
    limits = forecast_serving(question, model=model, card=card).limits
    held = ServingOnCard(question=question, answer=answer_of(question, model=model, card=card), card=card)
    step = 256 if question.engine == "llama_cpp" else 1
    one = {} if question.engine in ("llama_cpp", "transformers") else {"concurrency": 1}
    assert limits.max_context
    assert held.serves(context=limits.max_context, **one)
    if limits.max_context < (model.positions or 2**24):
        assert not held.serves(context=limits.max_context + step, **one)
    if limits.max_concurrency and limits.max_concurrency >= 1 and limits.max_concurrency != question.options.get("max_num_seqs"):
        assert held.serves(concurrency=int(limits.max_concurrency))
        assert not held.serves(concurrency=int(limits.max_concurrency) + 1)


def test_sequences_at_once_obey_what_the_engine_is_told() -> None:
    question = Serving(model="meta-llama/Llama-3.1-8B-Instruct", gpu="H100", context=4096, options={"max_num_seqs": 64})
    assert forecast_serving(question).limits.max_concurrency == 64
    more = forecast_serving(msgspec.structs.replace(question, concurrency=100))
    assert (more.fit.verdict, more.fit.error) == ("partly", "starts; runs 64 of 100 at once, the most it is told to")


@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(1, 5000))
def test_the_edge_is_found_from_any_guess(edge: int, guess: int, most: int) -> None:
    asked: list[int] = []

    def fits(n: int) -> bool:
        asked.append(n)
        return n <= edge

    assert edge_near(guess, fits, most=most) == min(edge, most)
    assert len(asked) <= 30
    assert all(1 <= n <= most for n in asked)
