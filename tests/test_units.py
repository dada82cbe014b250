"""Sizes and counts: GB and GiB never confused, every refusal says what to write instead."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramcast.errors import QuestionError, VramcastError
from vramcast.units import GB, GiB, count, gib, parse_bytes, parse_count


@pytest.mark.parametrize(
    ("text", "expected"),
    [("24GiB", 24 * GiB), ("24 GB", 24 * GB), ("1.5gib", 3 * GiB // 2), ("512MiB", 2**29), ("80gb", 80 * GB), ("1_000 B", 1000)],
)
def test_sizes(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("128k", 128_000), ("128K", 131_072), ("4096", 4096), ("1m", 10**6), ("2,048", 2048)]
)
def test_counts(text: str, expected: int) -> None:
    assert parse_count(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("24", "write 24GB (10^9) or 24GiB (2^30)"),
        ("24XB", "unknown unit 'XB'"),
        ("-3GiB", "is not a number: write for example 24GiB"),
        ("nanGiB", "is not a number: write for example 24GiB"),
        ("", "is not a number: write for example 24GiB"),
        ("9" * 40 + "GiB", "out of range"),
    ],
)
def test_refusals_say_what_to_write(text: str, message: str) -> None:
    with pytest.raises(QuestionError, match=message.replace("(", r"\(").replace(")", r"\)").replace("^", r"\^")):
        parse_bytes(text)


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_bytes, parse_count):
        try:
            assert 0 <= parse(text) <= 10**18
        except VramcastError as error:
            assert len(str(error)) < 300


def test_printing() -> None:
    assert gib(12.551 * GiB) == "12.55 GiB"
    assert gib(5 * 2**20) == "5.0 MiB"
    assert gib(0) == "0 B"
    assert count(8_030_261_248) == "8.03 B"
    assert count(1024) == "1,024"
