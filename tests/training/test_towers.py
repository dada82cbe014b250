"""Vision towers in a step: when they save, what a question without images leaves out."""

from functools import partial

import msgspec
import pytest

from vramcast.asking.grid import ask_point
from vramcast.asking.training import training_question
from vramcast.errors import QuestionError
from vramcast.models.families import read_config, vit
from vramcast.models.inventory import Tensor, Tower
from vramcast.training.forecast import TrainingForecast, forecast_training
from vramcast.training.resolve import resolve
from vramcast.training.towers import patches_of
from vramcast.workload import Adapter, Training

GEMMA = {
    "model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "mm_tokens_per_image": 16,
    "text_config": {
        "model_type": "gemma3_text", "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4, "head_dim": 64,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 4096, "max_position_embeddings": 4096,
    },
    "vision_config": {
        "model_type": "siglip_vision_model", "hidden_size": 192, "intermediate_size": 768, "num_hidden_layers": 3,
        "num_attention_heads": 4, "image_size": 224, "patch_size": 14, "vision_use_head": False,
    },
}  # fmt: skip
PATCHES = 16**2
QWEN = {
    "model_type": "qwen2_vl", "architectures": ["Qwen2VLForConditionalGeneration"], "hidden_size": 256, "vocab_size": 4096,
    "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vision_config": {
        "depth": 2, "embed_dim": 64, "num_heads": 4, "hidden_size": 256, "mlp_ratio": 4, "patch_size": 14,
        "spatial_merge_size": 2, "temporal_patch_size": 2, "in_channels": 3,
    },
}  # fmt: skip


def answer(config: dict = GEMMA, **given: object) -> TrainingForecast:
    question = Training(model="tiny", gpus=1, seq=512, **given)
    return forecast_training(question, model=read_config(config))


def held(forecast: TrainingForecast, instant: str = "loss") -> dict[str, int]:
    moment = next(i for i in forecast.worst.instants if i.name == instant)
    term = next(t for t in moment.terms if t.name == "activations")
    return {t.name: t.bytes for t in term.terms}


def test_no_images_keep_the_answer_and_say_how_to_ask() -> None:
    plain, none = answer(), answer(options={"images": 0})
    assert plain.ranks == none.ranks
    assert not any("tower" in i.name for i in plain.worst.instants)
    assert any("(vision): text alone is assumed, add --images N" in u.what for u in plain.unmodelled)


def test_a_trained_tower_saves_its_layers_in_proportion_to_the_images() -> None:
    one, two = (held(answer(param_dtype="bfloat16", options={"images": n})) for n in (1, 2))
    assert two["saved.vision_tower"] == pytest.approx(2 * one["saved.vision_tower"], rel=1e-4)
    assert one["saved.pixels"] == PATCHES * 3 * 14 * 14 * 4
    text = sum(held(answer(param_dtype="bfloat16")).values())
    assert sum(one.values()) == pytest.approx(text + one["saved.pixels"] + one["saved.vision_tower"], abs=2)


def test_images_that_are_asked_for_are_no_longer_left_out() -> None:
    assert not any("(vision)" in u.what for u in answer(options={"images": 1}).unmodelled)


def test_a_tower_under_no_adapter_saves_nothing_but_its_forward_is_seen() -> None:
    frozen = answer(QWEN, method="lora", adapter=Adapter(targets=("q_proj",)), options={"images": 2, "image_patches": 1024})
    assert set(held(frozen)) & {"saved.vision_tower"} == set()
    names = [i.name for i in frozen.worst.instants]
    assert names[0] == "forward of the vision tower"
    assert "backward of the vision tower" not in names
    assert frozen.worst.instants[0].terms[-1].name == "temporaries"


def test_an_adapter_on_the_towers_own_matrices_makes_it_save() -> None:
    adapted = answer(method="lora", adapter=Adapter(targets=("q_proj",)), options={"images": 1})
    assert 0 < held(adapted)["saved.vision_tower"] < held(answer(options={"images": 1}))["saved.vision_tower"]


def test_a_recomputed_tower_keeps_the_input_of_each_layer() -> None:
    full = answer(checkpointing="full", param_dtype="bfloat16", options={"images": 1})
    assert held(full)["saved.vision_tower"] == pytest.approx(3 * PATCHES * 192 * 2, rel=0.001)


def test_images_of_any_size_need_their_patches() -> None:
    with pytest.raises(QuestionError, match=r"visual\. takes images of any size: say how many patches of 14 x 14 pixels"):
        answer(QWEN, options={"images": 1})


def test_images_need_a_tower() -> None:
    text = GEMMA["text_config"] | {"architectures": ["Gemma3ForCausalLM"]}
    with pytest.raises(QuestionError, match=r"2 images for .* which has no vision tower of a known kind: use --images 0"):
        answer(text, options={"images": 2})


def test_a_negative_number_of_images_is_refused() -> None:
    with pytest.raises(QuestionError, match="images is -1: expected at least 0"):
        answer(options={"images": -1})


def test_images_are_an_axis_of_a_sweep() -> None:
    words = {"image_patches": 1024, "eval_batch": 2}
    asked = ask_point(partial(training_question, "tiny"), words, {"images": 4, "seq": 64})
    assert asked.question.options == {"image_patches": 1024, "eval_batch": 2, "images": 4}


def test_patches_follow_the_towers_own_size() -> None:
    tower = Tower(name="vision_model.", kind="vision", tensors=(), facts={"patch_size": 14, "image_size": 560, "tiles": 4})
    recipe = resolve(Training(model="tiny"), read_config(GEMMA))[0]
    classed = msgspec.structs.replace(tower, tensors=(vit.table("vision_model.class_embedding", 1280),))
    assert patches_of(classed, recipe) == 4 * 1608  # 1,601 padded to a multiple of eight (transformers, mllama)
    assert patches_of(msgspec.structs.replace(classed, facts={"patch_size": 14, "image_size": 336}), recipe) == 577
    assert patches_of(tower, msgspec.structs.replace(recipe, task=msgspec.structs.replace(recipe.task, image_patches=9))) == 9


@pytest.mark.parametrize("framework", ["llama_factory", "ms_swift"])
def test_frameworks_that_freeze_towers_train_the_decoder_alone(framework: str) -> None:
    """freeze_vision_tower (LLaMA-Factory) and freeze_vit (ms-swift 3) hold for full training and for adapters."""
    given = {"framework": framework, "options": {"images": 1}, "checkpointing": "none"}
    frozen, free = (answer(**given | {"options": given["options"] | extra}) for extra in ({}, {"freezes_towers": False}))
    model = read_config(GEMMA)
    tower = sum(t.elements * n for part in model.towers for t, n in pairs(part))
    assert free.trainable_parameters - frozen.trainable_parameters == tower
    assert "tower" in " ".join(held(free)) and "tower" not in " ".join(held(frozen))
    adapted, reaching = (
        answer(**given | {"method": "lora", "adapter": Adapter(rank=8), "options": given["options"] | extra})
        for extra in ({}, {"freezes_towers": False})
    )
    assert adapted.trainable_parameters < reaching.trainable_parameters


def pairs(tower: Tower) -> list[tuple[Tensor, int]]:
    return [(t, 1) for t in tower.tensors] + [(t, b.count) for b in tower.blocks for t in b.tensors]
