"""Requests for one token: prompts alone, no more a second than full steps of them, against the simulation."""

import pytest

from vramcast.asking.serving import serving_question
from vramcast.serving.engines.base import answer_of
from vramcast.speed.answer import step_of
from vramcast.speed.closed_form import steady
from vramcast.speed.load import Load
from vramcast.speed.simulation import simulate
from vramcast.speed.step import Step


@pytest.fixture(scope="module")
def step() -> Step:
    asked = serving_question("meta-llama/Llama-3.1-8B-Instruct", gpu="L4", prompt=2000, output=1, context=4000, concurrency=16)
    return step_of(answer_of(asked.question))


@pytest.mark.parametrize("clients", [1, 4, 16, 64])
def test_no_more_requests_than_the_largest_rate_and_every_client_is_somewhere(step: Step, clients: int) -> None:
    found = steady(step, Load(prompt=2000, output=1, concurrency=clients))
    assert found.requests_per_s <= found.most_per_s
    assert found.requests_per_s * (found.ttft_s + step.on.engine.return_s) == pytest.approx(clients)


@pytest.mark.parametrize("clients", [1, 16, 64])
def test_as_many_a_second_as_the_simulation_serves(step: Step, clients: int) -> None:
    load = Load(prompt=2000, output=1, concurrency=clients)
    served = simulate(step, load, count=40 * clients)
    span = max(one.arrival_s + one.e2e_s for one in served) - min(one.arrival_s for one in served)
    assert steady(step, load).requests_per_s == pytest.approx(len(served) / span, rel=0.1)
