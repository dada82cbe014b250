"""Models that see whose code stands beside their checkpoints: AndesVL, LocateAnything, MAIRA-2, LLaVA-OneVision-1.5, Eagle 3.

Source of names and shapes: modeling_andesvl.py, modeling_aimv2_navit_rope.py, modeling_locateanything.py, modeling_maira2.py,
modeling_llavaonevision1_5.py and modeling_eagle3_vl.py beside the checkpoints. LocateAnything-3B equals its weight index
(7,661,331,936 bytes, the tied head stored) and LLaVA-OneVision-1.5-8B its own (17,054,429,248); AndesVL what its own class
builds on meta tensors.
"""

import msgspec

from vramcast.models.config import Config
from vramcast.models.families import kimi_k25, parts, read_config, vit, wrapper
from vramcast.models.inventory import Model, Tensor, Tower

_AIMV2 = vit.Style(
    attention="attn.", qkv="qkv", out="proj", bias=False, out_bias=False, mlp=("mlp.fc1", "mlp.fc3", "mlp.fc2"), mlp_bias=False,
    norms=("norm_1", "norm_2"), norm_bias=False, activation="silu",
)  # fmt: skip
_RICE = vit.Style(attention="attn.", qkv="qkv", out="proj", norms=("norm1", "norm2"))
_MERGED = 4


def read(config: Config) -> Model:
    """A model of one of these classes."""
    if config.text("model_type") == "maira2":
        return _maira(config)
    if config.text("model_type") == "llavaonevision1_5":
        return _rice(config)
    if config.text("model_type") == "eagle_3_vl":
        return _eagle(config)
    andes = config.text("model_type") != "locateanything"
    text = wrapper.text_of(config, "qwen3" if andes else "qwen2")
    seen = config.child("vision_config")
    tower = _aimv2(seen) if andes else kimi_k25.moonvit(seen, "vision_model.")
    joined, hidden = _MERGED * tower.hidden, text.size("hidden_size")
    projector = Tower(name="mlp.", kind="projector", tensors=_through(joined, hidden) if andes else _normed(joined, hidden))
    tied = text.flag("tie_word_embeddings", default=False)
    return wrapper.wrap(config, text, prefix="language_model.model.", towers=(tower, projector), tied=tied)


def _rice(config: Config) -> Model:
    """RICE: rotary positions, one learned for the class; squares of patches are joined before the decoder."""
    said = config.child("text_config")
    mixed = said.has("num_experts") and said.integer("num_experts") > 0
    text = wrapper.text_of(
        Config({"text_config": {**said.raw, "model_type": "qwen3_moe" if mixed else "qwen3"}}, config.path), "qwen3"
    )
    seen, name = config.child("vision_config"), "visual."
    width, patch, heads = seen.size("hidden_size", "embed_dim"), seen.size("patch_size"), seen.size("num_heads")
    joined, hidden = width * seen.size("spatial_merge_size", default=2) ** 2, text.size("hidden_size")
    block = vit.block(
        f"{name}blocks.{{}}.", seen.size("depth"), width, heads, intermediate=seen.size("intermediate_size"), style=_RICE
    )
    tensors = (
        *vit.patches(f"{name}patch_embed.proj", width, seen.size("in_channels", default=3), patch, patch),
        vit.table(f"{name}class_embedding", width),
        vit.table(f"{name}class_pos_emb", 1, width // heads // 2),
        *parts.norms(width, f"{name}pre_layernorm", f"{name}merger.ln_q", bias=True),
        *parts.linear(f"{name}merger.mlp.0", joined, joined, "projector", shard=None, bias=True),
        *parts.linear(f"{name}merger.mlp.2", hidden, joined, "projector", shard=None, bias=True),
    )
    tower = Tower(name=name, kind="vision", hidden=width, blocks=(block,), tensors=tensors, facts={"patch_size": patch})
    tied = said.flag("tie_word_embeddings", default=False)
    return wrapper.wrap(config, text, prefix="model.", towers=(tower,), tied=tied)


def _eagle(config: Config) -> Model:
    """NVIDIA's Eagle 3 VL, the eyes of GR00T: SigLIP 2, squares of states joined, the projector of ``_normed``."""
    text = wrapper.text_of(config, "qwen3")
    tower = vit.tower(config.child("vision_config"), "vision_model.")
    joined = tower.hidden * int(1 / config.number("downsample_ratio", default=0.5)) ** 2
    projector = Tower(name="mlp1.", kind="projector", tensors=_normed(joined, text.size("hidden_size")))
    tied = text.flag("tie_word_embeddings", default=False)
    return wrapper.wrap(config, text, prefix="language_model.model.", towers=(tower, projector), tied=tied)


def _maira(config: Config) -> Model:
    """DINOv2 as transformers builds it, a projector of several equal layers, a decoder as LLaVA names it."""
    text, said = wrapper.text_of(config, "llama"), config.child("vision_config")
    seen = read_config({**said.raw, "model_type": "dinov2", "architectures": ["Dinov2Model"]}, path=said.path)
    hidden, name = text.size("hidden_size"), "multi_modal_projector."
    depth = config.integer("projector_n_layers", default=1, least=1, most=64)
    layers = (
        parts.linear(f"{name}layers.{2 * i}", hidden, hidden if i else seen.hidden, "projector", shard=None, bias=True)
        for i in range(depth)
    )
    tower = Tower(
        name="vision_tower.",
        kind="vision",
        hidden=seen.hidden,
        blocks=tuple(msgspec.structs.replace(b, name=f"vision_tower.{b.name}") for b in seen.blocks),
        tensors=tuple(msgspec.structs.replace(t, name=f"vision_tower.{t.name}") for t in seen.tensors),
    )
    projector = Tower(name=name, kind="projector", tensors=tuple(t for each in layers for t in each))
    return wrapper.wrap(config, text, prefix="language_model.model.", towers=(tower, projector), tied=False)


def _aimv2(config: Config) -> Tower:
    """AIMv2 for images of any size: rotary positions beside the first table."""
    width, patch, name = config.size("hidden_size"), wrapper.side(config, "patch_size"), "vision_encoder."
    biases = {"bias": config.flag("qkv_bias", default=False)}
    biases |= dict.fromkeys(("out_bias", "mlp_bias"), config.flag("use_bias", default=False))
    places = (wrapper.side(config, "image_size") // patch) ** 2
    kept = config.flag("preserve_original_pe", default=True)
    block = vit.block(
        f"{name}trunk.blocks.{{}}.",
        config.size("num_hidden_layers"),
        width,
        config.size("num_attention_heads"),
        intermediate=config.size("intermediate_size"),
        style=vit.styled(_AIMV2, **biases),
    )
    tensors = (
        *vit.patches(f"{name}preprocessor.patchifier.proj", width, 3, patch, patch, bias=True),
        *parts.norms(width, f"{name}preprocessor.patchifier.norm", f"{name}trunk.post_trunk_norm"),
        *((vit.table(f"{name}preprocessor.pos_embed", 1, places, width),) if kept else ()),
    )
    return Tower(name=name, kind="vision", hidden=width, blocks=(block,), tensors=tensors, facts={"patch_size": patch})


def _through(joined: int, hidden: int) -> tuple[Tensor, ...]:
    """AndesVL's projector keeps four patches' width inside."""
    into = parts.linear("mlp.0", joined, joined, "projector", shard=None, bias=True)
    return (*into, *parts.linear("mlp.2", hidden, joined, "projector", shard=None, bias=True))


def _normed(joined: int, hidden: int) -> tuple[Tensor, ...]:
    """LocateAnything's projector normalises four patches first."""
    return (
        *parts.norms(joined, "mlp1.0", bias=True),
        *parts.linear("mlp1.1", hidden, joined, "projector", shard=None, bias=True),
        *parts.linear("mlp1.3", hidden, hidden, "projector", shard=None, bias=True),
    )
