"""LLaVA and its relatives: a CLIP, SigLIP or Pixtral tower, a small projector, a text decoder. One row per class.

Source of names and shapes: transformers 5.23, the modeling and configuration file of each class; names as in checkpoints.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from vramcast.models.config import Config
from vramcast.models.families import kind_of, llava_original, parts, vit, wrapper
from vramcast.models.families.class_defaults import completed
from vramcast.models.inventory import Model, Tensor, Tower

_PROJECTOR = "multi_modal_projector."
Projector = Callable[[Config, "VisionStyle", Tower, int], tuple[Tensor, ...]]


def _two_layers(config: Config, style: "VisionStyle", tower: Tower, hidden: int) -> tuple[Tensor, ...]:
    """Two linear layers over what the tower saw: several of its layers joined, or squares of patches joined."""
    layers = config.raw.get("vision_feature_layers", config.raw.get("vision_feature_layer"))
    joined = config.size(style.merge, default=2) ** 2 if style.merge else len(layers) if isinstance(layers, list) else 1
    wide = tower.hidden * joined
    inner = config.size(style.inner, default=hidden) if style.inner else hidden
    normed = bool(style.norm) and config.flag("projector_use_layernorm", default=True)
    bias = config.flag("multimodal_projector_bias", "projector_bias", default=True)
    return (
        *(parts.norms(wide, f"{_PROJECTOR}{style.norm}", bias=True) if normed else ()),
        *parts.linear(f"{_PROJECTOR}linear_1", inner, wide, "projector", shard=None, bias=bias),
        *parts.linear(f"{_PROJECTOR}linear_2", hidden, inner // (1 + style.gated), "projector", shard=None, bias=bias),
    )


def _merging(config: Config, style: "VisionStyle", tower: Tower, hidden: int) -> tuple[Tensor, ...]:
    """Mistral 3 merges squares of patches before projecting them."""
    wide = tower.hidden * config.size("spatial_merge_size", default=2) ** 2
    bias = config.flag("multimodal_projector_bias", default=False)
    return (
        *parts.norms(tower.hidden, f"{_PROJECTOR}norm"),
        *parts.linear(f"{_PROJECTOR}patch_merger.merging_layer", tower.hidden, wide, "projector", shard=None),
        *parts.linear(f"{_PROJECTOR}linear_1", hidden, tower.hidden * _read(config), "projector", shard=None, bias=bias),
        *parts.linear(f"{_PROJECTOR}linear_2", hidden, hidden, "projector", shard=None, bias=bias),
    )


def _read(config: Config) -> int:
    """How many of the tower's layers are read."""
    layers = config.raw.get("vision_feature_layer")
    return len(layers) if isinstance(layers, list) else 1


def _soft_tokens(config: Config, style: "VisionStyle", tower: Tower, hidden: int) -> tuple[Tensor, ...]:
    weight = Tensor(name=f"{_PROJECTOR}mm_input_projection_weight", shape=(tower.hidden, hidden), role="projector")
    return (weight, *parts.norms(tower.hidden, f"{_PROJECTOR}mm_soft_emb_norm"))


def _one_layer(config: Config, style: "VisionStyle", tower: Tower, hidden: int) -> tuple[Tensor, ...]:
    return parts.linear(f"{_PROJECTOR}linear", hidden, tower.hidden, "projector", shard=None, bias=True)


def _patch_normed(config: Config, style: "VisionStyle", tower: Tower, hidden: int) -> tuple[Tensor, ...]:
    """PaddleOCR-VL normalises each patch, then joins four."""
    wide = 4 * tower.hidden
    return (
        *parts.norms(tower.hidden, f"{_PROJECTOR}pre_norm", bias=True),
        *parts.linear(f"{_PROJECTOR}linear_1", wide, wide, "projector", shard=None, bias=True),
        *parts.linear(f"{_PROJECTOR}linear_2", hidden, wide, "projector", shard=None, bias=True),
    )


def _readout(config: Config, style: "VisionStyle", tower: Tower, hidden: int) -> tuple[Tensor, ...]:
    """VideoLLaMA 3's two layers."""
    first = parts.linear("model.projector.readout.0", hidden, tower.hidden, "projector", shard=None, bias=True)
    return (*first, *parts.linear("model.projector.readout.2", hidden, hidden, "projector", shard=None, bias=True))


def _queried(config: Config, style: "VisionStyle", tower: Tower, hidden: int) -> tuple[Tensor, ...]:
    """Aria's learned queries attend to the patches through two sets of projections, then pass a plain MLP."""
    width, name = tower.hidden, f"{_PROJECTOR}cross_attn."
    queries = config.size("max_value_projector_patch_to_query_dict", default=_most_queries(config))
    inner = wrapper.text_of(config, style.text).size("hidden_size")
    return (
        vit.table(f"{_PROJECTOR}query", queries, width),
        *(t for x in "qkv" for t in parts.linear(f"{name}{x}_proj", width, width, x, shard=None)),
        Tensor(name=f"{name}multihead_attn.in_proj_weight", shape=(3 * width, width), role="qkv"),
        Tensor(name=f"{name}multihead_attn.in_proj_bias", shape=(3 * width,), role="bias"),
        *parts.linear(f"{name}multihead_attn.out_proj", width, width, "o", shard=None, bias=True),
        *parts.linear(f"{name}linear", width, width, "projector", shard=None, bias=True),
        *parts.norms(width, f"{name}layer_norm", f"{name}layer_norm_kv", f"{_PROJECTOR}layer_norm", bias=True),
        *parts.linear(f"{_PROJECTOR}feed_forward.linear_in", inner, width, "projector", shard=None),
        *parts.linear(f"{_PROJECTOR}feed_forward.linear_out", hidden, inner, "projector", shard=None),
    )


def _most_queries(config: Config) -> int:
    told = config.optional_child("projector_patch_to_query_dict")
    return max((told.size(patches) for patches in told.raw), default=256) if told else 256


class VisionStyle(msgspec.Struct, frozen=True, kw_only=True):
    """How one class sets images beside its text.

    ``tower`` and ``text`` are the classes of what its config leaves out, ``unsaid`` the tower's sizes.
    ``merge`` names the field of patches joined along a side, ``inner`` that of the projector's width, half of it read on when
    ``gated``; ``norm`` the layer norm before it. ``newline``: a learned end of each row of patches.
    """

    text: str = "llama"
    tower: str = "clip_vision_model"
    towers: tuple[str, ...] = ("vision_tower.",)
    unsaid: dict[str, Any] = {}
    projector: Projector = _two_layers
    merge: str = ""
    inner: str = ""
    gated: bool = False
    norm: str = ""
    newline: bool = False
    tied: bool = True


# What a class takes for a tower its config leaves out altogether (SubConfigSpec in its configuration file).
_CLIP_L = {
    "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16, "patch_size": 14,
    "image_size": 336,
}  # fmt: skip
_SIGLIP = "siglip_vision_model"
_MISTRAL3 = VisionStyle(text="mistral", tower="pixtral", unsaid={"patch_size": 14, "image_size": 1540}, projector=_merging)
_COHERE = VisionStyle(text="cohere2", tower=_SIGLIP, merge="downsample_factor", inner="alignment_intermediate_size", gated=True)

VISION_STYLES: dict[str, VisionStyle] = {
    "llava": VisionStyle(unsaid=_CLIP_L),
    "llava_next": VisionStyle(unsaid=_CLIP_L, newline=True),
    "llava_next_video": VisionStyle(newline=True, tied=False),
    "llava_onevision": VisionStyle(text="qwen2", tower=_SIGLIP, newline=True, tied=False),
    "vipllava": VisionStyle(unsaid=_CLIP_L, norm="projector_layernorm", tied=False),
    "video_llava": VisionStyle(unsaid=_CLIP_L, towers=("video_tower.", "image_tower."), tied=False),
    "mistral3": _MISTRAL3,
    "mistral_large4": VisionStyle(
        text="mistral_large4_text",
        tower="pixtral",
        projector=_merging,
        tied=False,
        unsaid={
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "num_hidden_layers": 30,
            "num_attention_heads": 16,
            "patch_size": 14,
            "image_size": 1540,
        },
    ),
    "lighton_ocr": msgspec.structs.replace(_MISTRAL3, text="qwen3"),
    "gemma3": VisionStyle(text="gemma3_text", tower=_SIGLIP, projector=_soft_tokens),
    "shieldgemma2": VisionStyle(text="gemma3_text", tower=_SIGLIP, projector=_soft_tokens),
    "paligemma": VisionStyle(text="gemma", tower=_SIGLIP, projector=_one_layer),
    "aya_vision": msgspec.structs.replace(_COHERE, norm="layernorm"),
    "cohere2_vision": _COHERE,
    "deepseek_vl": VisionStyle(tower=_SIGLIP),
    "lfm2_vl": VisionStyle(
        text="lfm2", tower="siglip2_vision_model", merge="downsample_factor", inner="projector_hidden_size", norm="layer_norm"
    ),
    "aria": VisionStyle(text="aria_text", tower="idefics3_vision", projector=_queried, tied=False),
    "video_llama_3": VisionStyle(
        text="qwen2", tower="video_llama_3_vision", towers=("model.vision_model.",), projector=_readout, tied=False
    ),
    "paddleocr_vl": VisionStyle(text="paddleocr_vl_text", tower="paddleocr_vl_vision", projector=_patch_normed),
}


def read(config: Config) -> Model:
    """A LLaVA-like model."""
    if not config.has("text_config") and config.has("mm_hidden_size"):
        return llava_original.read(config)
    style = VISION_STYLES[kind_of(config)]
    text = wrapper.text_of(config, style.text)
    seen, hidden = _vision(config, style), text.size("hidden_size")
    towers = tuple(vit.tower(seen, name) for name in style.towers)
    newline = (vit.table("image_newline", hidden),) if style.newline else ()
    tensors = style.projector(config, style, towers[0], hidden)
    projector = Tower(name=_PROJECTOR, kind="projector", tensors=tensors, hidden=hidden)
    return wrapper.wrap(config, text, prefix="language_model.model.", towers=(*towers, projector), tied=style.tied, extra=newline)


def _vision(config: Config, style: VisionStyle) -> Config:
    """The tower's config, completed by its own class, or by the wrapper's choice when there is none."""
    seen = config.optional_child("vision_config") or Config(style.unsaid, f"{config.path}: vision_config")
    kind = seen.text("model_type", default=style.tower)
    return completed(Config({**seen.raw, "model_type": kind}, seen.path), kind, nested=True)
