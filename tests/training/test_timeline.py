"""The formula beside each state is arithmetic that comes to the term's own bytes."""

import msgspec
import pytest

from vramcast import Training, forecast
from vramcast.quantity import evaluated
from vramcast.workload import Parallel

LLAMA, MOE = "meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B"
ASKED = [
    Training(model=LLAMA),
    Training(model=LLAMA, method="lora"),
    Training(model=LLAMA, gpus=8, parallel=Parallel(dp=8), zero=3),
    Training(model=LLAMA, gpus=8, parallel=Parallel(dp=8), zero=1, framework="deepspeed"),
    Training(model=LLAMA, gpus=8, parallel=Parallel(dp=8), fsdp=2, framework="torchtitan"),
    Training(model=MOE, gpus=8, parallel=Parallel(dp=8, ep=8), framework="megatron"),
    Training(model=MOE, gpus=32, parallel=Parallel(dp=16, tp=2, ep=8), framework="megatron"),
]
STATES = ("weights", "gradients", "optimizer", "master_weights")


@pytest.mark.parametrize("question", ASKED, ids=lambda q: f"{q.framework}-{q.method}-dp{q.parallel.dp}-ep{q.parallel.ep}")
def test_the_formula_comes_to_the_bytes(question: Training) -> None:
    rank = forecast(question).worst
    states = {t.name: t for i in rank.instants for t in i.terms if t.name in STATES}
    assert len(states) >= 3
    for term in states.values():
        assert evaluated(term.why) == pytest.approx(term.bytes, abs=1), term.why


@pytest.mark.parametrize("question", ASKED, ids=lambda q: f"{q.framework}-{q.method}-dp{q.parallel.dp}-ep{q.parallel.ep}")
def test_every_formula_of_every_moment_comes_to_its_bytes(question: Training) -> None:
    """Also of what is gathered, kept, copied and lost to the loss; only what waits for backward is an average in words."""
    for instant in forecast(question).worst.instants:
        for term in instant.terms:
            if term.name != "activations":
                assert evaluated(term.why) == pytest.approx(term.bytes, abs=1, rel=1e-9), (instant.name, term.name, term.why)


@pytest.mark.parametrize("question", [q for q in ASKED if q.framework != "deepspeed"], ids=lambda q: f"{q.framework}-{q.model}")
def test_what_waits_for_backward_opens_to_the_operations_that_made_it(question: Training) -> None:
    plain = msgspec.structs.replace(question, checkpointing="none", seq=1024)
    (end,) = (i for i in forecast(plain).worst.instants if i.name == "end of forward")
    waiting = next(t for t in end.terms if t.name == "activations")
    parts = {t.name: t.bytes for t in waiting.terms}
    assert sum(parts.values()) == waiting.bytes
    assert {"saved.norm", "saved.attention"} <= parts.keys()
    flash_output_and_statistics = 1024 * 32 * (128 * 2 + 4)
    layers = 48 if question.model == MOE else 32
    random_state = 24
    assert parts["saved.attention"] == layers * (flash_output_and_statistics // question.parallel.tp + random_state)


def test_the_steps_temporaries_say_what_they_are() -> None:
    question = Training(model=LLAMA, framework="pytorch", seq=64, options={"update": "foreach"})
    step = forecast(question).worst.instants[-1]
    (term,) = (t for t in step.terms if t.name == "temporaries")
    assert "lists of a foreach step" in term.why
    assert evaluated(term.why) == pytest.approx(term.bytes, abs=1)
    assert term.source == "torch 2.13, optim/adamw.py: _multi_tensor_adamw"
