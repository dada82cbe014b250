"""LLaVA's original code and what grew from it: Yi-VL, VILA, Logics, DeepSeek-VL; the tower is often a name, not a description.

A tower that the config does not describe is listed as unmodelled. Source of names and shapes: the builders of projectors and
towers beside the checkpoints (llava/model/multimodal_projector, VILA's base_projector.py).
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, vit, wrapper
from vramcast.models.inventory import Model, Tensor, Tower

_TEXT = {
    "llava": "llama", "llava_llama": "llama", "llava_mistral": "mistral", "llava_mixtral": "mixtral", "llava_qwen": "qwen2",
    "logics": "qwen3", "multi_modality": "llama",
}  # fmt: skip


def read(config: Config) -> Model:
    """A model in the style of LLaVA's original code."""
    family = config.text("model_type")
    text = wrapper.text_of(config, _TEXT[family], "llm_cfg", "language_config")
    if family == "llava_llama" and config.has("llm_cfg"):
        return _vila(config, text)
    prefix = "language_model.model." if family == "multi_modality" else "model."
    towers = (_projector(config, text.size("hidden_size")),) if config.has("mm_hidden_size") else ()
    model = wrapper.wrap(config, text, prefix=prefix, towers=towers, tied=False)
    return wrapper.without_tower(model, f"vision tower {config.raw.get('mm_vision_tower') or ''}".strip())


def _projector(config: Config, hidden: int) -> Tower:
    """``linear``, or ``mlp2x_gelu`` with or without norms."""
    name, kind = "model.mm_projector.", config.text("mm_projector_type", default="linear")
    width = config.size("mm_hidden_size")
    if kind == "linear":
        return Tower(
            name=name, kind="projector", tensors=parts.linear(name[:-1], hidden, width, "projector", shard=None, bias=True)
        )
    normed = kind.endswith("_Norm")
    tensors = (
        *parts.linear(f"{name}0", hidden, width, "projector", shard=None, bias=True),
        *parts.linear(f"{name}{3 if normed else 2}", hidden, hidden, "projector", shard=None, bias=True),
        *(parts.norms(hidden, f"{name}1", f"{name}4", bias=True) if normed else ()),
    )
    return Tower(name=name, kind="projector", tensors=tensors)


def _vila(config: Config, text: Config) -> Model:
    """VILA nests all three parts; its projector normalises squares of four patches first."""
    tower = vit.tower(wrapper.part(config, "vision_tower_cfg", "siglip_vision_model"), "vision_tower.vision_tower.")
    hidden, merged = text.size("hidden_size"), 4 * tower.hidden
    tensors: tuple[Tensor, ...] = (
        *parts.norms(merged, "mm_projector.layers.1", bias=True),
        *parts.linear("mm_projector.layers.2", hidden, merged, "projector", shard=None, bias=True),
        *parts.linear("mm_projector.layers.4", hidden, hidden, "projector", shard=None, bias=True),
    )
    projector = Tower(name="mm_projector.", kind="projector", tensors=tensors)
    tied = text.flag("tie_word_embeddings", default=False)
    return wrapper.wrap(config, text, prefix="llm.model.", towers=(tower, projector), tied=tied)
