"""Sizes of every shape: their algebra is that of the numbers they stand for, and a tape of them is a tape of each."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from vramcast.models.reading import read_model
from vramcast.training.activations.choice import LowRank, Style
from vramcast.training.activations.layer import layer_tape
from vramcast.training.activations.sizes import TOKENS, Length, Peak, Shape, Size, at, chunks_of, highest, reaches
from vramcast.training.recipe.parts import Kernels

STYLES = {
    "eager": Style(kernels=Kernels(attention="eager")),
    "fused": Style(kernels=Kernels(norm="fused", rope="fused", glu="fused")),
    "adapted": Style(trains=False, adapter=LowRank(ranks={"q": 8, "down": 8}, dropout=0.1)),
    "plain scan": Style(kernels=Kernels(scan="torch", experts="grouped")),
    "sharded": Style(tp=2, sp=True, autocast=True, cast_weights=True, residual=4),
}
MODELS = ("meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B", "google/gemma-2-9b-it", "deepseek-ai/DeepSeek-V3")
HYBRIDS = ("nvidia/Nemotron-H-8B-Base-8K", "google/flan-t5-large")
LIVES = ("saved", "input_saved", "forward_peak", "transient_peak", "backward_peak", "weight_gradients", "cached")


@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
@pytest.mark.parametrize("model_id", [*MODELS, *HYBRIDS])
def test_one_replay_answers_for_every_shape(model_id: str, style: Style) -> None:
    model = read_model(model_id, offline=True)
    for block in model.blocks[:3]:
        windows = {w for m in block.mixers for w in (getattr(m, "window", 0), getattr(m, "chunk", 0)) if w}
        for rows, seq in ((1, 256), (3, 1000), (2, 8192)):
            reached = frozenset(w for w in windows if w <= seq)
            every = layer_tape(block, style, hidden=model.hidden, tokens=TOKENS, seq=Length(reached)).life()
            one = layer_tape(block, style, hidden=model.hidden, tokens=float(rows * seq), seq=seq).life()
            shape = Shape(tokens=float(rows * seq), seq=seq)
            for name in LIVES:
                assert at(getattr(every, name), shape) == pytest.approx(getattr(one, name), abs=1), (block.name, name, rows, seq)


NUMBERS = some.integers(1, 10_000)


@given(NUMBERS, NUMBERS, NUMBERS, some.integers(1, 64))
def test_sizes_add_and_multiply_as_their_numbers_do(tokens: int, seq: int, factor: int, length: int) -> None:
    shape, long = Shape(tokens=tokens, seq=seq), Length()
    made: list[tuple[Any, float]] = [
        (TOKENS * factor + 3, tokens * factor + 3),
        (TOKENS * long - 2 * TOKENS, tokens * seq - 2 * tokens),
        ((TOKENS + long) * factor / 2, (tokens + seq) * factor / 2),
        (long**2 / long, seq),
        (TOKENS / long * chunks_of(long, length), tokens / seq * -(-seq // length)),
        (1 + long - long, 1),
    ]
    for size, number in made:
        assert at(size, shape) == pytest.approx(number)
    assert TOKENS * 6 / (TOKENS * 3) == 2


@given(NUMBERS, NUMBERS)
def test_the_highest_of_sizes_is_the_highest_for_each_shape(tokens: int, constant: int) -> None:
    sizes = [(TOKENS * 2 + 100, "wide"), (TOKENS * 3, "steep"), (TOKENS, "small"), (Size({(): float(constant)}), "fixed")]
    peak, _ = highest(sizes)
    shape = Shape(tokens=tokens, seq=1)
    assert isinstance(peak, Peak)
    assert peak.at(shape) == max(2 * tokens + 100, 3 * tokens, constant)
    assert "small" not in {name for _, name in peak.alternatives}  # never the largest
    assert {name: size.at(shape) for size, name in peak.alternatives}[peak.reached_by(shape)] == peak.at(shape)


def test_a_comparison_that_depends_on_the_shape_is_refused() -> None:
    assert TOKENS * 2 > TOKENS
    assert TOKENS >= 1
    with pytest.raises(ValueError, match="has no sign of its own"):
        assert TOKENS * Length() < TOKENS * 2


def test_a_length_reaches_the_windows_it_was_told_to() -> None:
    assert reaches(Length(frozenset({512})), 512)
    assert not reaches(Length(), 512)
    assert not reaches(Length(), 0)
    assert (reaches(512, 512), reaches(511, 512)) == (True, False)
