"""Beam search of transformers' generate: rows, cache and scores per beam, and the copy that reorders the cache."""

from vramcast.hardware.accelerator import catalogue
from vramcast.serving.engines.base import Answer, answer_of
from vramcast.workload import Serving

MODEL = "meta-llama/Llama-2-7b-hf"
TOKENS, VOCABULARY = 1024, 32_000
CACHE = 2 * 4096 * 32 * TOKENS * 2  # keys and values, hidden, layers, tokens, bytes


def ask(beams: int, **fields: object) -> Answer:
    question = Serving(model=MODEL, engine="transformers", dtype="fp16", context=TOKENS, options={"num_beams": beams}, **fields)
    return answer_of(question, card=catalogue()["a100-sxm4-40"])


def term(answer: Answer, instant: str, name: str) -> int:
    moment = next(i for i in answer.ranks[0].instants if i.name == instant)
    return next(t.bytes for t in moment.terms if t.name == name)


def test_each_beam_has_a_cache_of_its_own() -> None:
    assert term(ask(1), "decode", "kv_cache") == CACHE
    assert term(ask(4), "decode", "kv_cache") == 4 * CACHE
    assert ask(4, concurrency=3).cache.request_bytes == 4 * CACHE
    assert ask(4, concurrency=3).cache.pool_bytes == 12 * CACHE


def test_scores_are_kept_three_times_in_fp32() -> None:
    states = 4 * 1 * 4096 * 2 * 2  # two hidden states of each beam's last token
    workspace = 8_519_680  # torch's, of cuBLAS on Ampere
    assert term(ask(4), "decode", "logits") == 4 * VOCABULARY * 12 + states + workspace


def test_reordering_copies_one_layers_keys() -> None:
    assert term(ask(4), "beams reordered", "workspace") == 4 * CACHE / 32 / 2
    assert all(i.name != "beams reordered" for i in ask(1).ranks[0].instants)


def test_the_prompt_is_read_once_for_each_beam() -> None:
    assert term(ask(4), "prefill", "activations") > 3.5 * term(ask(1), "prefill", "activations")
