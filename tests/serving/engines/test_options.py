"""Every flag of every engine is held against its table at one place: type, bounds and known words."""

from collections.abc import Iterator
from typing import Any

import pytest

from vramcast.errors import QuestionError
from vramcast.serving.engines import engine, engine_names
from vramcast.serving.engines.options import Option, checked

ALL = [(name, option) for name in engine_names() for option in engine(name).options]
NUMBERS = ("int", "positive", "count", "bytes", "float", "fraction")


def _wrong(option: Option) -> Iterator[Any]:
    if option.kind in NUMBERS:
        least, most = option.bounds
        yield from (least - 1, most + 1, float("nan"), float("inf"), -float("inf"), 10**18, "some", True, [1])
        if option.kind not in ("float", "fraction"):
            yield 1.5
    elif option.kind == "bool":
        yield from (1, 0, "on", [True])
    elif option.kind == "text":
        yield from (1, True, ["a"], *(("zzzz", "") if option.choices else ()))
    elif option.kind == "shares":
        yield from ([], [0, 0], [float("nan")], [-1, 2], [float("inf")], ["1"], [1] * 129, 3)
    elif option.kind == "counts":
        yield from ({"q4_k": -1}, {"q4_k": 1.5}, {"q4_k": True}, {1: 1}, ["q4_k"], "q4_k:1")
    else:
        assert option.kind == "list"
        yield from ("a,b", [1], 3)


@pytest.mark.parametrize(("name", "option"), ALL, ids=lambda x: x if isinstance(x, str) else x.name)
def test_what_cannot_be_is_refused_with_what_can(name: str, option: Option) -> None:
    for value in _wrong(option):
        with pytest.raises(QuestionError, match=option.name):
            checked({option.name: value}, engine(name).options, name)


@pytest.mark.parametrize(("name", "option"), ALL, ids=lambda x: x if isinstance(x, str) else x.name)
def test_both_ends_of_a_range_and_every_known_word_pass(name: str, option: Option) -> None:
    if option.kind in NUMBERS:
        least, most = option.bounds
        assert least < most
        for value in (least, most):
            assert checked({option.name: value}, engine(name).options, name) == {option.name: value}
    for word in option.choices:
        assert checked({option.name: word.upper()}, engine(name).options, name) == {option.name: word}
    assert checked({option.name: None}, engine(name).options, name) == {option.name: None}


def test_an_unknown_flag_or_word_is_answered_with_the_nearest() -> None:
    options = engine("vllm").options
    with pytest.raises(QuestionError, match="did you mean max_num_seqs"):
        checked({"max_num_seq": 3}, options, "vllm")
    with pytest.raises(QuestionError, match="unknown value for attention_backend 'flashinfr': did you mean flashinfer"):
        checked({"attention_backend": "flashinfr"}, options, "vllm")
    with pytest.raises(QuestionError, match=r"block_size is 0: vllm takes 1 to 1,048,576 \(tokens per cache block\)"):
        checked({"block_size": 0}, options, "vllm")
