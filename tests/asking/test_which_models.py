"""Which of today's models a card runs: each row is the answer of its flags, and a larger card runs no fewer."""

import json
import shlex

import pytest

from vramcast.asking.ways import Way, least_lossy
from vramcast.asking.which_models import Choices, models_for
from vramcast.cli import run
from vramcast.ledger import Fit
from vramcast.models.reading import read_model
from vramcast.models.reading.known import CURRENT


@pytest.fixture(scope="module")
def on_a_3060() -> Choices:
    return models_for("3060")


def test_every_listed_model_is_in_the_catalogue_and_its_short_name_means_it() -> None:
    assert len(set(CURRENT)) == len(CURRENT)
    for one in CURRENT:
        assert read_model(one).id == one
        assert [taken.value for taken in read_model(one.rpartition("/")[2]).assumed if taken.name == "model"] == [one]


def test_rows_are_what_their_flags_answer(on_a_3060: Choices, capsys: pytest.CaptureFixture[str]) -> None:
    for choice in (on_a_3060.models[0], on_a_3060.models[-1]):
        run(["serve", choice.model, *shlex.split(f"{on_a_3060.gpu_flag} {choice.way.flags}"), "--json"])
        answer = json.loads(capsys.readouterr().out)
        assert answer["fit"]["verdict"] == choice.way.fit.verdict
        assert max(rank["needed_bytes"] for rank in answer["memory"]["per_gpu"]) == choice.way.needed_bytes


def test_models_stand_largest_first_and_none_is_lost(on_a_3060: Choices) -> None:
    sizes = [one.parameters for one in on_a_3060.models]
    assert sizes == sorted(sizes, reverse=True)
    assert {one.model for one in on_a_3060.models} | set(on_a_3060.left_out) == set(CURRENT)
    assert on_a_3060.asked == len(CURRENT) and 8 <= len(sizes) <= 30


def test_a_larger_card_runs_all_that_a_smaller_one_does(on_a_3060: Choices) -> None:
    larger = models_for("3090")
    assert {one.model for one in on_a_3060.models} < {one.model for one in larger.models}


def test_what_trains_also_runs_and_methods_are_named(on_a_3060: Choices) -> None:
    trained = models_for("3060", task="train")
    assert 0 < len(trained.models) < on_a_3060.asked and {one.model for one in trained.models} <= {
        one.model for one in on_a_3060.models
    }
    assert {one.way.how for one in trained.models} <= {"full", "full, 8-bit AdamW", "LoRA", "QLoRA"}


def test_what_loses_least_is_the_first_of_the_heaviest() -> None:
    def way(program: str, weights: int, verdict: str, task: str = "run") -> Way:
        return Way(task=task, program=program, how=program, flags="", weights_bytes=weights, fit=Fit(verdict=verdict))

    fp8, q8, awq = way("fp8", 80, "fits"), way("Q8_0", 85, "fits"), way("awq", 42, "fits")
    assert least_lossy([way("bf16", 160, "tight"), fp8, awq, q8]) is fp8
    assert least_lossy([awq, q8]) is q8
    assert least_lossy([way("bf16", 160, "no"), way("Q8_0", 85, "tight")]).how == "Q8_0"  # type: ignore[union-attr]
    assert least_lossy([way("bf16", 160, "no")]) is None
    assert least_lossy([way("full", 10, "fits", "train"), way("LoRA", 20, "fits", "train")]).how == "full"  # type: ignore[union-attr]
