"""Vision transformers: the blocks, patch embeddings and positions that towers share, and the CLIP, SigLIP and Pixtral towers.

Source of names and shapes: transformers 5.23, modeling_clip.py, modeling_siglip.py and modeling_pixtral.py; names as in
checkpoints.
"""

import msgspec

from vramcast.errors import UnmodelledError
from vramcast.models.config import Config
from vramcast.models.families import parts, wrapper
from vramcast.models.inventory import Block, Tensor, Tower
from vramcast.models.layers import Attention, Dense


class Style(msgspec.Struct, frozen=True, kw_only=True):
    """How an encoder names and shapes its blocks. ``qkv`` names one fused projection, "" = separate q, k and v.

    ``rope``: positions turn queries and keys, which a tower with a table of positions alone does not do.
    ``mlp``: two names for a plain MLP, three for a gated one.
    """

    attention: str = "self_attn."
    qkv: str = ""
    separate: tuple[str, str, str] = ("q_proj", "k_proj", "v_proj")
    out: str = "out_proj"
    bias: bool = True
    key_bias: bool = True
    out_bias: bool = True
    mlp: tuple[str, ...] = ("mlp.fc1", "mlp.fc2")
    mlp_bias: bool = True
    norms: tuple[str, ...] = ("layer_norm1", "layer_norm2")
    norm_bias: bool = True
    activation: str = "gelu"
    rope: bool = True


PIXTRAL = Style(
    attention="attention.", out="o_proj", bias=False, out_bias=False, mlp_bias=False, norm_bias=False, activation="silu",
    mlp=("feed_forward.gate_proj", "feed_forward.up_proj", "feed_forward.down_proj"), norms=("attention_norm", "ffn_norm"),
)  # fmt: skip


def styled(style: Style, **changes: bool) -> Style:
    """A style with some switches as a config has them."""
    return msgspec.structs.replace(style, **changes)


def block(
    name: str,
    count: int,
    hidden: int,
    heads: int,
    *,
    intermediate: int,
    style: Style,
    head_dim: int = 0,
    kv_heads: int = 0,
    extra: tuple[Tensor, ...] = (),
) -> Block:
    """``count`` equal bidirectional layers under ``name`` ("vision_tower.blocks.{}.")."""
    kind = Attention(
        heads=heads,
        kv_heads=kv_heads or heads,
        head_dim=head_dim or max(1, hidden // heads),
        causal=False,
        rope_dim=-1 if style.rope else 0,
    )
    feed = Dense(intermediate=intermediate, gated=len(style.mlp) == 3, activation=style.activation)
    return Block(
        name=name,
        indices=tuple(range(count)),
        mixers=(kind,),
        feedforward=feed,
        tensors=(
            *projections(kind, hidden, style),
            *_mlp(feed, hidden, style),
            *parts.norms(hidden, *style.norms, bias=style.norm_bias),
            *extra,
        ),
    )


def projections(kind: Attention, hidden: int, style: Style) -> tuple[Tensor, ...]:
    """Query, key, value and output projections as the style names them."""
    width, keys, name = kind.heads * kind.head_dim, kind.kv_heads * kind.head_dim, style.attention
    if style.qkv:
        into = parts.linear(f"{name}{style.qkv}", width + 2 * keys, hidden, "qkv", shard=0, groups=kind.heads, bias=style.bias)
    else:
        rows = (("q", width, style.bias), ("k", keys, style.bias and style.key_bias), ("v", keys, style.bias))
        into = tuple(
            tensor
            for each, (role, outputs, bias) in zip(style.separate, rows, strict=True)
            for tensor in parts.linear(f"{name}{each}", outputs, hidden, role, shard=0, groups=kind.heads, bias=bias)
        )
    return (*into, *parts.output(kind, hidden, f"{name}{style.out}", bias=style.out_bias))


def _mlp(kind: Dense, hidden: int, style: Style) -> tuple[Tensor, ...]:
    if kind.gated:
        gate, up, down = style.mlp
        return parts.gated_mlp(kind, hidden, prefix="", names=(gate, up, down), bias=style.mlp_bias)
    up, down = style.mlp
    return parts.plain_mlp(kind, hidden, up, down, bias=style.mlp_bias)


def patches(name: str, hidden: int, *kernel: int, bias: bool = False) -> tuple[Tensor, ...]:
    """The convolution that cuts an image in patches; ``kernel`` is (channels, [frames,] height, width)."""
    weight = Tensor(name=f"{name}.weight", shape=(hidden, *kernel), role="patch")
    return (weight, Tensor(name=f"{name}.bias", shape=(hidden,), role="bias")) if bias else (weight,)


def table(name: str, *shape: int) -> Tensor:
    """A learned table: positions, a class token."""
    return Tensor(name=name, shape=shape, role="position")


def tower(config: Config, prefix: str) -> Tower:
    """The CLIP, SigLIP or Pixtral tower of a nested ``vision_config``, named under ``prefix``."""
    kind = config.text("model_type", default="clip_vision_model")
    read = _TOWERS.get(kind)
    if read is None:
        raise UnmodelledError(
            f"{config.path}: no rule for a vision tower of model_type {kind[:40]!r}; known: {', '.join(_TOWERS)}"
        )
    return read(config, prefix)


def _one_size(config: Config, prefix: str, activation: str, tensors: tuple[Tensor, ...]) -> Tower:
    """A tower whose images all have one size: CLIP's and SigLIP's stack of layers; ``tensors``: what stands around it."""
    patch, image = wrapper.side(config, "patch_size"), wrapper.side(config, "image_size")
    style = Style(activation=config.text("hidden_act", default=activation), rope=False)
    return Tower(
        name=prefix,
        kind="vision",
        hidden=config.size("hidden_size"),
        blocks=(_encoder(config, f"{prefix}vision_model.encoder.layers.{{}}.", style),),
        tensors=tensors,
        facts={"patch_size": patch, "image_size": image, "tokens_per_image": _patches_of(config)},
    )


def _patches_of(config: Config) -> int:
    return (wrapper.side(config, "image_size") // wrapper.side(config, "patch_size")) ** 2


def _clip(config: Config, prefix: str) -> Tower:
    hidden, patch, inner = config.size("hidden_size"), wrapper.side(config, "patch_size"), f"{prefix}vision_model."
    tensors = (
        table(f"{inner}embeddings.class_embedding", hidden),
        *patches(f"{inner}embeddings.patch_embedding", hidden, 3, patch, patch),
        table(f"{inner}embeddings.position_embedding.weight", _patches_of(config) + 1, hidden),
        *parts.norms(hidden, f"{inner}pre_layrnorm", f"{inner}post_layernorm", bias=True),
    )
    return _one_size(config, prefix, "quick_gelu", tensors)


def _siglip(config: Config, prefix: str) -> Tower:
    hidden, patch, inner = config.size("hidden_size"), wrapper.side(config, "patch_size"), f"{prefix}vision_model."
    tensors = (
        *patches(f"{inner}embeddings.patch_embedding", hidden, 3, patch, patch, bias=True),
        table(f"{inner}embeddings.position_embedding.weight", _patches_of(config), hidden),
        *parts.norms(hidden, f"{inner}post_layernorm", bias=True),
        *(_pooling(config, hidden, inner) if config.flag("vision_use_head", default=True) else ()),
    )
    return _one_size(config, prefix, "gelu_pytorch_tanh", tensors)


def _siglip2(config: Config, prefix: str) -> Tower:
    """Patches of any shape through one linear layer, positions for ``num_patches`` of them."""
    hidden, patch, inner = config.size("hidden_size"), wrapper.side(config, "patch_size"), f"{prefix}vision_model."
    places, channels = config.size("num_patches", default=256), config.size("num_channels", default=3)
    tensors = (
        *parts.linear(f"{inner}embeddings.patch_embedding", hidden, channels * patch**2, "patch", shard=None, bias=True),
        table(f"{inner}embeddings.position_embedding.weight", places, hidden),
        *parts.norms(hidden, f"{inner}post_layernorm", bias=True),
        *(_pooling(config, hidden, inner) if config.flag("vision_use_head", default=True) else ()),
    )
    return Tower(
        name=prefix,
        kind="vision",
        hidden=hidden,
        blocks=(_encoder(config, f"{inner}encoder.layers.{{}}.", Style(rope=False)),),
        tensors=tensors,
        facts={"patch_size": patch, "tokens_per_image": places},
    )


def _headless(config: Config, prefix: str) -> Tower:
    """SigLIP without its pooling head (PaddleOCR-VL)."""
    return _siglip(Config({**config.raw, "vision_use_head": False}, config.path), prefix)


def _without_positions(config: Config, prefix: str) -> Tower:
    """SigLIP with rotary positions for images of any size (VideoLLaMA 3)."""
    hidden, patch = config.size("hidden_size"), wrapper.side(config, "patch_size")
    style = Style(activation=config.text("hidden_act", default="gelu_pytorch_tanh"))
    tensors = (
        *patches(f"{prefix}embeddings.patch_embedding", hidden, 3, patch, patch, bias=True),
        *parts.norms(hidden, f"{prefix}post_layernorm", bias=True),
    )
    block = _encoder(config, f"{prefix}encoder.layers.{{}}.", style)
    return Tower(name=prefix, kind="vision", hidden=hidden, blocks=(block,), tensors=tensors, facts={"patch_size": patch})


def _pooling(config: Config, hidden: int, inner: str) -> tuple[Tensor, ...]:
    """SigLIP's attention-pooling head."""
    name, mlp = f"{inner}head.", Dense(intermediate=config.size("intermediate_size"), gated=False)
    return (
        table(f"{name}probe", 1, 1, hidden),
        Tensor(name=f"{name}attention.in_proj_weight", shape=(3 * hidden, hidden), role="qkv"),
        Tensor(name=f"{name}attention.in_proj_bias", shape=(3 * hidden,), role="bias"),
        *parts.linear(f"{name}attention.out_proj", hidden, hidden, "o", shard=None, bias=True),
        *parts.norms(hidden, f"{name}layernorm", bias=True),
        *parts.plain_mlp(mlp, hidden, f"{name}mlp.fc1", f"{name}mlp.fc2", bias=True),
    )


def _pixtral(config: Config, prefix: str) -> Tower:
    hidden, patch, image = config.size("hidden_size"), wrapper.side(config, "patch_size"), wrapper.side(config, "image_size")
    return Tower(
        name=prefix,
        kind="vision",
        hidden=hidden,
        blocks=(_encoder(config, f"{prefix}transformer.layers.{{}}.", PIXTRAL),),
        tensors=(*patches(f"{prefix}patch_conv", hidden, 3, patch, patch), *parts.norms(hidden, f"{prefix}ln_pre")),
        facts={"patch_size": patch, "image_size": image, "tokens_per_image": (image // patch) ** 2},
    )


def _encoder(config: Config, name: str, style: Style) -> Block:
    return block(
        name,
        config.size("num_hidden_layers"),
        config.size("hidden_size"),
        config.size("num_attention_heads"),
        intermediate=config.size("intermediate_size"),
        style=style,
    )


_TOWERS = {
    "clip_vision_model": _clip,
    "siglip_vision_model": _siglip,
    "siglip2_vision_model": _siglip2,
    "pixtral": _pixtral,
    "idefics2_vision": _headless,
    "idefics3_vision": _headless,
    "video_llama_3_vision": _without_positions,
    "paddleocr_vl_vision": _headless,
    "paddleocr_vl": _headless,
}
