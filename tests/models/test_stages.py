"""Pipeline stages: every layer and every outer tensor stands where it is needed, and together they are the model."""

from collections import Counter

import pytest
from one_of_each import FAMILIES

from vramcast.errors import QuestionError
from vramcast.models.inventory import Model
from vramcast.models.reading import read_model
from vramcast.models.sharding import distinct_stages, every_stage, outer_tensors, stage_of, whole
from vramcast.serving.engines.layouts import even_split, front_split, middle_split
from vramcast.serving.weights import Loading, Storage, weights_term
from vramcast.training.counts import stages
from vramcast.workload import Parallel

SPLITS = (even_split, middle_split, front_split)


@pytest.mark.parametrize("model", FAMILIES, ids=lambda model: model.family)
def test_stages_of_every_family_sum_to_the_model(model: Model) -> None:
    for split in SPLITS:
        for pp in (n for n in (1, 2, 4) if n <= model.layers):
            held: Counter[str] = Counter()
            for stage in every_stage(model, pp, split):
                held.update({block.name + str(block.indices): count for block, count in stage.blocks})
            assert held == Counter({block.name + str(block.indices): block.count for block in model.blocks})
            assert sum(stage.layers for stage in every_stage(model, pp, split)) == model.layers


@pytest.mark.parametrize("model", FAMILIES, ids=lambda model: model.family)
def test_outer_tensors_stand_once_but_for_tied_embeddings_and_shared_layers(model: Model) -> None:
    if model.layers < 2:
        assert outer_tensors(model, whole(model)) == model.tensors
        return
    first, last = every_stage(model, 2, even_split)
    held = Counter(tensor.name for stage in (first, last) for tensor in outer_tensors(model, stage))
    assert set(held) == {tensor.name for tensor in model.tensors}
    twice = {tensor.role for tensor in model.tensors if held[tensor.name] == 2}
    assert not twice & {"head", "norm", "position"}
    assert ("embedding" in twice) == (model.tied and any(t.role == "embedding" for t in model.tensors))


@pytest.mark.parametrize("name", ["Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen3-30B-A3B", "microsoft/phi-4", "meta-llama/Llama-3.2-1B"])
@pytest.mark.parametrize("pp", [2, 3])
def test_weights_of_all_stages_are_the_models_and_a_tied_head(name: str, pp: int) -> None:
    model = read_model(name, offline=True)
    storage = Storage(model, quant="bf16", dtype="bfloat16")
    held = sum(
        term.bytes
        for stage in every_stage(model, pp, front_split)
        for term in weights_term(model, stage, Loading(fuses=False), storage).terms
        if term.name != "rounding"
    )
    assert held == 2 * (model.parameters + model.tied * model.vocab * model.hidden)


def test_a_stage_holds_its_spans_of_layers() -> None:
    model = read_model("google/gemma-3-27b-it", offline=True)  # five sliding layers to each full one
    stage = stage_of(model, [(0, 6), (30, 36)], name="chunks", first=True, last=False, in_flight=3)
    assert sorted(count for _, count in stage.blocks) == [2, 10]
    assert (stage.layers, stage.in_flight) == (12, 3)


def test_serving_and_training_stages_are_one_kind_of_value() -> None:
    model = read_model("meta-llama/Llama-3.1-8B", offline=True)
    served, trained = every_stage(model, 4, even_split), stages(model, Parallel(pp=4))
    assert [s.layers for s in trained] == [served[0].layers, served[2].layers, served[3].layers]
    assert [type(s) for s in trained] == [type(s) for s in distinct_stages(model, 4, even_split)]


def test_more_stages_than_layers_are_refused() -> None:
    model = read_model("meta-llama/Llama-3.2-1B", offline=True)
    with pytest.raises(QuestionError, match=r"pp is 17 but .* has 16 layers: use at most one stage per layer"):
        every_stage(model, 17, even_split)
