"""SAM's image encoder, ViTDet with positions by distance, as GOT-OCR, DeepSeek-VL's large models and DeepSeek-OCR carry it.

Source of names and shapes: transformers 5.23, modeling_got_ocr2.py and modeling_deepseek_vl_hybrid.py; deepencoder.py beside
DeepSeek-OCR on the hub.
"""

import msgspec

from vramcast.models.config import Config
from vramcast.models.families import parts, vit, wrapper
from vramcast.models.inventory import Block, Tensor, Tower

_STYLE = vit.Style(
    attention="attn.", qkv="qkv", out="proj", mlp=("mlp.lin1", "mlp.lin2"), norms=("layer_norm1", "layer_norm2"), rope=False
)
_BASE = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "image_size": 1024, "patch_size": 16, "mlp_dim": 3072,
    "global_attn_indexes": [2, 5, 8, 11], "window_size": 14,
}  # fmt: skip


def tower(config: Config, name: str, *, inner: str = "") -> Tower:
    """SAM's ViT with its neck under ``name``; absent fields are those of SAM-B."""
    seen = Config({**_BASE, **{key: value for key, value in config.raw.items() if value is not None}}, config.path)
    hidden, patch, image = seen.size("hidden_size"), wrapper.side(seen, "patch_size"), wrapper.side(seen, "image_size")
    side, base = image // patch, f"{name}{inner}"
    placed = vit.table(f"{base}pos_embed", 1, side, side, hidden)
    return Tower(
        name=name,
        kind="vision",
        hidden=seen.size("output_channels", default=256),
        blocks=_blocks(seen, hidden, side, f"{base}layers.{{}}."),
        tensors=(
            *((placed,) if seen.flag("use_abs_pos", default=True) else ()),
            *vit.patches(f"{base}patch_embed.projection", hidden, 3, patch, patch, bias=True),
            *neck(f"{base}neck.", hidden, seen.size("output_channels", default=256)),
        ),
        facts={"patch_size": patch, "image_size": image},
    )


def neck(name: str, hidden: int, out: int) -> tuple[Tensor, ...]:
    """Two convolutions without bias, each normalised."""
    return (
        *vit.patches(f"{name}conv1", out, hidden, 1, 1),
        *vit.patches(f"{name}conv2", out, out, 3, 3),
        *parts.norms(out, f"{name}layer_norm1", f"{name}layer_norm2", bias=True),
    )


def _blocks(seen: Config, hidden: int, side: int, name: str) -> tuple[Block, ...]:
    """Most layers see a window, those of ``global_attn_indexes`` the image: their tables of distances differ in length."""
    everywhere = set(seen.integers("global_attn_indexes", default=[]))
    windows = [side if i in everywhere else seen.size("window_size") for i in range(seen.size("num_hidden_layers"))]
    return parts.stack(windows, lambda reach: _block(seen, hidden, reach, name))


def _block(seen: Config, hidden: int, reach: int, name: str) -> Block:
    heads = seen.size("num_attention_heads")
    by_distance = tuple(vit.table(f"attn.rel_pos_{axis}", 2 * reach - 1, hidden // heads) for axis in "hw")
    extra = by_distance if seen.flag("use_rel_pos", default=True) else ()
    inner = seen.size("mlp_dim", default=int(hidden * seen.number("mlp_ratio", default=4)))
    style = msgspec.structs.replace(_STYLE, bias=seen.flag("qkv_bias", default=True))
    return vit.block(name, 1, hidden, heads, intermediate=inner, style=style, extra=extra)
