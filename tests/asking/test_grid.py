"""A grid asks each point as if its values had been typed."""

from functools import partial

import pytest

from vramcast.asking.grid import answer_grid, axes_of, points_of
from vramcast.asking.serving import ServingWords, serving_question
from vramcast.asking.training import TrainingWords, training_question
from vramcast.errors import QuestionError

QWEN = "Qwen/Qwen2.5-1.5B-Instruct"


def test_every_word_may_be_an_axis_cards_too() -> None:
    axes = axes_of(["gpu=4090,H100", "micro_batch=1,2"], TrainingWords.__annotations__)
    cells = list(answer_grid(partial(training_question, QWEN), {"seq": 512, "method": "lora"}, axes))
    assert [c.point for c in cells] == [{"gpu": g, "micro_batch": b} for g in ("4090", "H100") for b in (1, 2)]
    small, large = cells[:2]
    assert small.worst and large.worst and small.worst.device_bytes < large.worst.device_bytes
    assert cells[0].fit and cells[2].fit and cells[0].fit.capacity_bytes < cells[2].fit.capacity_bytes


def test_cards_as_an_axis_share_the_work() -> None:
    axes = axes_of({"gpus": (1, 2)}, ServingWords.__annotations__)
    one, two = answer_grid(partial(serving_question, QWEN), {"gpu": "4090", "context": 4096}, axes)
    assert one.worst and two.worst
    weights = [next(t.bytes for t in cell.worst.terms if t.name == "weights") for cell in (one, two)]
    assert weights[1] < 0.6 * weights[0]


def test_what_cannot_be_is_said_in_its_cell_or_at_once() -> None:
    (cell, good) = answer_grid(
        partial(training_question, QWEN), {"method": "lora", "seq": 64}, axes_of(["rank=0,8"], TrainingWords.__annotations__)
    )
    assert cell.refused == "rank is 0: expected at least 1"
    assert good.worst and not good.refused
    (axis,) = axes_of(["micro_batch=1..3,8"], TrainingWords.__annotations__)
    assert axis.values == (1, 2, 3, 8)
    with pytest.raises(QuestionError, match=r"8..1 is no range"):
        axes_of(["micro_batch=8..1"], TrainingWords.__annotations__)
    with pytest.raises(QuestionError, match=r"--micro-batch '1..x' is not a number"):
        axes_of(["micro_batch=1..x"], TrainingWords.__annotations__)
    with pytest.raises(QuestionError, match="unknown sweep axis 'rnk'"):
        axes_of(["rnk=1,2"], TrainingWords.__annotations__)
    with pytest.raises(QuestionError, match="at most 2,000"):
        points_of(axes_of({"rank": range(1, 60), "seq": range(1, 60)}, TrainingWords.__annotations__))
