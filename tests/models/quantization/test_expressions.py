"""Expressions of strangers match as Python's do, in time that no expression can blow up."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramcast.errors import ConfigError
from vramcast.models.quantization.expressions import Expression, compiled

NAMES = st.text("ab.01", max_size=12)
ATOMS = st.sampled_from(["a", "b", ".", r"\.", r"\d", r"\w", "[ab]", "[^a]", "0", "$", "^", r"\b", "(?!b)", "(?=a)"])
PATTERNS = st.recursive(
    ATOMS,
    lambda p: st.one_of(
        st.tuples(p, p).map("".join),
        st.tuples(p, p).map(lambda t: f"(?:{t[0]}|{t[1]})"),
        st.tuples(p, st.sampled_from(["*", "+", "?", "{0,2}", "{2}", "*?"])).map(lambda t: f"(?:{t[0]}){t[1]}"),
    ),
    max_leaves=8,
)


@given(PATTERNS, NAMES)
def test_they_match_as_pythons_own_do(pattern: str, name: str) -> None:
    assert Expression(pattern).match(name) is (re.match(pattern, name) is not None)


@pytest.mark.parametrize("repeat", ["?", "*", "+", "{2}", "{1,3}", "{2,}", "{0,1}", "*?", "??"])
def test_a_repeat_takes_as_many_as_it_says(repeat: str) -> None:
    found = [Expression(f"a{repeat}$").match("a" * count) for count in range(6)]
    assert found == [re.match(f"a{repeat}$", "a" * count) is not None for count in range(6)]


@pytest.mark.parametrize(
    "pattern", [r"(\w|.)*!", ".*" * 12 + "!", "(a+)+$", "(?:.?){100}.*!", ".*(?:.?.?.?)*" * 20 + "!", "(?!.*a.*a.*a!).*!"]
)
def test_no_expression_takes_long(pattern: str) -> None:
    started = time.process_time()
    assert not compiled(pattern).match("model.layers.0.self_attn.q_proj" * 4 + "aaaaaaaaaaaa")
    assert time.process_time() - started < 1


@pytest.mark.parametrize("pattern", ["(", "a)", "[a", "*a", r"(a)\1", "(?<=a)b", "a{9999}", "(" * 3000, r"\q"])
def test_what_is_not_read_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"which is not read|at most"):
        compiled(pattern)
