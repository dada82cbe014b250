"""BLIP-2 and InstructBLIP: EVA's tower, a Q-Former, an OPT, Vicuna or T5 decoder.

Source of names and shapes: transformers 5.23, modeling_blip_2.py and modeling_instructblip.py.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, qformer, vit, wrapper
from vramcast.models.inventory import Model, Tower


def read(config: Config) -> Model:
    """A BLIP-2 or InstructBLIP model."""
    kind = config.text("model_type").replace("-", "_")
    text = wrapper.text_of(config, "opt", "text_config")
    seen = wrapper.part(config, "vision_config", f"{kind}_vision_model")
    asked = wrapper.part(config, "qformer_config", f"{kind}_qformer")
    condenser = qformer.tower(
        Config({**asked.raw, "encoder_hidden_size": seen.size("hidden_size")}, asked.path), "qformer.", texts=kind != "blip_2"
    )
    hidden, queries = text.size("hidden_size", "d_model"), config.size("num_query_tokens", default=32)
    tensors = (
        vit.table("query_tokens", 1, queries, condenser.hidden),
        *parts.linear("language_projection", hidden, condenser.hidden, "projector", shard=None, bias=True),
    )
    projector = Tower(name="language_projection.", kind="projector", tensors=tensors)
    own = wrapper.tied_as(config, text.flag("tie_word_embeddings", default=True))
    towers = (_vision(seen), condenser, projector)
    return wrapper.wrap(own, text, prefix="language_model.model.decoder.", towers=towers)


def _vision(config: Config) -> Tower:
    width, name = config.size("hidden_size"), "vision_model."
    patch, image = wrapper.side(config, "patch_size"), wrapper.side(config, "image_size")
    places, heads, inner = (image // patch) ** 2 + 1, config.size("num_attention_heads"), config.size("intermediate_size")
    style = vit.Style(qkv="qkv", out="projection", bias=config.flag("qkv_bias", default=True), rope=False)
    return Tower(
        name=name,
        kind="vision",
        hidden=width,
        blocks=(
            vit.block(
                f"{name}encoder.layers.{{}}.", config.size("num_hidden_layers"), width, heads, intermediate=inner, style=style
            ),
        ),
        tensors=(
            vit.table(f"{name}embeddings.class_embedding", 1, 1, width),
            vit.table(f"{name}embeddings.position_embedding", 1, places, width),
            *vit.patches(f"{name}embeddings.patch_embedding", width, 3, patch, patch, bias=True),
            *parts.norms(width, f"{name}post_layernorm", bias=True),
        ),
        facts={"patch_size": patch, "image_size": image},
    )
