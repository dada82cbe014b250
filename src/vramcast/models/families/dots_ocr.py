"""dots.ocr: a Qwen2 decoder, flat in the config, with a tower of RMS norms and gated MLPs and a merger of patches.

Source of names and shapes: vllm/model_executor/models/dots_ocr.py.
"""

import msgspec

from vramcast.ledger import Assumption
from vramcast.models.config import Config
from vramcast.models.families import parts, vit, wrapper
from vramcast.models.inventory import Model, Tower

_STYLE = vit.Style(
    attention="attn.", qkv="qkv", out="proj", bias=False, out_bias=False, mlp=("mlp.fc1", "mlp.fc3", "mlp.fc2"), mlp_bias=False,
    norms=("norm1", "norm2"), norm_bias=False, activation="silu",
)  # fmt: skip


def read(config: Config) -> Model:
    """A dots.ocr model; one whose config describes no tower is given the class's own."""
    text = Config({**config.raw, "model_type": "qwen2"}, config.path)
    seen = config.optional_child("vision_config")
    tower = _vision(seen or Config({}, f"{config.path}: vision_config"), text.size("hidden_size"))
    model = wrapper.wrap(config, text, prefix="model.", towers=(tower,), tied=False)
    if seen:
        return model
    unsaid = Assumption("vision_config", "the class's default", "the config describes no vision tower")
    return msgspec.structs.replace(model, assumed=(*model.assumed, unsaid))


def _vision(seen: Config, hidden: int) -> Tower:
    width, name, bias = seen.size("embed_dim", default=1536), "vision_tower.", seen.flag("use_bias", default=False)
    patch, merged = seen.size("patch_size", default=14), seen.size("spatial_merge_size", default=2) ** 2
    style = msgspec.structs.replace(_STYLE, bias=bias, out_bias=bias, mlp_bias=bias)
    layers, heads = seen.size("num_hidden_layers", default=42), seen.size("num_attention_heads", default=12)
    inner, joined = seen.size("intermediate_size", default=4224), merged * width
    return Tower(
        name=name,
        kind="vision",
        hidden=width,
        blocks=(vit.block(f"{name}blocks.{{}}.", layers, width, heads, intermediate=inner, style=style),),
        tensors=(
            *vit.patches(
                f"{name}patch_embed.patchifier.proj", width, seen.size("num_channels", default=3), patch, patch, bias=True
            ),
            *parts.norms(width, f"{name}patch_embed.patchifier.norm"),
            *(parts.norms(width, f"{name}post_trunk_norm") if seen.flag("post_norm", default=True) else ()),
            *parts.norms(width, f"{name}merger.ln_q", bias=True),
            *parts.linear(f"{name}merger.mlp.0", joined, joined, "projector", shard=None, bias=True),
            *parts.linear(
                f"{name}merger.mlp.2", seen.size("hidden_size", default=hidden), joined, "projector", shard=None, bias=True
            ),
        ),
        facts={"patch_size": patch},
    )
