"""LLaVA's original code and what grew from it: Yi-VL, VILA, Logics, DeepSeek-VL; the tower is often a name, not a description.

A tower that the config only names is taken from what is published under that name; one whose name is not known is listed as
unmodelled. Source of names and shapes: the builders of projectors and towers beside the checkpoints (llava/model/
multimodal_projector, VILA's base_projector.py, deepseek_vl/models/siglip_vit.py and sam.py).
"""

from typing import Any

from vramcast.models.config import Config
from vramcast.models.families import deepseek_vl2, got_ocr2, parts, sam, vit, wrapper
from vramcast.models.inventory import Model, Tensor, Tower

_TEXT = {
    "llava": "llama", "llava_llama": "llama", "llava_mistral": "mistral", "llava_mixtral": "mixtral", "llava_qwen": "qwen2",
    "logics": "qwen3", "multi_modality": "llama", "mineru2_qwen": "qwen2",
}  # fmt: skip


# What is published under the names that configs give for their towers: the config.json of each. Yi-VL's is beside its weights.
_CLIP_L: dict[str, Any] = {
    "model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
    "num_attention_heads": 16, "patch_size": 14, "image_size": 336,
}  # fmt: skip
_CLIP_H = {**_CLIP_L, "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "image_size": 448}
_SO400M: dict[str, Any] = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
    "num_attention_heads": 16, "patch_size": 14, "image_size": 384,
}  # fmt: skip
_NAMED = {
    "clip-vit-large-patch14-336": _CLIP_L,
    "clip-vit-large-patch14": {**_CLIP_L, "image_size": 224},
    "clip-vit-H-14-laion2B-s32B-b79K-yi-vl-6B-448": _CLIP_H,
    "clip-vit-H-14-laion2B-s32B-b79K-yi-vl-34B-448": _CLIP_H,
    "siglip-so400m-patch14-384": _SO400M,
}
_SIGLIP_L = {"width": 1024, "layers": 24, "heads": 16, "patch_size": 16, "image_size": 384, "mlp_ratio": 4}


def read(config: Config) -> Model:
    """A model in the style of LLaVA's original code."""
    family = config.text("model_type")
    text = wrapper.text_of(config, _TEXT[family], "llm_cfg", "language_config")
    if family == "llava_llama" and config.has("llm_cfg"):
        return _vila(config, text)
    if family == "multi_modality":
        return _multi_modality(config, text)
    towers: tuple[Tower, ...] = (_projector(config, text.size("hidden_size")),) if config.has("mm_hidden_size") else ()
    named = str(config.raw.get("mm_vision_tower") or "").rstrip("/").rsplit("/", 1)[-1]
    seen = _NAMED.get(named)
    if seen and towers and seen["hidden_size"] == config.size("mm_hidden_size"):
        prefix = "model.vision_tower.vision_tower."
        towers = (*towers, vit.tower(Config(seen, f"{config.path}: mm_vision_tower {named}"), prefix))
        return wrapper.wrap(config, text, prefix="model.", towers=towers, tied=False)
    model = wrapper.wrap(config, text, prefix="model.", towers=towers, tied=False)
    return wrapper.without_tower(model, f"vision tower {config.raw.get('mm_vision_tower') or ''}".strip())


def _multi_modality(config: Config, text: Config) -> Model:
    """DeepSeek-VL and Janus: SigLIP-L, beside SAM-B in the larger model; Janus also draws, by parts that are not counted."""
    prefix, hidden = "language_model.model.", text.size("hidden_size")
    said = config.optional_child("vision_config")
    plain = said.optional_child("params") if said else None
    draws = ("the tower and head that draw",) if config.has("gen_vision_config") else ()
    both = said is not None and said.text("cls", default="") == "HybridVisionTower"
    if both or (plain and str(plain.raw.get("model_name")) == "siglip_large_patch16_384"):
        towers = _deepseek_towers(hidden, detail=both)
        model = wrapper.wrap(config, text, prefix=prefix, towers=towers, tied=False)
    else:
        model = wrapper.without_tower(wrapper.wrap(config, text, prefix=prefix, towers=(), tied=False), "vision tower")
    return wrapper.without_tower(model, draws[0]) if draws else model


def _deepseek_towers(hidden: int, *, detail: bool) -> tuple[Tower, ...]:
    seen = deepseek_vl2.siglip(Config(_SIGLIP_L), "vision_model.vision_tower.")
    if not detail:
        aligner = (
            *parts.linear("aligner.layers.0", hidden, seen.hidden, "projector", shard=None, bias=True),
            *parts.linear("aligner.layers.2", hidden, hidden, "projector", shard=None, bias=True),
        )
        return seen, Tower(name="aligner.", kind="projector", tensors=aligner)
    fine = sam.tower(Config({}), "vision_model.vision_tower_high.")
    tensors = (*got_ocr2.detail(fine.hidden, fine.name), *got_ocr2.aligner(hidden, seen.hidden, 4 * fine.hidden))
    return seen, fine, Tower(name="aligner.", kind="projector", tensors=tensors)


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
