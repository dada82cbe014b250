"""Encoders make one vector of a text: time to it, and no figure of tokens."""

import pytest

import vramcast
from vramcast.errors import QuestionError

MODEL = "BAAI/bge-m3"


def test_a_vector_has_a_time_and_no_tokens() -> None:
    found = vramcast.serve(MODEL, gpu="3090", prompt=500, concurrency=4).speed
    assert found["ttft_s"] > 0 and found["prefill_tokens_per_s"] > 0 and found["largest_rate_per_s"] > 0
    assert not {"tpot_s", "tokens_per_s", "tokens_per_s_per_user", "e2e_s", "waves"} & set(found)
    assert [term.name for term in found["terms"]] == ["ttft"] and set(found["intervals"]) <= {"ttft_s"}


def test_under_a_rate_no_time_per_token_is_told() -> None:
    assert set(vramcast.serve(MODEL, gpu="3090", prompt=500, rate=20).speed["percentiles"]) == {"ttft_s", "e2e_s"}


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
