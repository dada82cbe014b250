"""The parts of a recipe: every field says what it means, every word is checked, every framework fits the types."""

from typing import Any, get_args

import msgspec
import pytest

from vramcast.errors import QuestionError
from vramcast.training.activations.selective import MODULES
from vramcast.training.forecast import forecast_training
from vramcast.training.frameworks import names
from vramcast.training.loss import KINDS
from vramcast.training.recipe.draft import flat, options, part_types, read_option
from vramcast.training.recipe.parts import LossKind, Module, Policy, Recipe, parse_policy
from vramcast.training.resolve import resolve
from vramcast.training.shape import Shape, shape_model
from vramcast.workload import Parallel, Training

MODEL = shape_model(Shape(layers=4, hidden=256, heads=8, kv_heads=2, ffn=1024, vocab=1000, experts=4, expert_ffn=512))


def test_every_field_says_what_it_means_and_has_a_name_of_its_own() -> None:
    fields = [(part, field) for part, kind in part_types().items() for field in kind.__struct_fields__]
    assert len(options()) == len(fields)
    assert all(option.meaning for option in options().values())


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"scan": "foo"}, r"unknown scan 'foo': known: kernels, torch"),
        ({"norm_form": "centered"}, r"unknown norm_form 'centered': did you mean centred"),
        ({"modules": "lama"}, r"unknown modules 'lama': did you mean llama"),
        ({"adapts_experts": "layer"}, r"unknown adapts_experts 'layer': did you mean layers"),
        ({"saved_inputs": "foo"}, r"unknown saved_inputs 'foo': known: float8, nvfp4"),
        ({"holds_logits": "fp12"}, r"unknown dtype of holds_logits 'fp12'"),
        ({"optimizer": "adamv"}, r"unknown optimizer 'adamv': did you mean adam"),
        ({"kernels.norms": "eager"}, r"unknown option of kernels 'norms': did you mean norm"),
        ({"loss.scan": "torch"}, r"unknown option of loss 'scan'"),
        ({"precison.weights": "bf16"}, r"unknown training option 'precison.weights'"),
        ({"sequences": 0}, r"sequences is 0: expected at least 1"),
        ({"scored": 1.5}, r"scored is 1.5: expected at most 1"),
        ({"checkpointing": "block"}, r"names no number of layers: write block:2"),
        ({"checkpointing": "full:2"}, r"full takes nothing after a colon"),
        ({"checkpointing": "modules:mpl"}, r"unknown recomputed module 'mpl': did you mean mlp"),
        ({"offload": ["optimiser"]}, r"unknown offload 'optimiser': did you mean optimizer"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_word_that_means_nothing_is_refused_with_the_nearest(option: dict[str, Any], message: str) -> None:
    with pytest.raises(QuestionError, match=message):
        forecast_training(Training(model="x", seq=128, options=option), model=MODEL)


def test_an_option_has_a_flat_name_and_a_full_one() -> None:
    assert read_option("sharding.kind", "zero3") == read_option("sharding", "zero3") == ("sharding", "zero3")
    assert read_option("precision.weights", "bf16") == ("weights", "bfloat16")
    full, short = ({"kernels.norm": "fused", "loss.kind": "linear"}, {"norm": "fused", "loss": "linear"})
    asked = [resolve(Training(model="x", options=given), MODEL)[0] for given in (full, short)]
    assert asked[0] == asked[1]


@pytest.mark.parametrize("text", ["none", "full", "block:3", "modules:core_attn+mlp", "layer:2"])
def test_a_policy_is_a_value_that_reads_as_it_was_written(text: str) -> None:
    assert str(parse_policy(text)) == text
    assert (
        flat(Recipe(recomputation=msgspec.structs.replace(Recipe().recomputation, policy=parse_policy(text))))["checkpointing"]
        == text
    )
    assert parse_policy(Policy("op")) == Policy("op")


@pytest.mark.parametrize("framework", names())
@pytest.mark.parametrize("question", [{}, {"method": "qlora"}, {"compute_dtype": "fp8"}, {"compile": True}], ids=str)
def test_what_a_framework_overrides_is_of_the_types_of_the_parts(framework: str, question: dict[str, Any]) -> None:
    """Overrides are not converted on the way, which would cost a third of a forecast: here they are."""
    asked = Training(model="x", framework=framework, seq=128, parallel=Parallel(dp=2), gpus=2, **question)
    recipe, assumed = resolve(asked, MODEL)
    assert msgspec.convert(msgspec.to_builtins(recipe), Recipe) == recipe
    assert all(a.name in options() for a in assumed)


def test_words_are_those_that_have_rules() -> None:
    assert set(get_args(LossKind)) == set(KINDS)
    assert set(get_args(Module)) == set(MODULES)


def test_torch_picks_the_kernel_where_sdpa_is_asked_for() -> None:
    recipe, _ = resolve(Training(model="x", attention="sdpa"), MODEL)
    assert (recipe.kernels.sdpa, recipe.kernels.attention) == (True, "flash")
