"""Qwen2-VL to Qwen3.5 and GLM-4V: a tower of any resolution whose patches are merged in squares.

Source of names and shapes: transformers 5.23, modeling_qwen2_vl.py, modeling_qwen2_5_vl.py, modeling_qwen3_vl.py,
modeling_qwen3_5.py and modeling_glm4v.py; names as in checkpoints.
"""

import msgspec

from vramcast.models.config import Config
from vramcast.models.families import parts, vit, wrapper
from vramcast.models.inventory import Model, Tensor, Tower

_QWEN2 = vit.Style(attention="attn.", qkv="qkv", out="proj", norms=("norm1", "norm2"), activation="quick_gelu")
_QWEN25 = vit.Style(
    attention="attn.", qkv="qkv", out="proj", norms=("norm1", "norm2"), norm_bias=False, activation="silu",
    mlp=("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
)  # fmt: skip
_OMNI = msgspec.structs.replace(_QWEN25, qkv="", separate=("q", "k", "v"))
_QWEN3 = vit.Style(attention="attn.", qkv="qkv", out="proj", norms=("norm1", "norm2"), mlp=("mlp.linear_fc1", "mlp.linear_fc2"))
_GLM = vit.Style(
    attention="attn.", qkv="qkv", out="proj", norms=("norm1", "norm2"), norm_bias=False, activation="silu",
    mlp=("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"), mlp_bias=False, out_bias=False, bias=False,
)  # fmt: skip


def read(config: Config) -> Model:
    """A Qwen-VL or GLM-4V model."""
    family = config.text("model_type")
    text = wrapper.text_of(config, _TEXTS.get(family, f"{family}_text"), "text_config")
    old = family in ("qwen2_vl", "qwen2_5_vl")
    prefix = "visual." if old else "model.visual."
    named = "model." if old else "model.language_model."
    if family == "hyperclovax_vision_v2":
        return _hyperclova(config, text)
    if not config.has("vision_config") and not config.has("text_config"):
        return wrapper.without_tower(wrapper.wrap(config, text, prefix=named, towers=(), tied=False), "vision tower")
    model = wrapper.wrap(config, text, prefix=named, towers=(vision(config, family, prefix),), tied=False)
    return wrapper.without_tower(model, "the tower for time series") if config.has("ts_config") else model


def _hyperclova(config: Config, text: Config) -> Model:
    """HyperCLOVA X sees with Qwen2.5's tower, whose merger one more layer follows."""
    tower = vision(config, "qwen2_5_vl", "model.vision_model.")
    seen = wrapper.part(config, "vision_config", "qwen2_5_vl_vision").size("out_hidden_size")
    linear = parts.linear("model.projector", text.size("hidden_size"), seen, "projector", shard=None, bias=True)
    projector = Tower(name="model.projector.", kind="projector", tensors=linear)
    return wrapper.wrap(config, text, prefix="model.language_model.", towers=(tower, projector), tied=True)


def vision(config: Config, family: str, prefix: str) -> Tower:
    """The tower of that family under ``prefix``."""
    kind = _CLASSES.get(family, f"{family}_vision")
    return _BUILDERS.get(family, _qwen3)(wrapper.part(config, "vision_config", kind), prefix)


_CLASSES = {
    "qwen2_5_omni": "qwen2_5_omni_vision_encoder",
    "qwen3_omni_moe": "qwen3_omni_moe_vision_encoder",
    "glm46v": "glm4v_vision",
    "glmga": "glm4v_vision",
    "intern_s2_preview": "qwen3_5_moe_vision",
}
_TEXTS = {
    "glm46v": "glm4v_text",
    "glmga": "glm4v_text",
    "intern_s2_preview": "qwen3_5_moe_text",
    "exaone4_5": "exaone4",
    "hyperclovax_vision_v2": "hyperclovax",
}


def _facts(config: Config) -> dict[str, float]:
    merge = config.size("spatial_merge_size", default=2)
    return {"patch_size": config.size("patch_size"), "merge": merge, "temporal_patch_size": _frames(config)}


def _frames(config: Config) -> int:
    return config.size("temporal_patch_size", default=2)


def _patches(config: Config, hidden: int, prefix: str, *, bias: bool) -> tuple[Tensor, ...]:
    patch = config.size("patch_size")
    channels = config.size("in_channels", "in_chans", default=3)
    return vit.patches(f"{prefix}patch_embed.proj", hidden, channels, _frames(config), patch, patch, bias=bias)


def _qwen2(config: Config, prefix: str) -> Tower:
    hidden, wide = config.size("embed_dim"), config.size("embed_dim") * config.size("spatial_merge_size", default=2) ** 2
    inner = int(hidden * config.number("mlp_ratio", default=4))
    tensors = (
        *_patches(config, hidden, prefix, bias=False),
        *parts.norms(hidden, f"{prefix}merger.ln_q", bias=True),
        *_merger(prefix, ("merger.mlp.0", "merger.mlp.2"), wide, config.size("hidden_size")),
    )
    return _tower(config, prefix, tensors, hidden=hidden, intermediate=inner, style=_QWEN2)


def _tower(
    config: Config,
    prefix: str,
    tensors: tuple[Tensor, ...],
    *,
    hidden: int,
    intermediate: int,
    style: vit.Style,
    extra: tuple[Tensor, ...] = (),
) -> Tower:
    """The stack of equal blocks that all generations share; ``tensors``: what stands before and after it."""
    depth, heads = config.size("depth"), config.size("num_heads")
    blocks = vit.block(
        f"{prefix}blocks.{{}}.", depth, hidden, heads, intermediate=intermediate, style=style, extra=extra,
        kv_heads=config.integer("num_key_value_heads", default=0),
    )  # fmt: skip
    return Tower(name=prefix, kind="vision", hidden=hidden, blocks=(blocks,), tensors=tensors, facts=_facts(config))


def _omni(config: Config, prefix: str) -> Tower:
    return _qwen25(config, prefix, _OMNI)


def _qwen25(config: Config, prefix: str, style: vit.Style = _QWEN25) -> Tower:
    hidden, inner = config.size("hidden_size"), config.size("intermediate_size")
    wide = hidden * config.size("spatial_merge_size", default=2) ** 2
    tensors = (
        *_patches(config, hidden, prefix, bias=False),
        *parts.norms(hidden, f"{prefix}merger.ln_q"),
        *_merger(prefix, ("merger.mlp.0", "merger.mlp.2"), wide, config.size("out_hidden_size")),
    )
    tower = _tower(config, prefix, tensors, hidden=hidden, intermediate=inner, style=style)
    return msgspec.structs.replace(tower, facts={**tower.facts, "window_size": config.integer("window_size", default=112)})


def _qwen3(config: Config, prefix: str) -> Tower:
    """Learned positions, and a merger after some layers whose output joins the decoder's first layers (DeepStack)."""
    hidden, inner = config.size("hidden_size"), config.size("intermediate_size")
    wide, out = hidden * config.size("spatial_merge_size", default=2) ** 2, config.size("out_hidden_size")
    deep = range(len(config.list("deepstack_visual_indexes", default=[])))
    norms = (("merger.norm", hidden), *((f"deepstack_merger_list.{i}.norm", wide) for i in deep))
    heads = ("merger", *(f"deepstack_merger_list.{i}" for i in deep))
    tensors = (
        *_patches(config, hidden, prefix, bias=True),
        vit.table(f"{prefix}pos_embed.weight", config.size("num_position_embeddings"), hidden),
        *(t for name, width in norms for t in parts.norms(width, f"{prefix}{name}", bias=True)),
        *(t for name in heads for t in _merger(prefix, (f"{name}.linear_fc1", f"{name}.linear_fc2"), wide, out)),
    )
    return _tower(config, prefix, tensors, hidden=hidden, intermediate=inner, style=_QWEN3)


def _merger(prefix: str, names: tuple[str, str], wide: int, out: int) -> tuple[Tensor, ...]:
    first, second = (f"{prefix}{name}" for name in names)
    return (
        *parts.linear(first, wide, wide, "projector", shard=0, bias=True),
        *parts.linear(second, out, wide, "projector", shard=1, bias=True),
    )


def _glm(config: Config, prefix: str) -> Tower:
    """GLM-4V: a convolution merges the patches, a gated MLP projects them; the blocks' MLPs are ``out_hidden_size`` wide."""
    hidden, out = config.size("hidden_size"), config.size("out_hidden_size")
    patch, image = config.size("patch_size"), wrapper.side(config, "image_size", default=336)
    style = msgspec.structs.replace(_GLM, bias=config.flag("attention_bias", default=False))
    tensors = (
        *_patches(config, hidden, prefix, bias=True),
        vit.table(f"{prefix}embeddings.position_embedding.weight", (image // patch) ** 2, hidden),
        *parts.norms(hidden, f"{prefix}post_conv_layernorm", f"{prefix}post_layernorm"),
        *_downsampled(config, prefix, hidden, config.size("intermediate_size")),
    )
    return _tower(config, prefix, tensors, hidden=hidden, intermediate=out, style=style)


def _ocr(config: Config, prefix: str) -> Tower:
    """GLM-OCR and GLM-5 Next: no learned positions, normalised queries and keys, biased MLPs.

    The merger is as wide as said, else three times the decoder's width.
    """
    hidden, heads = config.size("hidden_size"), config.size("num_heads")
    biased = config.flag("attention_bias", default=True)
    usual = config.size("in_channels", default=3) * config.size("out_hidden_size")
    tensors = (
        *_patches(config, hidden, prefix, bias=True),
        *parts.norms(hidden, f"{prefix}post_layernorm"),
        *_downsampled(config, prefix, hidden, config.size("projection_intermediate_size", default=usual)),
    )
    style = msgspec.structs.replace(_GLM, bias=biased, out_bias=biased, mlp_bias=biased)
    normed = parts.norms(max(1, hidden // heads), "attn.q_norm", "attn.k_norm")
    inner = config.size("intermediate_size")
    return _tower(config, prefix, tensors, hidden=hidden, intermediate=inner, style=style, extra=normed)


def _downsampled(config: Config, prefix: str, hidden: int, inner: int) -> tuple[Tensor, ...]:
    """GLM's convolution that merges squares of patches, and the gated MLP of width ``inner`` after it."""
    merger, out, merge = f"{prefix}merger.", config.size("out_hidden_size"), config.size("spatial_merge_size", default=2)
    return (
        *vit.patches(f"{prefix}downsample", out, hidden, merge, merge, bias=True),
        *parts.linear(f"{merger}proj", out, out, "projector", shard=None),
        *parts.norms(out, f"{merger}post_projection_norm", bias=True),
        *(t for n in ("gate_proj", "up_proj") for t in parts.linear(f"{merger}{n}", inner, out, "projector", shard=0)),
        *parts.linear(f"{merger}down_proj", out, inner, "projector", shard=1),
    )


_BUILDERS = {
    "qwen2_vl": _qwen2,
    "qwen2_5_vl": _qwen25,
    "qwen2_5_omni": _omni,
    "exaone4_5": _qwen25,
    "glm4v": _glm,
    "glm4v_moe": _glm,
    "glm46v": _glm,
    "glmga": _glm,
    "glm_ocr": _ocr,
    "glm5_next": _ocr,
}
