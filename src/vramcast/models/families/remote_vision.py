"""Models that see whose code stands beside their checkpoints: AndesVL (AIMv2), LocateAnything (MoonViT), MAIRA-2 (DINOv2).

Source of names and shapes: modeling_andesvl.py, modeling_aimv2_navit_rope.py, modeling_locateanything.py and
modeling_maira2.py beside the checkpoints; LocateAnything-3B equals its weight index (7,661,331,936 bytes, the tied head stored).
"""

import msgspec

from vramcast.models.config import Config
from vramcast.models.families import kimi_k25, parts, read_config, vit, wrapper
from vramcast.models.inventory import Model, Tensor, Tower

_AIMV2 = vit.Style(
    attention="attn.", qkv="qkv", out="proj", bias=False, out_bias=False, mlp=("mlp.fc1", "mlp.fc3", "mlp.fc2"), mlp_bias=False,
    norms=("norm_1", "norm_2"), norm_bias=False, activation="silu",
)  # fmt: skip
_MERGED = 4


def read(config: Config) -> Model:
    """A model of one of these classes."""
    if config.text("model_type") == "maira2":
        return _maira(config)
    andes = config.text("model_type") != "locateanything"
    text = wrapper.text_of(config, "qwen3" if andes else "qwen2")
    seen = config.child("vision_config")
    tower = _aimv2(seen) if andes else kimi_k25.moonvit(seen, "vision_model.")
    joined, hidden = _MERGED * tower.hidden, text.size("hidden_size")
    projector = Tower(name="mlp.", kind="projector", tensors=_through(joined, hidden) if andes else _normed(joined, hidden))
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
