"""Hunyuan-VL and its OCR model: a SigLIP-like tower, patches merged by convolutions, a dense Hunyuan decoder.

Source of names and shapes: transformers 5.23, modeling_hunyuan_vl.py.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, vit, wrapper
from vramcast.models.inventory import Model, Tensor, Tower


def read(config: Config) -> Model:
    """A Hunyuan-VL model."""
    text = wrapper.text_of(config, "hunyuan_vl_text")
    seen = wrapper.part(config, "vision_config", "hunyuan_vl_vision")
    tower = _vision(seen, seen.size("text_hidden_size", default=text.size("hidden_size")))
    return wrapper.wrap(config, text, prefix="model.language_model.", towers=(tower,))


def _vision(config: Config, hidden: int) -> Tower:
    width, name, patch = config.size("hidden_size"), "model.visual.", config.size("patch_size")
    heads, places = config.size("num_attention_heads"), (config.size("max_image_size", default=2048) // patch) ** 2 + 1
    block = vit.block(
        f"{name}layers.{{}}.", config.size("num_hidden_layers"), width, heads, intermediate=config.size("intermediate_size"),
        style=vit.Style(out="o_proj", rope=False),
    )  # fmt: skip
    return Tower(
        name=name,
        kind="vision",
        hidden=width,
        blocks=(block,),
        tensors=(
            *vit.patches(f"{name}embeddings.patch_embedding", width, 3, patch, patch, bias=True),
            vit.table(f"{name}embeddings.position_embedding.weight", places, width),
            *_merger(config, width, hidden, f"{name}patch_merger."),
        ),
        facts={"patch_size": patch, "merge": config.size("spatial_merge_size", default=2)},
    )


def _merger(config: Config, width: int, hidden: int, name: str) -> tuple[Tensor, ...]:
    """Two convolutions widen squares of patches, one layer projects them; rows, beginnings and ends are learned."""
    merge, wide = config.size("spatial_merge_size", default=2), 4 * width
    return (
        *vit.patches(f"{name}proj_conv", 2 * width, width, merge, merge, bias=True),
        *vit.patches(f"{name}proj_out", wide, 2 * width, 1, 1, bias=True),
        *parts.linear(f"{name}mlp", hidden, wide, "projector", shard=None, bias=True),
        vit.table(f"{name}image_newline", wide),
        *(vit.table(f"{name}image_{mark}", hidden) for mark in ("begin", "end", "sep")),
        *parts.norms(width, f"{name}before_rms"),
        *parts.norms(hidden, f"{name}after_rms"),
    )
