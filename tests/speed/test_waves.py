"""Clients who all send one length move in waves: the closed form against the simulation and against what was measured."""

import msgspec
import pytest

from vramcast.asking.serving import serving_question
from vramcast.serving.engines.base import answer_of
from vramcast.speed.answer import LENGTH_SPREAD, serving_speed, step_of
from vramcast.speed.closed_form import steady
from vramcast.speed.load import Load, drawn
from vramcast.speed.simulation import Server, simulate


def _answer(engine="vllm", **words):
    asked = serving_question("meta-llama/Llama-3.1-8B-Instruct", gpu="H100", engine=engine, context=8192, **words)
    return answer_of(asked.question)


def _mean(served, name):
    return sum(getattr(one, name) for one in served) / len(served)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt_llm"])
@pytest.mark.parametrize("clients", [1, 8, 32, 128])
def test_waves_of_the_closed_form_are_those_of_the_simulation(engine, clients) -> None:
    step, load = step_of(_answer(engine, prompt=1024, output=256)), Load(prompt=1024, output=256, concurrency=clients)
    served, found = simulate(step, load, count=12 * clients + 20), steady(step, load)
    assert found.ttft_s == pytest.approx(_mean(served, "ttft_s"), rel=0.12)
    assert found.tpot_s == pytest.approx(_mean(served, "tpot_s"), rel=0.06)


def test_clients_whose_lengths_vary_meet_few_prompts() -> None:
    step = step_of(_answer(prompt=1024, output=256))
    alike, varied = (Load(prompt=1024, output=256, concurrency=32, spread=spread) for spread in (0.0, LENGTH_SPREAD))
    later = Server(step, varied).run(drawn(varied, 640), clients=32)[320:]
    assert steady(step, varied).ttft_s == pytest.approx(_mean(later, "ttft_s"), rel=0.3)
    assert steady(step, alike).ttft_s > 4 * steady(step, varied).ttft_s


def test_a_wave_that_was_measured() -> None:
    """Qwen3Guard-Gen-8B (Qwen3-8B's shape) on an MI300X: 32 clients, 1,024 in and out, vllm-project/recipes#431: 645 ms."""
    asked = serving_question("Qwen/Qwen3-8B", gpu="MI300X", prompt=1024, output=1024, concurrency=32, length_spread=0)
    assert serving_speed(answer_of(asked.question)).ttft.seconds == pytest.approx(0.645, rel=0.25)


def test_prompts_of_one_step_share_their_launches() -> None:
    """64 short prompts in one step: kernels take them in one call, as the step of all of them says."""
    step = step_of(_answer(prompt=128, output=64))
    server = Server(step, Load(prompt=128, output=64, concurrency=64))
    more, once = server.prefill_s(128, 0)
    from vramcast.models.operations import Batch

    together = step.prefill_seconds(Batch(prefills=64, prefill_tokens=128))
    assert 64 * more + once == pytest.approx(together, rel=1e-6)


def test_the_answer_names_both_kinds_of_clients() -> None:
    speed = serving_speed(_answer(prompt=1024, output=256, concurrency=16))
    assert speed.load.spread == LENGTH_SPREAD
    assert speed.waves.ttft_s > 3 * speed.ttft.seconds
    alone = serving_speed(_answer(prompt=1024, output=256, concurrency=16, length_spread=0))
    assert alone.waves is None
    assert alone.ttft.seconds == pytest.approx(speed.waves.ttft_s, rel=1e-9)
    assert serving_speed(_answer(prompt=1024, output=256)).waves is None
    assert serving_speed(_answer(prompt=1024, output=256, rate=2)).load.spread == 0


def test_fewer_seats_than_clients_wait_for_a_wave_to_end() -> None:
    step = step_of(_answer(prompt=1024, output=256))
    few = type(step)(msgspec.structs.replace(step.on, max_seqs=8))
    load = Load(prompt=1024, output=256, concurrency=24)
    served = Server(few, load).run(drawn(load, 480), clients=24)[120:]
    assert steady(few, load).ttft_s == pytest.approx(_mean(served, "ttft_s"), rel=0.12)


def test_requests_that_come_together_wait_for_one_front_end() -> None:
    """Sixteen prompts of one token: the last of them is taken in fifteen turns later, the mean half of that."""
    step = step_of(_answer(prompt=16, output=64))
    load = Load(prompt=16, output=64, concurrency=16)
    rule = step.on.engine
    free = Server(step, load)
    free.rule = msgspec.structs.replace(rule, front_s=0.0)
    turns, at_once = (server.run(drawn(load, 16), clients=16) for server in (Server(step, load), free))
    later = _mean(turns, "ttft_s") - _mean(at_once, "ttft_s")
    assert rule.front_s > 0
    assert later == pytest.approx(rule.front_s * 15 / 2, rel=0.5)
