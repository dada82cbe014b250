"""Quantities keep value, unit and formula together, for numbers and for arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramcast.ledger import Term, either
from vramcast.quantity import (
    FLOPS,
    Quantity,
    binding,
    bytes_,
    ceil_div,
    element,
    evaluated,
    extent,
    floored,
    flops,
    is_nothing,
    largest,
    maximum,
    named,
    rate,
    rounded,
    seconds,
    smallest,
    where,
)

LEAVES = st.one_of(
    st.integers(1, 10**9).map(lambda n: named(n, "tokens of 32-bit")),
    st.floats(0.001, 1e9).map(lambda x: named(x, "factor")),
)
JOINS = [
    lambda a, b: a + b,
    lambda a, b: a * b,
    lambda a, b: a - b,
    lambda a, b: a / (b * b + 1),
    largest,
    smallest,
    lambda a, b: ceil_div(a, b * b + 1),
    lambda a, b: rounded(a) + b,
]
TREES = st.recursive(LEAVES, lambda t: st.tuples(st.sampled_from(JOINS), t, t).map(lambda p: p[0](p[1], p[2])), max_leaves=12)


@given(TREES)
def test_the_formula_that_is_written_evaluates_to_the_value(quantity: Quantity) -> None:
    scale = max(1.0, *(abs(v) for v in _values(quantity)))
    assert evaluated(quantity.why) == pytest.approx(quantity.value, rel=1e-6, abs=1e-6 * scale)


def _values(quantity: Quantity):
    yield quantity.value
    for part in quantity._args:
        if isinstance(part, Quantity):
            yield from _values(part)


def test_a_formula_reads_as_an_engineer_would_write_it() -> None:
    cache = named(32, "layers") * named(2, "K and V") * named(8, "KV heads") * named(128, "wide") * bytes_(2, "each")
    assert cache.why == "32 layers x 2 K and V x 8 KV heads x 128 wide x 2 B each"
    assert cache.value == 131_072
    assert ((bytes_(6) + bytes_(2)) / named(4, "ranks")).why == "(6 B + 2 B) / 4 ranks"


def test_time_is_bytes_over_bandwidth() -> None:
    read = bytes_(3.35e12, "of weights") / rate(3.35e12, "of HBM")
    assert (read.value, read.unit_name) == (1.0, "s")
    assert (flops(2e15) / rate(1e15, of=FLOPS) + seconds(1)).value == 3.0


def test_bytes_are_not_added_to_seconds() -> None:
    with pytest.raises(TypeError, match="cannot add B and s"):
        bytes_(1) + seconds(1)
    with pytest.raises(TypeError, match="different units"):
        Term.total("both", [Term(name="a", bytes=1), Term(name="b", seconds=1.0)])


def test_arrays_answer_as_each_of_their_numbers() -> None:
    tokens, ranks = np.array([1, 500, 4096]), np.array([8, 3, 1])

    def size(t, r):
        return largest(ceil_div(named(t, "tokens"), named(r, "ranks")) * bytes_(7, "each"), bytes_(100)) + rounded(
            bytes_(t * 0.3)
        )

    many = size(tokens, ranks)
    assert many.value.tolist() == [size(t, r).value for t, r in zip(tokens.tolist(), ranks.tolist(), strict=True)]
    assert many.at(1).why == size(500, 3).why


def test_a_term_of_arrays_gives_the_term_of_one_layout() -> None:
    parts = [
        Term(name="kv", amount=bytes_(2, "each") * named(np.array([1, 2]), "tokens")),
        Term(name="fixed", bytes=5, why="given"),
    ]
    whole = Term.total("cache", parts)
    assert whole.at(1).bytes == 9
    assert whole.at(1).terms[0].why == "2 B each x 2 tokens"


def test_helpers_take_numbers_and_arrays() -> None:
    assert maximum(1, 2) == 2
    assert maximum(np.array([1, 5]), 2).tolist() == [2, 5]
    assert where(np.array([True, False]), 1, 2).tolist() == [1, 2]
    assert where(False, 1, 2) == 2


@pytest.mark.parametrize("text", ["", "4 tokens x", "max(3, 4", "tokens", "3 ) 4"])
def test_text_that_is_no_formula_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no formula|no closing bracket"):
        evaluated(text)


def test_numbers_and_arrays_answer_to_the_same_helpers() -> None:
    values = np.array([3.7, 0.0, 9.2])
    assert floored(3.7) == 3
    assert floored(values).tolist() == [3, 0, 9]
    assert extent(7) == (7, 7)
    assert extent(values) == (0.0, 9.2)
    assert is_nothing(0)
    assert not is_nothing(values)
    assert is_nothing(values * 0)
    assert element(values, 2) == 9.2
    assert element(5, 2) == 5


def test_the_part_that_binds_keeps_its_own_formula() -> None:
    small, large = named(2, "layers") * bytes_(3), named(4, "heads") * bytes_(5)
    assert binding(small, large).why == "4 heads x 5 B"
    both = binding(small, named(np.array([1, 9]), "rows") * bytes_(1))
    assert both.value.tolist() == [6, 9]


def test_terms_of_many_layouts_are_chosen_element_by_element() -> None:
    mixer, experts = Term(name="widest", bytes=np.array([5, 5])), [Term(name="widest", bytes=2), Term(name="workspace", bytes=2)]
    chosen = either(np.array([True, False]), [mixer], experts)
    assert [(t.name, t.bytes.tolist()) for t in chosen] == [("widest", [5, 2]), ("workspace", [0, 2])]
    assert either(True, [mixer], experts) == (mixer,)
    assert either(False, [mixer], experts) == tuple(experts)
