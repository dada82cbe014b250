"""Encoders that stand alone: CLIP and SigLIP, both towers or one of them, and ViT.

Source of names and shapes: transformers 5.23, modeling_clip.py, modeling_siglip.py and modeling_vit.py.
"""

import msgspec

from vramcast.models.config import Config
from vramcast.models.families import parts, vit, wrapper
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.layers import Attention

_VIT = vit.Style(
    attention="attention.attention.", separate=("query", "key", "value"), out="output.dense",
    mlp=("intermediate.dense", "output.dense"), norms=("layernorm_before", "layernorm_after"), rope=False,
)  # fmt: skip


def read(config: Config) -> Model:
    """An encoder; its layers are the model's blocks, those of a second one a tower."""
    kind = config.text("model_type")
    if kind == "vit":
        return _alone(config, _vit(config))
    family = kind.partition("_")[0]
    if kind.endswith("_vision_model"):
        return _alone(config, vit.tower(config, ""), *_projected(config, "visual_projection"))
    if kind.endswith("_text_model"):
        return _alone(config, _text(config, family, ""), *_projected(config, "text_projection"))
    return _both(config, family)


def _projected(config: Config, name: str) -> tuple[Tensor, ...]:
    """The projection into the space of both towers, where the class has it."""
    if not config.architecture.endswith("WithProjection"):
        return ()
    width = config.size("projection_dim", default=512)
    return parts.linear(name, width, config.size("hidden_size"), "projector", shard=None)


def _both(config: Config, family: str) -> Model:
    said, seen = (_side(config, family, side) for side in ("text", "vision"))
    tower, text = vit.tower(Config({**seen.raw, "model_type": f"{family}_vision_model"}, seen.path), ""), _text(said, family, "")
    joint = config.size("projection_dim", default=512)
    scales = ("logit_scale",) if family == "clip" else ("logit_scale", "logit_bias")
    shape = () if family == "clip" else (1,)
    own = (
        *(Tensor(name=name, shape=shape, role="state") for name in scales),
        *(_joint(joint, tower.hidden, text.hidden) if family == "clip" else ()),
    )
    model = _alone(Config({**said.raw, **_whole(config)}, config.path), text, *own)
    return wrapper.with_towers(model, tower)


def _side(config: Config, family: str, side: str) -> Config:
    """One tower's config; the older ``text_config_dict`` overrides what the config says twice."""
    older = config.optional_child(f"{side}_config_dict")
    part = wrapper.part(config, f"{side}_config", f"{family}_{side}_model")
    return Config({**part.raw, **(older.raw if older else {})}, part.path)


def _whole(config: Config) -> dict[str, object]:
    return {name: config.raw[name] for name in ("model_type", "architectures", "dtype", "torch_dtype") if config.has(name)}


def _joint(width: int, seen: int, said: int) -> tuple[Tensor, ...]:
    image = parts.linear("visual_projection", width, seen, "projector", shard=None)
    return (*image, *parts.linear("text_projection", width, said, "projector", shard=None))


def _text(config: Config, family: str, prefix: str) -> Tower:
    """CLIP's text tower is causal; SigLIP's has a linear head."""
    hidden, name, heads = config.size("hidden_size"), f"{prefix}text_model.", config.size("num_attention_heads")
    inner, places = config.size("intermediate_size"), config.size("max_position_embeddings")
    style = vit.Style(activation=config.text("hidden_act", default="quick_gelu"), rope=False)
    layers = config.size("num_hidden_layers")
    block = vit.block(f"{name}encoder.layers.{{}}.", layers, hidden, heads, intermediate=inner, style=style)
    out = config.size("projection_size", default=hidden)
    tensors = (
        Tensor(name=f"{name}embeddings.token_embedding.weight", shape=(config.size("vocab_size"), hidden), role="embedding"),
        vit.table(f"{name}embeddings.position_embedding.weight", places, hidden),
        *parts.norms(hidden, f"{name}final_layer_norm", bias=True),
        *(parts.linear(f"{name}head", out, hidden, "projector", shard=None, bias=True) if family == "siglip" else ()),
    )
    causal = (_causal(block),) if family == "clip" else (block,)
    return Tower(name=name, kind="text", hidden=hidden, blocks=causal, tensors=tensors)


def _causal(block: Block) -> Block:
    mixers = tuple(msgspec.structs.replace(m, causal=True) if isinstance(m, Attention) else m for m in block.mixers)
    return msgspec.structs.replace(block, mixers=mixers)


def _vit(config: Config) -> Tower:
    hidden, patch, image = config.size("hidden_size"), wrapper.side(config, "patch_size"), wrapper.side(config, "image_size")
    count, channels, classifies = (image // patch) ** 2, config.size("num_channels", default=3), "ForImage" in config.architecture
    bias = config.flag("qkv_bias", default=True)
    style = msgspec.structs.replace(_VIT, bias=bias)
    layers, heads = config.size("num_hidden_layers"), config.size("num_attention_heads")
    inner = config.size("intermediate_size")
    named = config.optional_child("id2label")
    labels = len(named.raw) if named else config.size("num_labels", default=2)
    pooled = parts.linear(
        "pooler.dense", config.size("pooler_output_size", default=hidden), hidden, "projector", shard=None, bias=True
    )
    classifier = parts.linear("classifier", labels, hidden, "head", shard=None, bias=True)
    tensors = (
        vit.table("embeddings.cls_token", 1, 1, hidden),
        vit.table("embeddings.position_embeddings", 1, count + 1, hidden),
        *vit.patches("embeddings.patch_embeddings.projection", hidden, channels, patch, patch, bias=True),
        *parts.norms(hidden, "layernorm", bias=True),
        *(classifier if classifies else pooled),
    )
    block = vit.block("encoder.layer.{}.", layers, hidden, heads, intermediate=inner, style=style)
    return Tower(name="", kind="vision", hidden=hidden, blocks=(block,), tensors=tensors, facts={"patch_size": patch})


def _alone(config: Config, tower: Tower, *extra: Tensor) -> Model:
    """A tower as the whole model."""
    said = parts.said_of_itself(config)
    vocab = config.integer("vocab_size", default=0)
    return Model(id="", hidden=tower.hidden, vocab=vocab, blocks=tower.blocks, tensors=(*tower.tensors, *extra), **said)
