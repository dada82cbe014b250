"""DeepSeek-VL2 and DeepSeek-OCR (remote code): SigLIP, or SAM before CLIP, a projector, a DeepSeek-V2 mixture.

The smaller decoders attend with plain heads (``use_mla`` false). Source of names and shapes: modeling_deepseek_vl_v2.py,
modeling_deepseekocr.py and deepencoder.py beside the checkpoints on the hub; DeepSeek-OCR's 3,336,106,240 elements are equalled.
The index of DeepSeek-OCR 2 states 1,010,688 bytes more than its 3,389,119,360 elements here, the count of transformers' class.
"""

from collections.abc import Mapping

from vramcast.errors import UnmodelledError
from vramcast.models.config import Config
from vramcast.models.families import ocr_classes, parts, sam, vit, wrapper
from vramcast.models.inventory import Model, Tensor, Tower
from vramcast.models.layers import Dense

_SIGLIP = vit.Style(attention="attn.", qkv="qkv", out="proj", norms=("norm1", "norm2"), rope=False)
_CLIP = vit.Style(qkv="qkv_proj", rope=False)
_SO400M = {"width": 1152, "layers": 27, "heads": 16, "patch_size": 14, "image_size": 384, "mlp_ratio": 3.7362}
# What deepencoderv2.py builds for "qwen2-0-5b" and "sam_vit_b": names that DeepSeek-OCR 2's config gives.
_OCR2 = {
    "sam_config": {"downsample_channels": [512, 896]},
    "encoder_config": {
        "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
        "num_key_value_heads": 2,
    },
}  # fmt: skip
_MARKS = ("image_newline", "view_seperator")


def read(config: Config) -> Model:
    """A DeepSeek-VL2 or DeepSeek-OCR model."""
    text = wrapper.text_of(config, "deepseek_v2", "language_config")
    plain = not text.flag("use_mla", default=True)
    text = Config({**text.raw, "model_type": "deepseek" if plain else "deepseek_v2"}, text.path)
    hidden = text.size("hidden_size")
    architecture = config.architecture
    if "OCR2" in architecture:
        return ocr_classes.read(Config({**config.raw, "model_type": "deepseek_ocr2", "vision_config": _OCR2}, config.path))
    reads = "OCR" in architecture or _two_towers(config)
    towers = _ocr(config, hidden) if reads else _seen(config, hidden)
    prefix = "model." if reads else "language.model."
    return wrapper.wrap(config, text, prefix=prefix, towers=towers, tied=False)


def _two_towers(config: Config) -> bool:
    """DeepSeek-OCR's config for vLLM names DeepSeek-VL2's class; its tower's width is told for two (deepencoder.py)."""
    said = config.optional_child("vision_config")
    return said is not None and isinstance(said.raw.get("width"), Mapping)


def _marks(prefix: str, hidden: int) -> tuple[Tensor, ...]:
    """Learned ends of a row of patches and of a view."""
    return tuple(vit.table(f"{prefix}{name}", hidden) for name in _MARKS)


def _seen(config: Config, hidden: int) -> tuple[Tower, ...]:
    """SigLIP, squares of whose patches the projector joins."""
    said = config.optional_child("vision_config")
    tower = siglip(Config({**_SO400M, **(said.raw if said else {})}, config.path), "vision.")
    return tower, _downsampling(config, hidden, tower.hidden)


def siglip(seen: Config, name: str) -> Tower:
    """SigLIP as timm builds it, with its pooling head."""
    width, patch, image = seen.size("width"), seen.size("patch_size"), seen.size("image_size")
    inner = int(width * seen.number("mlp_ratio"))
    block = vit.block(f"{name}blocks.{{}}.", seen.size("layers"), width, seen.size("heads"), intermediate=inner, style=_SIGLIP)
    tensors = (
        *vit.patches(f"{name}patch_embed.proj", width, 3, patch, patch, bias=True),
        vit.table(f"{name}pos_embed", 1, (image // patch) ** 2, width),
        *parts.norms(width, f"{name}norm", bias=True),
        *_pooling(width, inner, f"{name}attn_pool."),
    )
    return Tower(name=name, kind="vision", hidden=width, blocks=(block,), tensors=tensors, facts={"patch_size": patch})


def _pooling(width: int, inner: int, name: str) -> tuple[Tensor, ...]:
    return (
        vit.table(f"{name}latent", 1, 1, width),
        *parts.linear(f"{name}q", width, width, "q", shard=None, bias=True),
        *parts.linear(f"{name}kv", 2 * width, width, "k", shard=None, bias=True),
        *parts.linear(f"{name}proj", width, width, "o", shard=None, bias=True),
        *parts.norms(width, f"{name}norm", bias=True),
        *parts.plain_mlp(Dense(intermediate=inner, gated=False), width, f"{name}mlp.fc1", f"{name}mlp.fc2", bias=True),
    )


def _downsampling(config: Config, hidden: int, width: int) -> Tower:
    said = config.child("projector_config")
    kind = said.text("projector_type", default="downsample_mlp_gelu")
    if kind != "downsample_mlp_gelu":
        raise UnmodelledError(f"{config.path}: projector_type is {kind[:40]!r}, known is 'downsample_mlp_gelu'")
    wide = said.size("input_dim", default=width) * said.size("downsample_ratio", default=2) ** 2
    inner, depth = hidden * said.size("mlp_ratio", default=1), said.size("depth", default=2)
    widths = [wide, *[inner] * (depth - 1), hidden]
    matrices = (
        parts.linear(f"projector.layers.{2 * i}", widths[i + 1], widths[i], "projector", shard=None, bias=True)
        for i in range(depth)
    )
    tensors = (*(tensor for matrix in matrices for tensor in matrix), *_marks("", hidden))
    return Tower(name="projector.", kind="projector", hidden=hidden, tensors=tensors)


def _ocr(config: Config, hidden: int) -> tuple[Tower, ...]:
    """SAM-B, whose maps two convolutions shrink; CLIP-L over them and the image; both joined by one projection."""
    fine = sam.tower(Config({}, config.path), "model.sam_model.")
    width, name = 1024, "model.vision_model."
    shrunk = (
        *vit.patches("model.sam_model.net_2", 2 * fine.hidden, fine.hidden, 3, 3),
        *vit.patches("model.sam_model.net_3", width, 2 * fine.hidden, 3, 3),
    )
    block = vit.block(f"{name}transformer.layers.{{}}.", 24, width, 16, intermediate=4 * width, style=_CLIP)
    around = (
        vit.table(f"{name}embeddings.class_embedding", width),
        *vit.patches(f"{name}embeddings.patch_embedding", width, 3, 14, 14),
        vit.table(f"{name}embeddings.position_embedding.weight", 257, width),
        *parts.norms(width, f"{name}pre_layrnorm", bias=True),
    )
    linear = parts.linear("model.projector.layers", hidden, 2 * width, "projector", shard=None, bias=True)
    return (
        Tower(
            name=fine.name, kind="vision", hidden=width, blocks=fine.blocks, tensors=(*fine.tensors, *shrunk), facts=fine.facts
        ),
        Tower(name=name, kind="vision", hidden=width, blocks=(block,), tensors=around, facts={"patch_size": 14}),
        Tower(name="model.projector.", kind="projector", hidden=hidden, tensors=(*linear, *_marks("model.", hidden))),
    )
