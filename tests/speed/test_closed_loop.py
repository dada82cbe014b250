"""A closed loop's state is found in few steps: it is the one that many small steps reach, alone and in arrays."""

import numpy as np
import pytest

from vramcast.asking.serving import serving_question
from vramcast.serving.engines.base import answer_of
from vramcast.speed.answer import step_of
from vramcast.speed.closed_form import _limit, _Solver, steady
from vramcast.speed.load import Load


def _step():
    asked = serving_question("meta-llama/Llama-3.1-8B-Instruct", gpu="H100", engine="vllm", context=8192, prompt=2000, output=300)
    return step_of(answer_of(asked.question))


def _by_small_steps(step, load) -> float:
    """The sequences alive after 200 steps of a half each."""
    solver = _Solver(step, load)
    seats = min(max(1.0, load.concurrency), solver.room())
    batch, rate = seats, 0.0
    for _ in range(200):
        prompt = solver.prompt_s(batch - 1, solver._together(rate))
        alone = solver._idle_s(prompt)
        rate = batch / (solver.output * (solver.decode_s(batch) + (batch - 1) * prompt / solver.output) + alone)
        batch = max(1.0, min(seats, 0.5 * batch + 0.5 * (seats - rate * alone)))
    return batch


@pytest.mark.parametrize("clients", [2, 7, 33, 120])
def test_the_state_is_that_of_many_small_steps(clients: int) -> None:
    step, load = _step(), Load(prompt=2000, output=300, concurrency=clients, spread=1.0)
    assert steady(step, load).batch == pytest.approx(_by_small_steps(step, load), rel=1e-8)


def test_an_array_is_its_elements() -> None:
    step, load = _step(), Load(prompt=2000, output=300, concurrency=64, spread=1.0)
    copies = np.array([1.0, 2.0, 4.0, 16.0])
    found = steady(step, load, replicas=copies, largest=False)
    alone = [steady(step, load, replicas=one, largest=False) for one in copies.tolist()]
    for name in ("ttft_s", "tpot_s", "requests_per_s"):
        np.testing.assert_allclose(getattr(found, name), [getattr(one, name) for one in alone], rtol=1e-8)


def test_where_steps_lead() -> None:
    assert _limit(1.0, 0.5, 0.25) == 0.0  # halves end at nothing
    assert _limit(1.0, 0.0, 2.0) == 2.0  # steps that grow lead nowhere
    assert _limit(3.0, 3.0, 3.0) == 3.0
    np.testing.assert_array_equal(_limit(np.array([1.0, 1.0]), np.array([0.5, 0.0]), np.array([0.25, 2.0])), [0.0, 2.0])
