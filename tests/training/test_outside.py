"""The ledger of a rank sums to what the driver would show, whatever shares the card."""

import pytest

from vramcast import Training, forecast
from vramcast.cli.output import as_contract
from vramcast.cli.pages.answer import training_page
from vramcast.workload import Parallel

LLAMA = "meta-llama/Llama-3.1-8B"
ASKED = [
    {},
    {"method": "qlora", "checkpointing": "full"},
    {"gpus": 8, "parallel": Parallel(dp=8), "zero": 3, "accumulate": 4},
    {"gpus": 16, "framework": "megatron", "parallel": Parallel(tp=4, pp=4), "accumulate": 8},
    {"method": "grpo"},
]


@pytest.mark.parametrize("given", ASKED)
def test_terms_sum_to_the_device_counter_on_every_rank(given: dict[str, object]) -> None:
    answer = forecast(Training(model=LLAMA, gpu="H100", seq=2048, **given))  # type: ignore[arg-type]
    for rank in answer.ranks:
        assert sum(t.bytes for t in rank.terms) == rank.device_bytes
        assert all(sum(part.bytes for part in t.terms) == t.bytes for t in rank.terms if t.terms)
        assert len({t.name for t in rank.terms}) == len(rank.terms)
        assert min(t.bytes for t in rank.terms) > 0


def test_the_first_step_lacks_the_states_of_the_optimizer() -> None:
    answer = forecast(Training(model=LLAMA, gpu="H100", seq=2048, method="lora"))
    rank = as_contract(answer)["memory"]["per_gpu"][0]
    optimizer = next(t["bytes"] for t in rank["terms"] if t["name"] == "optimizer")
    peak = max(i["bytes"] for i in rank["instants"])
    assert peak - optimizer <= rank["first_step_bytes"] < peak


def test_the_page_names_the_margin_to_the_next_instant_and_the_three_counters(capsys: pytest.CaptureFixture[str]) -> None:
    training_page(forecast(Training(model=LLAMA, gpu="H100", seq=2048, method="lora")), terminal=False).show()
    text = capsys.readouterr().out
    assert " above " in text and "the first step of all begins without optimizer states and peaks at" in text
    assert "allocated" in text and "reserved" in text and "device" in text
