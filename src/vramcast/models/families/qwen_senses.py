"""Qwen-VL, Qwen-Audio and GLM-4V (remote code): the first generation's decoders with a tower described in their flat config.

Source of names and shapes: visual.py and audio.py beside Qwen-VL and Qwen-Audio, visual.py beside GLM-4V-9B on the hub.
"""

import msgspec

from vramcast.models.config import Config
from vramcast.models.families import minicpmv, parts, vit
from vramcast.models.inventory import Model, Tensor, Tower
from vramcast.models.layers import Dense

_OPENCLIP = vit.Style(attention="attn.", qkv="in_proj", out="out_proj", mlp=("mlp.c_fc", "mlp.c_proj"), norms=("ln_1", "ln_2"))
_WHISPER = vit.Style(
    attention="attn.", separate=("query", "key", "value"), out="out", key_bias=False, mlp=("mlp.0", "mlp.2"),
    norms=("attn_ln", "mlp_ln"),
)  # fmt: skip
_EVA = vit.Style(
    attention="attention.", qkv="query_key_value", out="dense", norms=("input_layernorm", "post_attention_layernorm")
)


FIELDS = ("visual", "audio", "vision_config")
"""Where such a config describes its tower."""


def with_tower(config: Config, model: Model) -> Model:
    """The decoder with the towers its config describes."""
    builders = zip(FIELDS, (_qwen_vl, _qwen_audio, _glm), strict=True)
    found = tuple(build(config, config.child(field), model.hidden) for field, build in builders if config.has(field))
    return msgspec.structs.replace(model, towers=(*model.towers, *found))


def _qwen_vl(_: Config, seen: Config, hidden: int) -> Tower:
    """OpenCLIP ViT-bigG and a resampler of 256 queries."""
    width, patch, image = seen.size("width"), seen.size("patch_size"), seen.size("image_size")
    name, queries = "transformer.visual.", seen.size("n_queries", default=256)
    layers, heads = seen.size("layers"), seen.size("heads")
    inner = int(width * seen.number("mlp_ratio"))
    pooled = minicpmv.resampler(f"{name}attn_pool.", queries, hidden, width)
    return Tower(
        name=name,
        kind="vision",
        hidden=width,
        blocks=(vit.block(f"{name}transformer.resblocks.{{}}.", layers, width, heads, intermediate=inner, style=_OPENCLIP),),
        tensors=(
            *vit.patches(f"{name}conv1", width, 3, patch, patch),
            vit.table(f"{name}positional_embedding", 256, width),
            *parts.norms(width, f"{name}ln_pre", bias=True),
            vit.table(f"{name}attn_pool.pos_embed", queries, hidden),
            *pooled,
        ),
        facts={"patch_size": patch, "image_size": image, "tokens_per_image": queries},
    )


def _qwen_audio(_: Config, heard: Config, hidden: int) -> Tower:
    """Whisper's encoder as OpenAI named it, and a projection."""
    width, places, name = heard.size("n_state"), heard.size("n_ctx"), "transformer.audio."
    layers, heads = heard.size("n_layer"), heard.size("n_head")
    ends = (
        (vit.table(f"{name}audio_bos_eos_token.weight", 2, hidden),)
        if heard.flag("add_audio_bos_eos_token", default=False)
        else ()
    )
    return Tower(
        name=name,
        kind="audio",
        hidden=width,
        blocks=(vit.block(f"{name}blocks.{{}}.", layers, width, heads, intermediate=4 * width, style=_WHISPER),),
        tensors=(
            *vit.patches(f"{name}conv1", width, heard.size("n_mels", default=80), 3, bias=True),
            *vit.patches(f"{name}conv2", width, width, 3, bias=True),
            Tensor(name=f"{name}positional_embedding", shape=(places, width), role="position", kind="buffer"),
            *parts.norms(width, f"{name}ln_post", bias=True),
            *parts.linear(f"{name}proj", hidden, width, "projector", shard=None, bias=True),
            *ends,
        ),
    )


def _glm(config: Config, seen: Config, hidden: int) -> Tower:
    return eva(config, seen, hidden, merged=hidden)


def eva(config: Config, seen: Config, hidden: int, *, merged: int, name: str = "transformer.vision.") -> Tower:
    """EVA2-CLIP-E, a convolution that merges squares of four patches, and a gated projector as wide as the decoder's MLP.

    ``merged`` is how wide the convolution's output is, 0 = there is none.
    """
    width, patch = seen.size("hidden_size"), seen.size("patch_size")
    layers, heads, inner = seen.size("num_hidden_layers"), seen.size("num_heads"), seen.size("intermediate_size")
    projector = Dense(intermediate=config.size("ffn_hidden_size"))
    proj = f"{name}linear_proj."
    return Tower(
        name=name,
        kind="vision",
        hidden=width,
        blocks=(vit.block(f"{name}transformer.layers.{{}}.", layers, width, heads, intermediate=inner, style=_EVA),),
        tensors=(
            *vit.patches(f"{name}patch_embedding.proj", width, seen.size("in_channels", default=3), patch, patch, bias=True),
            vit.table(f"{name}patch_embedding.cls_embedding", 1, width),
            vit.table(f"{name}patch_embedding.position_embedding.weight", seen.size("num_positions"), width),
            *(vit.patches(f"{name}conv", merged, width, 2, 2, bias=True) if merged else ()),
            *(vit.table(f"{name}{end}", 1, 1, hidden) for end in ("boi", "eoi")),
            *parts.linear(f"{proj}linear_proj", hidden, merged or width, "projector", shard=None),
            *parts.norms(hidden, f"{proj}norm1", bias=True),
            *parts.gated_mlp(projector, hidden, prefix=proj, names=("gate_proj", "dense_h_to_4h", "dense_4h_to_h")),
        ),
        facts={
            "patch_size": patch,
            "image_size": seen.size("image_size"),
            "tokens_per_image": (seen.size("num_positions") - 1) // 4,
        },
    )
