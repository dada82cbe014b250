"""GOT-OCR 2 and DeepSeek-VL 7B: a tower like SAM's, alone or beside SigLIP, before a text decoder.

Source of names and shapes: transformers 5.23, modeling_got_ocr2.py and modeling_deepseek_vl_hybrid.py.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, sam, vit, wrapper
from vramcast.models.inventory import Model, Tensor, Tower


def read(config: Config) -> Model:
    """A GOT-OCR 2 or a hybrid DeepSeek-VL model."""
    return _hybrid(config) if config.text("model_type") == "deepseek_vl_hybrid" else _got(config)


def _got(config: Config) -> Model:
    """Two convolutions of stride two and a projection follow the tower."""
    text = wrapper.text_of(config, "qwen2")
    seen, name = wrapper.part(config, "vision_config", f"{config.text('model_type')}_vision"), "model.multi_modal_projector."
    tower = sam.tower(seen, "model.vision_tower.")
    hidden = text.size("hidden_size")
    tensors = (
        *vit.patches(f"{name}conv_upsampler1", 2 * tower.hidden, tower.hidden, 3, 3),
        *vit.patches(f"{name}conv_upsampler2", hidden, 2 * tower.hidden, 3, 3),
        *parts.linear(f"{name}multimodal_projector", hidden, hidden, "projector", shard=None, bias=True),
    )
    projector = Tower(name=name, kind="projector", tensors=tensors)
    return wrapper.wrap(config, text, prefix="model.language_model.", towers=(tower, projector))


def _hybrid(config: Config) -> Model:
    """SigLIP for the whole and SAM for the detail, each projected to half of the decoder's width and joined."""
    text = wrapper.text_of(config, "llama")
    coarse = vit.tower(wrapper.part(config, "vision_config", "siglip_vision_model"), "model.vision_model.")
    fine = sam.tower(wrapper.part(config, "high_res_vision_config", "sam_vision_model"), "model.high_res_vision_model.")
    hidden = text.size("hidden_size")
    tensors = (*detail(fine.hidden, "model.high_res_vision_"), *aligner(hidden, coarse.hidden, 4 * fine.hidden))
    projector = Tower(name="model.aligner.", kind="projector", tensors=tensors)
    return wrapper.wrap(config, text, prefix="model.language_model.", towers=(coarse, fine, projector))


def detail(width: int, name: str) -> tuple[Tensor, ...]:
    """A weight, a second neck over one of SAM's layers, and two convolutions of stride two."""
    return (
        Tensor(name=f"{name}alpha", shape=(1,), role="projector"),
        *sam.neck(f"{name}neck.", 3 * width, width),
        *vit.patches(f"{name}proj.conv1", 2 * width, width, 3, 3),
        *vit.patches(f"{name}proj.conv2", 4 * width, 2 * width, 3, 3),
    )


def aligner(hidden: int, coarse: int, fine: int) -> tuple[Tensor, ...]:
    """Each tower's patches to half of the decoder's width, then one layer over both."""
    return (
        *parts.linear("model.aligner.vision_proj", hidden // 2, coarse, "projector", shard=None, bias=True),
        *parts.linear("model.aligner.high_res_vision_proj", hidden // 2, fine, "projector", shard=None, bias=True),
        *parts.linear("model.aligner.proj", hidden, hidden, "projector", shard=None, bias=True),
    )
