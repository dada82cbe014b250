"""LFM3-VL: a tower of gated convolutions over the image with attention every second layer, before LFM3.

Source of names and shapes: transformers 5.23, modeling_lfm3_vl.py.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, state_space, vit, wrapper
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.layers import Dense

_GATED = ("feed_forward.w1", "feed_forward.w3", "feed_forward.w2")
_STYLE = vit.Style(
    bias=False,
    out_bias=False,
    mlp=_GATED,
    mlp_bias=False,
    norms=("operator_norm", "ffn_norm"),
    norm_bias=False,
    activation="silu",
)


def read(config: Config) -> Model:
    """An LFM3-VL model."""
    text, seen = wrapper.text_of(config, "lfm3"), wrapper.part(config, "vision_config", "lfm3_vl_vision")
    towers = (_vision(seen, "model.vision_tower."), _projector(config, seen, text.size("hidden_size")))
    return wrapper.wrap(config, text, prefix="model.language_model.", towers=towers, tied=True)


def _vision(config: Config, name: str) -> Tower:
    hidden, patch = config.size("hidden_size"), wrapper.side(config, "patch_size")
    frames = config.size("temporal_patch_size", default=2)
    count, channels = config.size("num_hidden_layers"), config.size("in_channels", default=3)
    named = state_space.layer_kinds(config, "layer_types", ("conv", "full_attention"))
    kinds = config.per_layer("layer_types", count) if named else ["conv" if i < 2 or i % 2 else "" for i in range(count)]
    blocks = parts.stack(kinds, lambda kind: _layer(config, hidden, f"{name}layers.{{}}.", convolves=kind == "conv"))
    tensors = (
        *vit.patches(f"{name}patch_embed", hidden, channels * frames * patch**2),
        *parts.norms(hidden, f"{name}embedding_norm"),
    )
    facts: dict[str, float] = {"patch_size": patch, "merge": config.size("spatial_merge_size", default=2)}
    return Tower(name=name, kind="vision", hidden=hidden, blocks=blocks, tensors=tensors, facts=facts)


def _layer(config: Config, hidden: int, name: str, *, convolves: bool) -> Block:
    heads, inner = config.size("num_attention_heads"), config.size("intermediate_size")
    if not convolves:
        normed = parts.norms(max(1, hidden // heads), "self_attn.q_norm", "self_attn.k_norm")
        kv_heads = config.size("num_key_value_heads", default=heads)
        return vit.block(name, 1, hidden, heads, kv_heads=kv_heads, intermediate=inner, style=_STYLE, extra=normed)
    kernel, feed = config.size("conv_kernel_size", default=3), Dense(intermediate=inner)
    tensors = (
        *parts.linear("conv.in_proj", 3 * hidden, hidden, "mixer", shard=0),
        Tensor(name="conv.spatial_conv.weight", shape=(hidden, 1, kernel, kernel), role="conv"),
        *parts.linear("conv.out_proj", hidden, hidden, "mixer", shard=1),
        *parts.gated_mlp(feed, hidden, prefix="", names=_GATED),
        *parts.norms(hidden, "operator_norm", "ffn_norm"),
    )
    return Block(name=name, indices=(), feedforward=feed, tensors=tensors)


def _projector(config: Config, seen: Config, hidden: int) -> Tower:
    width, inner = seen.size("hidden_size"), config.size("projector_hidden_size", default=4096)
    wide, bias = width * seen.size("spatial_merge_size", default=2) ** 2, config.flag("projector_bias", default=True)
    name = "model.multi_modal_projector."
    tensors = (
        *parts.norms(width, f"{name}layer_norm", bias=True),
        *parts.linear(f"{name}linear_1", inner, wide, "projector", shard=None, bias=bias),
        *parts.linear(f"{name}linear_2", hidden, inner, "projector", shard=None, bias=bias),
    )
    return Tower(name=name, kind="projector", tensors=tensors)
