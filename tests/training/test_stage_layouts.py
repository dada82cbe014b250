"""Megatron's pipeline layouts: which layers a stage holds, by a written layout, uneven ends and ends counted as layers."""

import pytest

from vramcast.errors import QuestionError
from vramcast.training.counts import stages
from vramcast.training.forecast import forecast_training
from vramcast.training.shape import Shape, shape_model
from vramcast.training.stage_layouts import chunks_of, counted_ends, layout_spans, parse_layout, uneven_layout
from vramcast.workload import Parallel, Training

MODEL = shape_model(Shape(layers=15, hidden=256, heads=8, kv_heads=8, ffn=1024, vocab=1000))


@pytest.mark.parametrize(
    ("text", "chunks"),
    [
        ("Et*3|(tt|)*6L", ["Ettt", *["tt"] * 6, "L"]),
        ("Ettt|(tt|)*2,m|L", ["Ettt", "tt", "tt", "m", "L"]),
        ("EtL", ["EtL"]),
    ],
)
def test_repeats_are_written_out(text: str, chunks: list[str]) -> None:
    assert parse_layout(text) == chunks


@pytest.mark.parametrize("text", ["ttt|L", "Et|tE|L", "Et|m|tL", "", "Et*99999999|L", "(tt|)*3L", "Et|tx|L"])
def test_what_is_no_layout_is_refused(text: str) -> None:
    with pytest.raises(QuestionError, match="stage_layout"):
        parse_layout(text)


def test_chunks_are_dealt_to_the_stages_in_turn() -> None:
    first, last = layout_spans("Et*3|(tt|)*6L", layers=15, pp=2, vpp=4)
    assert first == [(0, 3), (5, 7), (9, 11), (13, 15)]
    assert last == [(3, 5), (7, 9), (11, 13), (15, 15)]


@pytest.mark.parametrize(
    ("text", "pp", "vpp", "why"),
    [("EttL", 1, 1, "2 layers, and the model 15"), ("Et*15|L", 1, 1, "2 chunks"), ("Et*15|L", 2, 1, "without layers")],
)
def test_a_layout_of_another_model_is_refused(text: str, pp: int, vpp: int, why: str) -> None:
    with pytest.raises(QuestionError, match=why):
        layout_spans(text, layers=15, pp=pp, vpp=vpp)


def test_stages_hold_what_the_layout_says() -> None:
    held = stages(MODEL, Parallel(pp=2, vpp=4), bounds=layout_spans("Et*3|(tt|)*6L", layers=15, pp=2, vpp=4))
    assert [stage.layers for stage in held] == [9, 6]


@pytest.mark.parametrize(
    ("ends", "layout"),
    [
        ({"first": 3, "last": 2}, "Ettt|ttttt|ttttt|ttL"),
        ({"first": 3}, "Ettt|tttt|tttt|ttttL"),
    ],
)
def test_uneven_ends_are_a_layout(ends: dict[str, int], layout: str) -> None:
    assert uneven_layout(15, 4, 1, **ends) == layout
    assert chunks_of(layout, 4) == 1


def test_uneven_ends_that_do_not_divide_are_refused() -> None:
    with pytest.raises(QuestionError, match="do not divide"):
        uneven_layout(15, 4, 1, first=2, last=2)


def test_ends_may_count_as_layers() -> None:
    assert counted_ends(6, 4, 2, embedding=True, loss=True) == "E|t|t|t|t|t|t|L"
    assert [len(chunk.strip("EL")) for chunk in parse_layout("E|t|t|t|t|t|t|L")] == [0, 1, 1, 1, 1, 1, 1, 0]
    with pytest.raises(QuestionError, match="do not divide"):
        counted_ends(6, 4, 2, embedding=True, loss=False)


def test_a_layout_decides_the_fullest_stage() -> None:
    question = Training(model="x", framework="megatron", gpus=2, parallel=Parallel(pp=2), accumulate=2, seq=512)
    even = forecast_training(Training(**(as_dict(question) | {"options": {"uneven_stages": True}})), model=MODEL)
    tilted = forecast_training(Training(**(as_dict(question) | {"options": {"stage_layout": "Et*12|t*3L"}})), model=MODEL)
    assert tilted.ranks[0].allocated_bytes > even.ranks[0].allocated_bytes
    assert tilted.ranks[-1].allocated_bytes < even.ranks[-1].allocated_bytes


def as_dict(question: Training) -> dict[str, object]:
    return {name: getattr(question, name) for name in question.__struct_fields__}
