"""ERNIE 4.5 VL: a mixture with experts for text and others for images in each layer, a tower whose patches a resampler merges.

Source of names and shapes: transformers 5.23, modeling_ernie4_5_vl_moe.py; configs published before it, flat and with pairs of
sizes (text, image): configuration_ernie4_5_vl.py beside the checkpoints on the hub.
"""

from typing import Any

import msgspec

from vramcast.models.config import Config
from vramcast.models.families import parts, read_text, vit, wrapper
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.layers import Dense, Experts

_STYLE = vit.Style(attention="attn.", qkv="qkv", out="proj", norms=("norm1", "norm2"), activation="quick_gelu")
_PREFIX = "model.language_model."
_PAIRS = ("moe_intermediate_size", "moe_num_experts", "moe_layer_start_index", "moe_layer_end_index")


def read(config: Config) -> Model:
    """An ERNIE 4.5 VL model."""
    whole = wrapper.text_of(config, "ernie4_5_vl_moe_text")
    text = Config({**whole.raw, **_halves(whole, 0), "model_type": "ernie4_5_moe"}, whole.path)
    seen = wrapper.part(config, "vision_config", "ernie4_5_vl_moe_vision")
    decoder = read_text(text, prefix=_PREFIX)
    images = _image_experts(Config({**text.raw, **_halves(whole, 1)}, text.path), decoder)
    towers = (_vision(seen), _resampler(seen, text.size("hidden_size")), images)
    model = wrapper.wrap(config, text, prefix=_PREFIX, towers=towers)
    return msgspec.structs.replace(model, tensors=tuple(t for t in model.tensors if not t.name.endswith("lm_head.bias")))


def _halves(config: Config, side: int) -> dict[str, Any]:
    """Sizes that come in pairs, reduced to that side's."""
    given = {name: config.raw.get(name) for name in _PAIRS}
    return {name: pair[side] for name, pair in given.items() if isinstance(pair, list) and len(pair) == 2}


def _image_experts(config: Config, decoder: Model) -> Tower:
    """The experts that image tokens alone pass, in every sparse layer, with a router of their own."""
    sparse = tuple(i for block in decoder.blocks if isinstance(block.feedforward, Experts) for i in block.indices)
    routed = config.size("moe_num_experts")
    kind = Experts(routed=routed, active=min(routed, config.size("moe_k")), intermediate=config.size("moe_intermediate_size"))
    name = "mlp.vision_moe."
    block = Block(
        name=f"{_PREFIX}layers.{{}}.",
        indices=sparse,
        tensors=(
            *parts.router(kind, decoder.hidden, f"{name}gate"),
            *parts.correction(kind, f"{name}gate.moe_statics.e_score_correction_bias", held="frozen"),
            *parts.experts(kind, decoder.hidden, prefix=f"{name}experts."),
        ),
    )
    return Tower(name="image_experts", kind="vision", hidden=decoder.hidden, blocks=(block,))


def _vision(config: Config) -> Tower:
    width, name, patch = config.size("hidden_size", "embed_dim"), "model.vision_tower.", config.size("patch_size")
    inner = config.size("intermediate_size", default=int(width * config.number("mlp_ratio", default=4)))
    block = vit.block(
        f"{name}blocks.{{}}.", config.size("depth"), width, config.size("num_heads"), intermediate=inner, style=_STYLE
    )
    return Tower(
        name=name,
        kind="vision",
        hidden=width,
        blocks=(block,),
        tensors=(
            *parts.linear(f"{name}patch_embed.proj", width, 3 * patch**2, "patch", shard=None),
            *parts.norms(width, f"{name}ln", bias=True),
        ),
        facts={"patch_size": patch, "merge": config.size("spatial_merge_size", default=2)},
    )


def _resampler(config: Config, hidden: int) -> Tower:
    """Squares of patches joined, then neighbouring frames, each by two layers and a norm, then projected."""
    wide = config.size("hidden_size", "embed_dim") * config.size("spatial_merge_size", default=2) ** 2
    frames, name = config.size("temporal_merge_size", "temporal_conv_size", default=2), "model.resampler_model."
    tensors: tuple[Tensor, ...] = (
        *_joining(f"{name}spatial_linear.", wide, wide),
        *_joining(f"{name}temporal_linear.", wide, frames * wide),
        *parts.linear(f"{name}mlp", hidden, wide, "projector", shard=None, bias=True),
        *parts.norms(hidden, f"{name}after_norm"),
    )
    return Tower(name=name, kind="projector", tensors=tensors)


def _joining(name: str, wide: int, inputs: int) -> tuple[Tensor, ...]:
    last = Dense(intermediate=wide, gated=False)
    return (
        *parts.linear(f"{name}fc1", last.intermediate, inputs, "projector", shard=None, bias=True),
        *parts.linear(f"{name}fc2", wide, wide, "projector", shard=None, bias=True),
        *parts.norms(wide, f"{name}ln", bias=True),
    )
