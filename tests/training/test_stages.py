"""DeepSpeed's pipeline engine: its stages, and what it holds for each micro-batch."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from vramcast.errors import QuestionError
from vramcast.training.counts import held_tensors, stages
from vramcast.training.forecast import forecast_training
from vramcast.training.shape import Shape, shape_model
from vramcast.training.stage_layouts import balanced_bounds, stage_spans
from vramcast.workload import Parallel, Training

MODEL = shape_model(Shape(layers=22, hidden=1024, heads=16, ffn=4096, vocab=32000, tied=True))


@pytest.mark.parametrize(
    ("layers", "pp", "ends", "depths"),
    [
        (72, 12, False, [6] * 12),
        (78, 12, False, [7] * 11 + [1]),  # partition_balanced fills the stages one after another
        (106, 12, True, [8] + [9] * 10 + [8]),
        (82, 12, True, [6] + [7] * 10 + [6]),
    ],
)
def test_stages_are_filled_one_after_another(layers: int, pp: int, ends: bool, depths: list[int]) -> None:
    assert [stop - start for start, stop in balanced_bounds(layers, pp, ends=ends)] == depths


@given(some.integers(1, 200), some.integers(1, 64), some.booleans())
def test_every_layer_is_on_one_stage(layers: int, pp: int, ends: bool) -> None:
    bounds = balanced_bounds(layers, pp, ends=ends)
    assert [n for start, stop in bounds for n in range(start, stop)] == list(range(layers))


@pytest.mark.parametrize(
    ("layers", "pp", "vpp", "cut", "depths"),
    [
        (32, 4, 1, "even", [8, 8, 8, 8]),
        (32, 4, 1, "even_ends", [8, 9, 8, 7]),  # torchtitan: 34 over four, the first two of nine, an end less on the outer ones
        (30, 4, 1, "even", [7, 8, 8, 7]),
        (32, 4, 1, "balanced_ends", [8, 9, 9, 6]),  # DeepSpeed fills one after another
        (27, 4, 2, "even_ends", [7, 7, 7, 6]),
        (5, 4, 1, "even", [2, 1, 1, 1]),  # with the ends counted the last would have none
    ],
)
def test_memory_and_time_cut_stages_by_one_rule(layers: int, pp: int, vpp: int, cut: str, depths: list[int]) -> None:
    spans = stage_spans(layers, pp=pp, vpp=vpp, cut=cut)  # type: ignore[arg-type]
    assert [sum(stop - start for start, stop in stage) for stage in spans] == depths
    covered = sorted(n for stage in spans for start, stop in stage for n in range(start, stop))
    assert covered == list(range(layers))


@pytest.mark.parametrize(
    ("layers", "pp", "vpp", "cut"),
    [
        (4, 8, 1, "even_ends"),
        (7, 8, 1, "even_ends"),
        (6, 8, 1, "even"),
        (5, 4, 2, "even"),
        (5, 4, 2, "even_ends"),
        (5, 4, 1, "balanced"),  # two, two, one and none
    ],
)
def test_a_cut_that_leaves_a_stage_without_layers_is_refused(layers: int, pp: int, vpp: int, cut: str) -> None:
    with pytest.raises(QuestionError, match=r"without layers|too few"):
        stage_spans(layers, pp=pp, vpp=vpp, cut=cut)  # type: ignore[arg-type]


def test_torchtitan_cuts_stages_by_layers_and_ends_since_august_2025() -> None:
    """Pull 1416 of 30 July 2025: embedding and output count as a layer each."""
    sized = []
    for version in ("2025.6", "2025.9"):
        asked = Training(
            model="x", framework="torchtitan", framework_version=version, seq=512, accumulate=8, parallel=Parallel(pp=4), gpus=4
        )
        ranks = forecast_training(asked, model=shape_model(Shape(layers=32, hidden=512, heads=8, ffn=2048, vocab=1024))).ranks
        weights = {rank.rank: next(t.bytes for t in rank.instants[0].terms if t.name == "weights") for rank in ranks}
        sized.append(weights["last stage"] / weights["middle stage"])
    assert sized[1] < 0.95 < 1 < sized[0]


def test_outputs_wait_in_parts_and_clones_leave_the_inputs_behind() -> None:
    first, middle, last = stages(MODEL, Parallel(pp=4))
    waiting = ((first, 4), (middle, 2), (last, 1))
    assert [held_tensors(stage, 1, passes) for stage, passes in waiting] == [4, 2 * 2, 1]
    assert [held_tensors(stage, 4, passes) for stage, passes in waiting] == [4 / 4 + 1, 2 / 4 + 1, 0]


def moments(**question: object) -> dict[str, dict[str, int]]:
    asked = Training(**({"model": "x", "framework": "megatron_deepspeed", "seq": 512, "accumulate": 8} | question))
    rank = forecast_training(asked, model=MODEL).ranks[0]
    return {i.name: {t.name: t.bytes for t in i.terms} for i in rank.instants}


def test_the_overflow_check_copies_the_largest_gradient_to_float32() -> None:
    found = moments(parallel=Parallel(pp=2))
    assert found["overflow check"]["overflow_check"] == 32_000 * 1024 * 4
    assert "overflow_check" not in found["optimizer step"]


def test_the_mask_of_the_embeddings_dropout_waits_for_every_pass_in_flight() -> None:
    dry = {"parallel": Parallel(pp=2), "options": {"hidden_dropout": 0.0, "attention_dropout": 0.0}}
    wet = {"parallel": Parallel(pp=2), "options": {"hidden_dropout": 0.1, "attention_dropout": 0.0}}
    end = "end of forward"
    assert moments(**wet)[end]["activations"] - moments(**dry)[end]["activations"] == 2 * 512 * 1024


def test_a_cut_of_stages_has_a_name() -> None:
    with pytest.raises(Exception, match="unknown stage_cut 'odd': known: balanced"):
        moments(parallel=Parallel(pp=2), options={"stage_cut": "odd"})
