"""InternVL: InternViT, a pixel shuffle of four patches to one, a two-layer projector, any text decoder.

Source of names and shapes: modeling_intern_vit.py and modeling_internvl_chat.py beside the checkpoints on the hub, and
transformers 5.23, modeling_internvl.py, for the checkpoints converted to it.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, vit, wrapper
from vramcast.models.inventory import TILES, Block, Model, Tensor, Tower


def read(config: Config) -> Model:
    """An InternVL chat model, in its own form or converted to transformers."""
    if config.text("model_type") in ("internvl", "qianfan_ocr"):
        return _converted(config)
    text = wrapper.text_of(config, "qwen2", "llm_config", "text_config")
    seen = wrapper.part(config, "vision_config", "intern_vit_6b")
    tower = _vision(config, seen, text.size("hidden_size"))
    tied = text.flag("tie_word_embeddings", default=False)
    return wrapper.wrap(config, text, prefix="language_model.model.", towers=(tower,), tied=tied)


def _vision(config: Config, seen: Config, hidden: int) -> Tower:
    width, name = seen.size("hidden_size"), "vision_model."
    patch, image = wrapper.side(seen, "patch_size"), wrapper.side(seen, "image_size")
    ratio = config.number("downsample_ratio", default=0.5)
    merged, count = int(width / ratio**2), (image // patch) ** 2
    return Tower(
        name=name,
        kind="vision",
        hidden=width,
        blocks=(_block(seen, width, name),),
        tensors=(
            vit.table(f"{name}embeddings.class_embedding", 1, 1, width),
            *vit.patches(f"{name}embeddings.patch_embedding", width, 3, patch, patch, bias=True),
            vit.table(f"{name}embeddings.position_embedding", 1, count + 1, width),
            *parts.norms(merged, "mlp1.0", bias=True),
            *parts.linear("mlp1.1", hidden, merged, "projector", shard=None, bias=True),
            *parts.linear("mlp1.3", hidden, hidden, "projector", shard=None, bias=True),
        ),
        facts={"patch_size": patch, "image_size": image, "tokens_per_image": int(count * ratio**2), TILES: _tiles(config)},
    )


def _tiles(config: Config) -> int:
    """Of the largest image, with the whole in small (vllm/model_executor/models/internvl.py: resolve_internvl_min_max_num)."""
    if not config.flag("dynamic_image_size", default=False):
        return 1
    most = config.size("max_dynamic_patch", default=6)
    return most + (most > 1 and config.flag("use_thumbnail", default=False))


def _block(config: Config, width: int, name: str) -> Block:
    layer_norm = config.text("norm_type", default="layer_norm") == "layer_norm"
    scales = tuple(Tensor(name=scale, shape=(width,), role="norm") for scale in ("ls1", "ls2"))
    normed = parts.norms(width, "attn.q_norm", "attn.k_norm") if config.flag("qk_normalization", default=False) else ()
    style = vit.Style(
        attention="attn.", qkv="qkv", out="proj", bias=config.flag("qkv_bias", default=True), norms=("norm1", "norm2"),
        norm_bias=layer_norm,
    )  # fmt: skip
    layers, heads = config.size("num_hidden_layers"), config.size("num_attention_heads")
    inner, extra = config.size("intermediate_size"), (*scales, *normed)
    return vit.block(f"{name}encoder.layers.{{}}.", layers, width, heads, intermediate=inner, style=style, extra=extra)


def _converted(config: Config) -> Model:
    family = config.text("model_type")
    text = wrapper.text_of(config, "qwen2" if family == "internvl" else "qwen3", "text_config")
    seen, name = wrapper.part(config, "vision_config", f"{family}_vision"), "model.vision_tower."
    width, hidden = seen.size("hidden_size"), text.size("hidden_size")
    patch, image = wrapper.side(seen, "patch_size"), wrapper.side(seen, "image_size")
    ratio, count = config.number("downsample_ratio", default=0.5), (image // patch) ** 2
    merged, projector = int(width / ratio**2), "model.multi_modal_projector."
    places = count + 1 if seen.flag("use_absolute_position_embeddings", default=True) else 0
    tower = Tower(
        name=name,
        kind="vision",
        hidden=width,
        blocks=(_converted_block(seen, width, name),),
        tensors=(
            vit.table(f"{name}embeddings.cls_token", 1, 1, width),
            *vit.patches(f"{name}embeddings.patch_embeddings.projection", width, 3, patch, patch, bias=True),
            *((vit.table(f"{name}embeddings.position_embeddings", 1, places, width),) if places else ()),
            *((vit.table(f"{name}embeddings.mask_token", 1, 1, width),) if seen.flag("use_mask_token", default=False) else ()),
            *parts.norms(merged, f"{projector}layer_norm", bias=True),
            *parts.linear(f"{projector}linear_1", hidden, merged, "projector", shard=None, bias=True),
            *parts.linear(f"{projector}linear_2", hidden, hidden, "projector", shard=None, bias=True),
        ),
        facts={"patch_size": patch, "image_size": image, "tokens_per_image": int(count * ratio**2)},
    )
    return wrapper.wrap(config, text, prefix="model.language_model.", towers=(tower,))


def _converted_block(config: Config, width: int, name: str) -> Block:
    scales = tuple(Tensor(name=scale, shape=(width,), role="norm") for scale in ("lambda_1", "lambda_2"))
    normed = parts.norms(width, "attention.q_norm", "attention.k_norm") if config.flag("use_qk_norm", default=False) else ()
    style = vit.Style(
        attention="attention.", out="projection_layer", bias=config.flag("attention_bias", default=False),
        norms=("layernorm_before", "layernorm_after"), norm_bias=config.text("norm_type", default="layer_norm") == "layer_norm",
    )  # fmt: skip
    layers, heads = config.size("num_hidden_layers"), config.size("num_attention_heads")
    inner, extra = config.size("intermediate_size"), (*scales, *normed)
    return vit.block(f"{name}encoder.layer.{{}}.", layers, width, heads, intermediate=inner, style=style, extra=extra)
