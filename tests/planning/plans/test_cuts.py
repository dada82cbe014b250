"""How a model is cut into stages and chunks in a plan, and what the search leaves out because it only costs time."""

import msgspec
import pytest

from vramcast.asking.plan_training import task_of
from vramcast.models.inventory import Model
from vramcast.models.reading import read_model
from vramcast.planning.plans.training import Candidate, _candidates, plan_training
from vramcast.planning.plans.training_layouts import Structure, Task, parallel_layouts, structures
from vramcast.training.methods import named_by_task
from vramcast.training.resolve import resolved
from vramcast.training.stage_layouts import balanced_layout, layout_spans


def _task(model: str, cards: int, **words: object) -> Task:
    task, _ = task_of(model, {"gpu": f"H100x{cards}", "seq": 4096, "batch": 64, "framework": "megatron"})
    return msgspec.structs.replace(task, **words)


@pytest.mark.parametrize(("layers", "pp", "vpp"), [(61, 4, 1), (61, 2, 4), (94, 32, 3), (61, 16, 1), (30, 4, 2)])
def test_chunks_differ_by_a_layer_ends_counted(layers: int, pp: int, vpp: int) -> None:
    spans = layout_spans(balanced_layout(layers, pp, vpp), layers=layers, pp=pp, vpp=vpp)
    chunks = sorted((span for stage in spans for span in stage), key=lambda span: span)
    depths = [stop - start for start, stop in chunks]
    depths[0], depths[-1] = depths[0] + 1, depths[-1] + 1
    assert max(depths) - min(depths) <= 1
    assert sum(depths) == layers + 2


def test_a_model_whose_layers_do_not_divide_is_cut_all_the_same() -> None:
    model = read_model("deepseek-ai/DeepSeek-V3")
    task = _task(model.id, 256)
    cuts = {(layout.pp, layout.vpp) for layout in parallel_layouts(task, model, "megatron", 256)}
    assert {(2, 4), (4, 1), (16, 1)} <= cuts
    for structure in structures(task, model):
        own = structure.question
        if own.parallel.pp == 4 and own.parallel.vpp == 1 and own.parallel.tp == 1 and own.parallel.ep == 1:
            assert own.options["stage_layout"].count("|") == 3
            resolved(named_by_task(own), model)


def test_stages_that_divide_cards_and_layers_are_tried() -> None:
    model = read_model("meta-llama/Llama-3.1-70B")  # 80 layers
    assert 5 in {layout.pp for layout in parallel_layouts(_task(model.id, 40), model, "megatron", 40)}
    assert 5 not in {layout.pp for layout in parallel_layouts(_task(model.id, 64), model, "megatron", 64)}


def test_what_is_left_out_is_never_the_best() -> None:
    model = read_model("meta-llama/Llama-3.2-1B")
    task = _task(model.id, 4, exact=True)
    plan = plan_training(task, model=model)
    every = [one for structure in structures(task, model) for one in _found(task, structure, model)]
    assert plan.ranked[0].step_s == pytest.approx(min(one.step_s for one in every))
    assert len(every) > len(plan.ranked)


def _found(task: Task, structure: Structure, model: Model) -> list[Candidate]:
    """The candidates of a structure without the memory of those before it."""
    return _candidates(task, structure, model, set())[1]


def test_options_of_the_recipe_hold_for_all_layouts() -> None:
    model = read_model("meta-llama/Llama-3.2-1B")
    task = _task(model.id, 4, options={"reduce": "bfloat16"})
    assert all(structure.question.options["reduce"] == "bfloat16" for structure in structures(task, model))
