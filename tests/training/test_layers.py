"""Training some of the layers: what autograd reaches, and what frozen layers save on the way."""

import pytest

from vramcast.models.families import read_config
from vramcast.training.activations.choice import Style
from vramcast.training.activations.layer import layer_tape
from vramcast.training.activations.layers import depth_reached, layers_of, layers_of_part
from vramcast.training.activations.sizes import Shape as Batch
from vramcast.training.counts import stages
from vramcast.training.forecast import forecast_training
from vramcast.training.methods import PARTIALS
from vramcast.training.recipe.parts import Policy
from vramcast.training.shape import Shape, shape_model
from vramcast.workload import Parallel, Training

MODEL = shape_model(Shape(layers=16, hidden=1024, heads=16, ffn=4096, vocab=32000))
STAGE = stages(MODEL, Parallel())[0]


@pytest.mark.parametrize(
    ("method", "trained", "reached"), [("freeze", 2, 2), ("llama_pro", 4, 13), ("badam", 1, 16), ("lisa", 2, 16)]
)
def test_backward_ends_at_the_lowest_layer_that_needs_it(method: str, trained: int, reached: int) -> None:
    assert depth_reached(16, PARTIALS[method], trained) == reached


def saved(style: Style) -> float:
    life = layer_tape(MODEL.blocks[0], style, hidden=1024, tokens=512, seq=512).life()
    return life.saved + life.input_saved


@pytest.mark.parametrize(
    ("method", "trained", "passing"), [("freeze", 2, 0), ("llama_pro", 4, 9), ("badam", 1, 15), ("lisa", 2, 14)]
)
def test_frozen_layers_save_what_gradients_pass_through(method: str, trained: int, passing: int) -> None:
    costs = layers_of_part(Policy(), STAGE, Style(), hidden=1024, partial=PARTIALS[method], trained=trained)
    found = costs.at(Batch(tokens=512, seq=512))
    whole, thin = saved(Style()), saved(Style(trains=False))
    assert thin < 0.75 * whole
    assert found.waiting == pytest.approx(trained * whole + passing * thin + found.boundary)


def test_without_a_part_all_layers_are_trained() -> None:
    found = layers_of_part(Policy(), STAGE, Style(), hidden=1024, partial=None, trained=0).at(Batch(tokens=512, seq=512))
    assert found.waiting == pytest.approx(16 * saved(Style()) + found.boundary)


def test_expanded_blocks_are_trained_and_the_others_frozen() -> None:
    found = forecast_training(Training(model="x", seq=512, method="llama_pro", framework="llama_factory"), model=MODEL)
    block = sum(t.elements for t in MODEL.blocks[0].tensors)
    assert found.trainable_parameters == 8 * block
    assert (found.recipe.precision.weights, found.recipe.precision.frozen) == ("float32", "bfloat16")


def test_stacks_that_both_count_from_zero_are_all_layers() -> None:
    """HRM-Text's two stacks have the same layer numbers: each of their layers has a place of its own."""
    config = {
        "model_type": "hrm_text", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
        "vocab_size": 96, "max_position_embeddings": 2048, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
    }  # fmt: skip
    stage = stages(read_config(config), Parallel())[0]
    made = layers_of(Policy(kind="none"), stage, Style(), hidden=64)
    assert len(made.sizes) == stage.layers == 16
