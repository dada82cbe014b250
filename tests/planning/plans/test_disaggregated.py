"""Prefill and decode on workers of their own in plans: the single forecast's figures, both kinds hold, lines that read back."""

from pathlib import Path

import pytest

import vramcast
from vramcast.asking.plan import wanted_of
from vramcast.asking.serving import serving_question
from vramcast.models.reading import read_model
from vramcast.planning.plans.disaggregated import _numbers, disaggregated
from vramcast.planning.plans.serving import plan_serving
from vramcast.serving.engines.base import answer_of
from vramcast.speed.pools import pools_speed
from vramcast.writing.serving.workers import workers_of

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
WORDS = {"users": 48, "prompt": 3000, "output": 300, "gpu": "H100x8", "bits": 16}


def _plan(**words):
    return vramcast.plan("serve", LLAMA, **{**WORDS, **words})


def test_plans_do_not_take_apart_unless_asked() -> None:
    assert _plan(engine="vllm").apart == ()


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt_llm"])
def test_figures_are_those_of_the_single_forecast(engine: str) -> None:
    found = _plan(engine=engine, disagg=True).apart
    assert found
    for one in found:
        answer = answer_of(one.question, model=one.setting.weights.model, card=one.setting.card, limits=False)
        alone = pools_speed(answer)
        assert one.ttft_s == pytest.approx(float(alone.ttft.seconds), rel=1e-9)
        assert one.tpot_s == pytest.approx(float(alone.tpot.seconds), rel=2e-3)  # the ledger opens rows without graphs' padding
        assert one.tokens_per_s == pytest.approx(alone.tokens_per_s, rel=1e-9)
        assert one.gpus == alone.cards <= 8


def test_the_best_comes_first_and_the_cards_are_those_offered() -> None:
    wanted, _ = wanted_of(LLAMA, {**WORDS, "engine": "vllm", "disagg": True})
    plan = plan_serving(wanted, model=read_model(LLAMA))
    every = list(disaggregated(wanted, (*plan.ranked, *plan.front)))
    best = plan.apart[0]
    sure = [one.gpus / one.tokens_per_s for one in every]
    assert best.gpus / best.tokens_per_s == pytest.approx(min(sure))
    assert {one.pools.prefill_workers + one.pools.decode_workers for one in every} >= {2, 3, 4}
    pairs = list(_numbers(best.setting, 2))
    assert all(decodes <= 2 for _, decodes in pairs)
    assert len(pairs) == len(set(pairs))


def _told(question) -> dict:
    return {name: getattr(question, name) for name in ("engine", "model", "context", "quant", "kv_dtype", "parallel", "options")}


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt_llm"])
def test_lines_of_workers_read_back(engine: str, tmp_path: Path) -> None:
    best = _plan(engine=engine, disagg=True).apart[0]
    pools, (prefills, decodes) = best.pools, (best.pools.prefill_workers, best.pools.decode_workers)
    lines = workers_of(best.prefill, best.question, prefills=prefills, decodes=decodes)
    second = next(place for place, line in enumerate(lines) if line.startswith(f"# {decodes} decode"))
    for name, part, question in (("p.sh", lines[:second], best.prefill), ("d.sh", lines[second:], best.question)):
        (tmp_path / name).write_text("\n".join(part) + "\n")
        found = serving_question(str(tmp_path / name), gpu=f"H100x{question.parallel.tp}").question
        assert _told(found) == _told(question)
    assert pools.clients == WORDS["users"]


def test_an_engine_without_such_workers() -> None:
    assert vramcast.plan("serve", "Qwen/Qwen2.5-7B-Instruct", users=2, gpu="4090x2", engine="llama_cpp", disagg=True).apart == ()
