"""Refusals that people pasted: the same settings must print the same numbers (threads named beside each)."""

import pytest

from vramcast.serving.engines.vllm.engine import NO_BLOCKS, cache_error
from vramcast.serving.engines.vllm.pages import Demand, Paged, plan
from vramcast.units import GiB

PLAIN = Demand(in_flight=0)


@pytest.mark.parametrize(
    ("context", "needed_gib", "pool_gib", "printed", "slack"),
    [
        (262144, 24.0, 3.18, 34736, 64),  # vllm-project/vllm#34076
        (221000, 10.12, 5.59, 122080, 160),  # vllm-project/vllm#25350
    ],
)
def test_estimated_length_follows_from_the_two_sizes(context, needed_gib, pool_gib, printed, slack) -> None:
    token = round(needed_gib * GiB / context)
    pages = plan([Paged("full", token, 0, 0, 1)], (0, 11))
    blocks = int(pool_gib * GiB) // pages.block_bytes
    assert pages.longest(blocks, PLAIN, context) == pytest.approx(printed, abs=slack)  # sizes are printed with two decimals


def test_v1_text_has_the_needed_and_the_available_sizes() -> None:
    text = cache_error(
        (0, 11), "V1", context=262144, needed_bytes=24 * GiB, pool_bytes=round(3.18 * GiB), tokens=34736, longest=34736
    )
    assert "the models's max seq len (262144), (24.00 GiB KV cache is needed" in text
    assert "larger than the available KV cache memory (3.18 GiB)" in text
    assert "estimated maximum model length is 34736" in text


def test_the_spelling_changed_with_the_version() -> None:
    text = cache_error((0, 33), "V1", context=4096, needed_bytes=2 * GiB, pool_bytes=GiB, tokens=2048, longest=2048)
    assert "the model's max seq len (4096)" in text


@pytest.mark.parametrize(("context", "tokens"), [(4096, 3664), (128000, 78336), (163840, 13360), (32768, 7344)])
def test_v0_text_counts_tokens(context, tokens) -> None:
    text = cache_error((0, 5), "V0", context=context, needed_bytes=1, pool_bytes=1, tokens=tokens, longest=0)
    assert (
        f"max seq len ({context}) is larger than the maximum number of tokens that can be stored in KV cache ({tokens})" in text
    )


def test_nothing_left_is_its_own_message() -> None:
    assert cache_error((0, 19), "V1", context=1, needed_bytes=1, pool_bytes=-1, tokens=0, longest=0) == NO_BLOCKS


def test_a_request_that_fits_is_no_error() -> None:
    assert cache_error((0, 19), "V1", context=1, needed_bytes=1, pool_bytes=GiB, tokens=99, longest=99) == ""
