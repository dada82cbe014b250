"""Prefill and decode apart: the simulation against the closed form, against one server, and against what must hold."""

import msgspec
import pytest

from vramcast import cli
from vramcast.asking.serving import serving_question
from vramcast.errors import QuestionError
from vramcast.models.operations import Batch
from vramcast.planning.serving import forecast_serving
from vramcast.serving.engines.base import answer_of
from vramcast.speed.answer import step_of
from vramcast.speed.disaggregation import Pools, simulate_pools, steady_pools
from vramcast.speed.load import Load, Request
from vramcast.speed.simulation import simulate
from vramcast.speed.step import Step
from vramcast.speed.transfer import REACHED, rank_bytes


def _step(engine: str = "vllm", gpu: str = "H100", model: str = "Qwen/Qwen3-8B") -> Step:
    asked = serving_question(model, gpu=gpu, engine=engine, prompt=2048, output=128, context=8192)
    return step_of(answer_of(asked.question))


@pytest.fixture(scope="module")
def step() -> Step:
    return _step()


def _pools(step: Step, prefill: int = 1, decode: int = 1, rate: float = 50e9) -> Pools:
    return Pools(prefill=step, decode=step, prefill_workers=prefill, decode_workers=decode, rate_bytes_per_s=rate)


def _mean(served, name: str) -> float:
    return sum(getattr(one, name) for one in served) / len(served)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt_llm"])
@pytest.mark.parametrize("load", [Load(prompt=2048, output=128, concurrency=1), Load(prompt=2048, output=128, rate_per_s=4)])
def test_closed_form_and_simulation_agree(engine: str, load: Load) -> None:
    pools = _pools(_step(engine), prefill=2)
    served, found = simulate_pools(pools, load), steady_pools(pools, load)
    assert _mean(served, "ttft_s") == pytest.approx(found.ttft_s, rel=0.12)
    assert _mean(served, "tpot_s") == pytest.approx(found.tpot_s, rel=0.06)


def test_every_request_is_served_once_by_many_workers(step: Step) -> None:
    served = simulate_pools(
        _pools(step, 3, 2), Load(prompt=500, output=40, concurrency=24, spread=0.5), count=300, all_of_it=True
    )
    assert len(served) == 300
    assert all(0 < one.ttft_s < one.e2e_s for one in served)
    assert [one.arrival_s for one in served] == sorted(one.arrival_s for one in served)


def test_prompts_of_others_do_not_lengthen_a_decode_step(step: Step) -> None:
    load = Load(prompt=4096, output=128, rate_per_s=3)
    apart, together = simulate_pools(_pools(step), load), simulate(step, load)
    assert _mean(apart, "tpot_s") < 0.9 * _mean(together, "tpot_s")


def test_a_lone_request_pays_for_the_way_of_its_cache(step: Step) -> None:
    lone = Load(prompt=4096, output=16, rate_per_s=1, trace=(Request(0.0, 4096, 16),))
    fast, slow = (_mean(simulate_pools(_pools(step, rate=rate), lone), "ttft_s") for rate in (400e9, 1e9))
    # 36 layers x 2 x 8 heads x 128 x 2 bytes a token
    moved = 4096 * 36 * 2 * 8 * 128 * 2
    assert rank_bytes(step.by_context, 4096) == moved
    assert slow - fast == pytest.approx(moved / REACHED * (1 / 1e9 - 1 / 400e9), rel=1e-6)


def test_caches_leave_one_worker_one_after_the_other(step: Step) -> None:
    pools = _pools(step, rate=1e9)
    together = Load(prompt=2048, output=4, rate_per_s=1, trace=tuple(Request(0.0, 2048, 4) for _ in range(6)))
    last = max(one.ttft_s for one in simulate_pools(pools, together))
    assert last > 6 * pools.transfer_s(2048)


def test_chunks_of_sglang_leave_while_the_next_is_computed() -> None:
    pools = _pools(_step("sglang"), rate=10e9)
    long = 4.0 * pools.prefill.on.chunk_tokens
    assert pools.exposed_s(long) == pytest.approx(pools.transfer_s(long) / 4)
    whole = _pools(_step("vllm"), rate=10e9)
    assert whole.exposed_s(long) == whole.transfer_s(long)


def test_more_prefill_workers_raise_the_rate_while_prompts_bind(step: Step) -> None:
    load = Load(prompt=6000, output=16, concurrency=64)
    one, two = (steady_pools(_pools(step, workers), load) for workers in (1, 2))
    assert two.requests_per_s > 1.8 * one.requests_per_s
    assert one.most_per_s == one.most_prefill_per_s < one.most_decode_per_s


def test_a_full_decode_pool_makes_caches_wait_and_preempts_none_forever(step: Step) -> None:
    small = Step(msgspec.structs.replace(step.on, pool_tokens=6000))
    pools = Pools(prefill=step, decode=small, rate_bytes_per_s=50e9)
    served = simulate_pools(pools, Load(prompt=1000, output=300, concurrency=16), count=48, all_of_it=True)
    assert len(served) == 48
    assert _mean(served, "ttft_s") > 2 * _mean(
        simulate_pools(_pools(step), Load(prompt=1000, output=300, concurrency=16)), "ttft_s"
    )


def test_the_answer_tells_both_pools_and_adds_up() -> None:
    words = {"disagg": "2P1D", "tp": 4, "prefill_tp": 2, "prompt": 2048, "output": 128, "concurrency": 8, "slo": "ttft=1s"}
    asked = serving_question("meta-llama/Llama-3.1-8B-Instruct", gpu="H100x8", **words)
    found = forecast_serving(asked.question).speed
    ttft, tpot = found["terms"]
    assert {part.name for part in ttft.terms} >= {"ingestion", "prefill", "transfer"}
    assert [part.name for part in tpot.terms] == ["decode_step"]
    assert ttft.seconds == pytest.approx(found["ttft_s"])
    assert found["pools"]["prefill_cards"] == 2
    assert found["pools"]["decode_cards"] == 4
    assert found["tokens_per_s_per_gpu"] == pytest.approx(found["tokens_per_s"] / 8)
    assert found["within_slo"] == 1.0


def test_clients_are_shared_out_among_decode_workers() -> None:
    asked = serving_question("Qwen/Qwen3-8B", gpu="H100x3", disagg="1P2D", prompt=512, output=64, concurrency=10)
    assert asked.question.concurrency == 5
    assert asked.question.traffic.pools.clients == 10
    assert asked.question.gpus == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"disagg": "2x1"}, "for example 2P1D"),
        ({"disagg": "0P1D"}, "expected 1 to"),
        ({"prefill_tp": 2}, "say how many of each"),
        ({"disagg": "2P1D", "tp": 4}, "take 12 cards, --gpu names 8"),
        ({"disagg": "2P1D"}, "8 cards among 3 workers"),
        ({"disagg": "1P1D", "pp": 2}, "leave --pp out"),
        ({"disagg": "1P1D", "transfer_link": "string"}, "unknown link"),
    ],
)
def test_pools_that_cannot_be_are_refused(words: dict, said: str) -> None:
    with pytest.raises(QuestionError, match=said):
        serving_question("Qwen/Qwen3-8B", gpu="H100x8", prompt=512, output=64, **words)


def test_engines_without_such_workers_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["serve", "Qwen/Qwen3-8B", "--gpu", "4090", "--engine", "llama.cpp", "--quant", "Q4_K_M", "--disagg", "1P1D"]
    assert cli.run(line) == 2
    assert "--disagg is for vllm, sglang and tensorrt_llm" in capsys.readouterr().err


def test_the_curve_is_of_all_workers(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["serve", "Qwen/Qwen3-8B", "--gpu", "H100x3", "--disagg", "1P2D", "--prompt", "512", "--output", "64", "--curve"]
    assert cli.run([*line, "--json"]) == 0
    points = msgspec.json.decode(capsys.readouterr().out)["curve"]
    assert points[0]["concurrency"] == 1
    assert points[3]["tokens_per_s"] > 4 * points[0]["tokens_per_s"]


def test_a_full_prefill_step_holds_a_prompt_of_one_token_for_each_of_its_tokens(step: Step) -> None:
    """The most that a prefill worker takes: the step's budget over its time, also where a prompt is a single token."""
    found = steady_pools(_pools(step), Load(prompt=1, output=8, rate_per_s=1))
    whole = step.seconds(Batch(prefills=step.on.chunk_tokens, prefill_tokens=1))
    assert found.most_prefill_per_s == pytest.approx(step.on.chunk_tokens / whole)
