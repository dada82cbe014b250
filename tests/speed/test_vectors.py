"""Encoders make one vector of a text: time to it, and no figure of tokens."""

import json
from pathlib import Path

import pytest

import vramcast
from vramcast.cli.pages.answer import serving_page
from vramcast.cli.pages.ledger import term_page
from vramcast.errors import QuestionError

MODEL, POSITIONS_512 = "BAAI/bge-m3", "BAAI/bge-large-en-v1.5"


def test_a_vector_has_a_time_and_no_tokens() -> None:
    found = vramcast.serve(MODEL, gpu="3090", prompt=500, concurrency=4).speed
    assert found["ttft_s"] > 0 and found["prefill_tokens_per_s"] > 0 and found["largest_rate_per_s"] > 0
    assert not {"tpot_s", "tokens_per_s", "tokens_per_s_per_user", "e2e_s", "waves"} & set(found)
    assert [term.name for term in found["terms"]] == ["ttft"] and set(found["intervals"]) <= {"ttft_s"}


def test_under_a_rate_no_time_per_token_is_told() -> None:
    assert set(vramcast.serve(MODEL, gpu="3090", prompt=500, rate=20).speed["percentiles"]) == {"ttft_s", "e2e_s"}


@pytest.mark.parametrize("words", [{"prompt": 512}, {"rate": 5}, {"prompt": 512, "rate": 5}])
def test_a_text_of_all_positions_is_taken(words: dict[str, int]) -> None:
    """The vector takes no position, and a length that nobody typed is never the reason of a refusal."""
    found = vramcast.serve(POSITIONS_512, gpu="l4", **words)
    assert found.speed["ttft_s"] > 0
    with pytest.raises(QuestionError, match="prompt 513 is longer than the 512 tokens"):
        vramcast.serve(POSITIONS_512, gpu="l4", **words | {"prompt": 513})


@pytest.mark.parametrize("model", [POSITIONS_512, "gpt2"])
def test_a_file_of_requests_is_held_to_its_own_lengths(model: str, tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    rows = [{"arrival_s": 0.0, "prompt": 100, "output": 20}, {"arrival_s": 0.1, "prompt": 200, "output": 20}]
    file.write_text("\n".join(map(json.dumps, rows)))
    assert vramcast.serve(model, gpu="l4", workload=str(file)).speed["percentiles"]["ttft_s"]["mean"] > 0
    file.write_text(json.dumps({"arrival_s": 0.0, "prompt": 1100, "output": 20}))
    with pytest.raises(QuestionError, match=r"prompt 1,100 .*longer than the"):
        vramcast.serve(model, gpu="l4", workload=str(file))


def test_lengths_nobody_told_stay_within_the_positions() -> None:
    assumed = {one.name: one.value for one in vramcast.serve("gpt2", gpu="l4", rate=5).assumed}
    assert (assumed["prompt"], assumed["output"]) == (820, 204)  # four parts and one, of 1,024


def test_what_vectors_do_not_have_is_told() -> None:
    found = vramcast.serve(POSITIONS_512, gpu="l4", prompt=500, rate=5, slo="ttft=1s,tpot=50ms")
    assert any("slo tpot" in one.what for one in found.unmodelled)
    assert found.speed["batch"] == pytest.approx(5 * found.speed["ttft_s"])  # Little's law
    with pytest.raises(QuestionError, match="--disagg"):
        vramcast.serve(POSITIONS_512, gpu="l4x2", disagg="1P1D", tp=1)


def test_the_page_of_a_vector_speaks_of_no_token() -> None:
    found = vramcast.serve(POSITIONS_512, gpu="l4", prompt=500, rate=5)
    text = serving_page(found).text()
    assert "time to first token" not in text and text.count("time to a text's vector") == 2
    assert "0.1 at once here" in text
    assert "none here" in term_page(found, "tpot").text()


@pytest.mark.parametrize("words", [{"output": 100}, {"output": 100, "concurrency": 8}])
def test_output_of_an_encoder_is_refused(words: dict[str, int]) -> None:
    with pytest.raises(QuestionError, match="makes a vector"):
        vramcast.serve(MODEL, gpu="3090", prompt=500, **words)


def test_a_curve_of_users_is_refused() -> None:
    from vramcast.asking.curves import curve
    from vramcast.asking.serving import serving_question

    with pytest.raises(QuestionError, match="vectors"):
        curve(serving_question(MODEL, gpu="3090"))


def test_no_cache_is_told_of_an_encoder() -> None:
    """The page once said that none fits."""
    assert vramcast.serve(MODEL, gpu="3090").limits.cache_tokens is None
