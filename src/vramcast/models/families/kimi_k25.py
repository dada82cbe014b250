"""Kimi-VL and Kimi K2.5: a DeepSeek-V3 decoder with MoonViT, whose patches a projector merges in squares.

Source of shapes: transformers 5.23, modeling_kimi_k25.py; names as in the checkpoints (q, k and v are one tensor there).
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, vit, wrapper
from vramcast.models.inventory import Model, Tower

_STYLE = vit.Style(attention="", qkv="wqkv", out="wo", mlp=("mlp.fc0", "mlp.fc1"), norms=("norm0", "norm1"))


def read(config: Config) -> Model:
    """A Kimi-VL or Kimi K2.5 model."""
    text = wrapper.text_of(config, "kimi_k2")
    seen = wrapper.part(config, "vision_config", "kimi_k25_vision")
    towers = (moonvit(seen, "vision_tower."), _projector(seen, text.size("hidden_size")))
    return wrapper.wrap(config, text, prefix="language_model.model.", towers=towers, tied=False)


def moonvit(config: Config, name: str) -> Tower:
    """MoonViT, its tensors under ``name``."""
    width = config.size("vt_hidden_size", "hidden_size")
    patch, merge = wrapper.side(config, "patch_size"), wrapper.side(config, "merge_kernel_size", default=2)
    high, across = (config.size(f"init_pos_emb_{side}", f"pos_emb_{side}", default=64) for side in ("height", "width"))
    block = vit.block(
        f"{name}encoder.blocks.{{}}.",
        config.size("vt_num_hidden_layers", "num_hidden_layers"),
        width,
        config.size("vt_num_attention_heads", "num_attention_heads"),
        intermediate=config.size("vt_intermediate_size", "intermediate_size"),
        style=_STYLE,
    )
    return Tower(
        name=name,
        kind="vision",
        hidden=width,
        blocks=(block,),
        tensors=(
            *vit.patches(f"{name}patch_embed.proj", width, 3, patch, patch, bias=True),
            vit.table(f"{name}patch_embed.pos_emb.weight", high, across, width),
            *parts.norms(width, f"{name}encoder.final_layernorm", bias=True),
        ),
        facts={"patch_size": patch, "merge": merge},
    )


def _projector(config: Config, hidden: int) -> Tower:
    width = config.size("vt_hidden_size", "hidden_size")
    wide, merge = (
        config.size("mm_hidden_size", "projection_hidden_size", default=width),
        wrapper.side(config, "merge_kernel_size", default=2),
    )
    joined, name = wide * merge**2, "mm_projector."
    tensors = (
        *parts.norms(wide, f"{name}pre_norm", bias=True),
        *parts.linear(f"{name}proj.0", joined, joined, "projector", shard=None, bias=True),
        *parts.linear(f"{name}proj.2", hidden, joined, "projector", shard=None, bias=True),
    )
    return Tower(name=name, kind="projector", tensors=tensors)
