"""Images under the tracer: the pixels of a batch, the tokens they stand for, and what a trained or frozen tower keeps of them."""

from typing import Any

import pytest

from vramcast.errors import QuestionError, UnmodelledError
from vramcast.tracing.request import TraceRequest, TraceResult
from vramcast.tracing.run import Tracer
from vramcast.workload import Adapter

pytestmark = pytest.mark.torch
pytest.importorskip("transformers")

TEXT = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 512}  # fmt: skip
SIGLIP = {"model_type": "siglip_vision_model", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
          "num_attention_heads": 2, "image_size": 56, "patch_size": 14}  # fmt: skip
QWEN = TEXT | {
    "model_type": "qwen2_5_vl", "architectures": ["Qwen2_5_VLForConditionalGeneration"], "image_token_id": 5,
    "video_token_id": 8, "vision_start_token_id": 6, "vision_end_token_id": 7,
    "rope_scaling": {"type": "mrope", "mrope_section": [4, 6, 6]},
    "vision_config": {"depth": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 2, "out_hidden_size": 128,
                      "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2, "fullatt_block_indexes": [1]},
}  # fmt: skip
GEMMA: dict[str, Any] = {
    "model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "image_token_index": 500,
    "mm_tokens_per_image": 4, "text_config": TEXT, "vision_config": SIGLIP,
}  # fmt: skip
LLAVA: dict[str, Any] = {
    "model_type": "llava", "architectures": ["LlavaForConditionalGeneration"], "image_token_index": 500,
    "text_config": TEXT | {"model_type": "llama"}, "vision_feature_select_strategy": "default",
    "vision_config": SIGLIP | {"model_type": "clip_vision_model", "projection_dim": 64},
}  # fmt: skip
MLLAMA: dict[str, Any] = {
    "model_type": "mllama", "architectures": ["MllamaForConditionalGeneration"],
    "text_config": TEXT | {"model_type": "mllama_text_model", "cross_attention_layers": [1], "pad_token_id": 0},
    "vision_config": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_global_layers": 1,
                      "attention_heads": 2, "image_size": 56, "patch_size": 14, "max_num_tiles": 4, "vision_output_dim": 128,
                      "intermediate_layers_indices": [1], "supported_aspect_ratios": [[1, 1], [1, 2], [2, 2]]},
}  # fmt: skip
SEEN = {  # config, patches of an image asked for, bytes of its pixels
    "qwen2.5-vl": (QWEN, 64, 64 * 3 * 2 * 14 * 14 * 4),
    "gemma3": (GEMMA, 0, 3 * 56 * 56 * 4),
    "llava": (LLAVA, 0, 3 * 56 * 56 * 4),
    "mllama": (MLLAMA, 0, 4 * 3 * 56 * 56 * 4),
}


def _traced(tracer: Tracer, config: dict[str, Any], **fields: Any) -> TraceResult:
    return tracer.trace(TraceRequest(**({"config": config, "seq": 128, "micro_batch": 2, "backend": "cuda"} | fields)))


def _seen(result: TraceResult, *, saved: bool = False) -> int:
    """Bytes of the tower's forward in the last step; those that its backward waits for."""
    start = max(m.place for m in result.log.marks if m.name == "backward")
    held = result.log.alive_at(start) if saved else result.log.allocations
    return sum(a.size for a in held if a.phase == "forward" and not a.category and ("vis" in a.module))


@pytest.mark.parametrize("name", SEEN)
def test_images_run_through_the_tower_and_their_pixels_stay_for_the_step(name: str, tracer: Tracer) -> None:
    config, patches, pixels = SEEN[name]
    result = _traced(tracer, config, images=2, image_patches=patches)
    assert (result.error, result.steps) == ("", 2)
    assert max(a.size for a in result.log.allocations if a.category == "inputs") == 2 * 2 * pixels
    assert _seen(result, saved=True) > 0
    assert _seen(_traced(tracer, config)) == 0


def test_a_frozen_tower_below_every_trained_parameter_saves_nothing(tracer: Tracer) -> None:
    pytest.importorskip("peft")
    of_text = Adapter(targets=("gate_proj", "o_proj"))
    result = _traced(tracer, LLAVA, images=1, adapter=of_text)
    assert (result.error, result.steps) == ("", 2)
    assert _seen(result) > 0
    assert _seen(result, saved=True) == 0


@pytest.mark.parametrize(
    ("config", "fields", "refused"),
    [
        (QWEN, {"images": 1}, "images of any size: say how many patches one makes, as --image-patches 1024"),
        (QWEN, {"images": 1, "image_patches": 66}, "66 patches are no whole number of 2 x 2: use --image-patches 64"),
        (QWEN, {"images": 3, "image_patches": 256}, "3 images are 195 tokens, a sequence has 128: use a longer --seq"),
        (GEMMA, {"images": 1, "image_patches": 64}, "images of Gemma3ForConditionalGeneration are 4 x 4 patches"),
        (TEXT | {"model_type": "llama"}, {"images": 1}, "1 images for LlamaForCausalLM, which takes none: use --images 0"),
    ],
)
def test_images_that_cannot_be_are_refused(config: dict[str, Any], fields: dict[str, int], refused: str, tracer: Tracer) -> None:
    with pytest.raises(QuestionError, match=refused):
        _traced(tracer, config, **fields)


def test_images_in_an_unknown_form_are_refused_by_class(tracer: Tracer) -> None:
    pixtral = LLAVA | {"vision_config": {"model_type": "pixtral", "hidden_size": 64, "num_hidden_layers": 1}}
    with pytest.raises(UnmodelledError, match="does not know the form of images of LlavaForConditionalGeneration"):
        _traced(tracer, pixtral, images=1)
