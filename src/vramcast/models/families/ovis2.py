"""Ovis 2 and 2.5: a tower that turns each patch into a distribution over visual words, whose embeddings the decoder reads.

Source of names and shapes: transformers 5.23, modeling_ovis2.py; modeling_ovis2_5.py beside AIDC-AI/Ovis2.5-9B, which equals its
weight index (18,349,615,568 bytes).
"""

import msgspec

from vramcast.models.config import Config
from vramcast.models.families import parts, vit, wrapper
from vramcast.models.inventory import Model, Tower

_INDICATORS = 5
_LATER_INDICATORS = 4
_STYLE = vit.Style(
    attention="attention.", mlp=("ffn.gate_proj", "ffn.up_proj", "ffn.down_proj"), norms=("rms_norm1", "rms_norm2"),
    norm_bias=False, bias=False, out_bias=False, mlp_bias=False, activation="silu", rope=False,
)  # fmt: skip


def read(config: Config) -> Model:
    """An Ovis 2 or 2.5 model."""
    if config.text("model_type") == "ovis2_5":
        return _later(config)
    text = wrapper.text_of(config, "qwen2")
    seen = wrapper.part(config, "vision_config", "ovis2_vision")
    words = vit.table("model.visual_embeddings_table.weight", seen.size("vocab_size"), config.size("hidden_size"))
    table = Tower(name="model.visual_embeddings_table.", kind="projector", tensors=(words,))
    return wrapper.wrap(config, text, prefix="model.language_model.", towers=(_vision(seen), table))


def _later(config: Config) -> Model:
    """SigLIP 2 for images of any size, with a table of positions that is kept; four indicators are no words of its head."""
    text, name = wrapper.text_of(config, "qwen3"), "visual_tokenizer.vit.vision_model."
    seen = config.child("vit_config")
    width, patch = seen.size("hidden_size"), wrapper.side(seen, "patch_size")
    words, kept = config.size("visual_vocab_size"), seen.flag("preserve_original_pe", default=True)
    places = (wrapper.side(seen, "image_size") // patch) ** 2
    told, joined = words - _LATER_INDICATORS, width * seen.size("hidden_stride", default=2) ** 2
    block = vit.block(
        f"{name}encoder.layers.{{}}.", seen.size("num_hidden_layers"), width, seen.size("num_attention_heads"),
        intermediate=seen.size("intermediate_size"), style=vit.Style(activation="gelu_pytorch_tanh"),
    )  # fmt: skip
    tensors = (
        *vit.patches(f"{name}embeddings.patch_embedding", width, 3, patch, patch, bias=True),
        *((vit.table(f"{name}embeddings.position_embedding.weight", places, width),) if kept else ()),
        *parts.norms(width, f"{name}post_layernorm", bias=True),
        *parts.linear("visual_tokenizer.head.0", told, joined, "projector", shard=None),
        *parts.norms(told, "visual_tokenizer.head.1", bias=True),
    )
    tower = Tower(name=name, kind="vision", hidden=width, blocks=(block,), tensors=tensors, facts={"patch_size": patch})
    table = Tower(name="vte.", kind="projector", tensors=(vit.table("vte.weight", words, text.size("hidden_size")),))
    tied = text.flag("tie_word_embeddings", default=False)
    return wrapper.wrap(config, text, prefix="llm.model.", towers=(tower, table), tied=tied)


def _vision(config: Config) -> Tower:
    """AIMv2's blocks; the head tells all words but the indicators apart, over squares of ``hidden_stride``."""
    width, name = config.size("hidden_size"), "model.vision_tower."
    inner, patch, image = f"{name}transformer.", wrapper.side(config, "patch_size"), wrapper.side(config, "image_size")
    words, joined = config.size("vocab_size") - _INDICATORS, width * config.size("hidden_stride", default=1) ** 2
    bias, mlp_bias = config.flag("qkv_bias", default=False), config.flag("mlp_bias", default=False)
    style = msgspec.structs.replace(_STYLE, bias=bias, out_bias=bias, mlp_bias=mlp_bias)
    layers, heads = config.size("num_hidden_layers"), config.size("num_attention_heads")
    block = vit.block(
        f"{inner}encoder.layers.{{}}.", layers, width, heads, intermediate=config.size("intermediate_size"), style=style
    )
    return Tower(
        name=name,
        kind="vision",
        hidden=width,
        blocks=(block,),
        tensors=(
            *vit.patches(f"{inner}embeddings.patch_embedding", width, 3, patch, patch, bias=True),
            vit.table(f"{inner}embeddings.position_embedding.weight", (image // patch) ** 2, width),
            *parts.norms(width, f"{inner}embeddings.rms_norm", f"{inner}rms_norm"),
            *parts.linear(f"{name}head_linear", words, joined, "projector", shard=None),
            *parts.norms(words, f"{name}head_norm", bias=True),
        ),
        facts={"patch_size": patch, "image_size": image},
    )
