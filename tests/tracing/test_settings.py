"""PYTORCH_ALLOC_CONF: what is accepted, what it means, what is refused."""

import pytest

from vramcast.errors import QuestionError
from vramcast.tracing.allocator.settings import AllocatorSettings, parse_alloc_conf
from vramcast.units import MiB


def test_an_empty_text_is_pytorchs_defaults() -> None:
    assert parse_alloc_conf("") == AllocatorSettings()


def test_options_are_read_with_spaces_and_lists() -> None:
    read = parse_alloc_conf("expandable_segments:True, max_split_size_mb:128,roundup_power2_divisions:[256:1,512:2,>:8]")
    assert read.expandable_segments
    assert read.max_split_size_bytes == 128 * MiB
    assert read.roundup_power2_divisions == (1,) * 9 + (2,) + (8,) * 6


def test_roundup_power2_divisions_round_between_powers_of_two() -> None:
    rounding = parse_alloc_conf("roundup_power2_divisions:4").rounding()
    assert rounding(1200 * 1024) == 1280 * 1024  # 1200 KiB lies between 1024 and 2048 in steps of 256
    assert rounding(2 * MiB) == 2 * MiB
    assert rounding(700) == 1024


def test_large_segments_can_be_made_larger() -> None:
    assert parse_alloc_conf("large_segment_size_mb:40").segment_bytes(2 * MiB) == 40 * MiB


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("expandable_segment:True", "unknown allocator option 'expandable_segment': did you mean expandable_segments"),
        ("max_split_size_mb:lots", "PYTORCH_ALLOC_CONF max_split_size_mb is 'lots'"),
        ("backend:cudaMallocAsync", "only backend:native is modelled"),
        ("garbage_collection_threshold:1.5", "expected a fraction above 0"),
        ("roundup_power2_divisions:[256:3]", "3 is not a power of two"),
        ("max_split_size_mb", "is not name:value"),
    ],
)
def test_bad_settings_are_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(QuestionError, match=message.replace("[", r"\[")):
        parse_alloc_conf(text)
