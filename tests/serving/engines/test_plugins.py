"""Chips that vLLM runs on through a plugin of their maker: answered when named, said to be unmeasured, never proposed."""

import pytest

from vramcast import Serving, forecast
from vramcast.hardware.accelerator import catalogue
from vramcast.hardware.cards import find_accelerator
from vramcast.planning.cards import cards_that_hold
from vramcast.serving.engines.base import PLUGINS, answer_of, why_not

QUESTION = Serving(model="Qwen/Qwen2.5-7B-Instruct", gpu="Ascend 910B", engine="vllm", context=8192)


@pytest.mark.parametrize("chip", sorted(PLUGINS))
def test_every_chip_of_a_plugin_is_one_of_the_catalogue(chip: str) -> None:
    cards = [card for card in catalogue().values() if card.architecture == chip]
    assert cards and not any(why_not("vllm", card) for card in cards)


def test_a_plugins_answer_says_what_was_never_measured_and_is_less_sure() -> None:
    ascend, radeon = forecast(QUESTION), forecast(Serving(**{**vars_of(QUESTION), "gpu": "W7900"}))
    assert [what.what.split()[0] for what in ascend.unmodelled] == ["vllm-ascend"]
    assert not radeon.unmodelled
    wide, known = (answer.worst.interval for answer in (ascend, radeon))
    assert wide.high_bytes - ascend.worst.needed_bytes > known.high_bytes - radeon.worst.needed_bytes


def test_sglang_has_no_such_plugin() -> None:
    assert "no build for Da Vinci" in why_not("sglang", find_accelerator("Ascend 910B"))


def test_chips_of_plugins_are_not_proposed() -> None:
    model = answer_of(QUESTION).resolved.model
    named = {row.gpu for row in cards_that_hold(QUESTION, model, most=40)}
    assert named and not any(card.name in named for card in catalogue().values() if card.architecture in PLUGINS)


def vars_of(question: Serving) -> dict[str, object]:
    """The fields of a question that were given."""
    return {name: getattr(question, name) for name in ("model", "gpu", "engine", "context")}
