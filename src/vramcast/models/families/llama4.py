"""Llama 4: its text decoder with a vision tower whose patches are shuffled four to one before an adapter.

Source of names and shapes: transformers 5.23, modeling_llama4.py.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, vit, wrapper
from vramcast.models.inventory import Model, Tower

_STYLE = vit.Style(out="o_proj", norms=("input_layernorm", "post_attention_layernorm"))


def read(config: Config) -> Model:
    """A Llama 4 model."""
    text = wrapper.text_of(config, "llama4_text")
    tower = _vision(wrapper.part(config, "vision_config", "llama4_vision_model"), text.size("hidden_size"))
    said = Config({**config.raw, "tie_word_embeddings": text.flag("tie_word_embeddings", default=False)}, config.path)
    return wrapper.wrap(said, text, prefix="language_model.model.", towers=(tower,))


def _vision(config: Config, hidden: int) -> Tower:
    width, inner, name = config.size("hidden_size"), config.size("intermediate_size"), "vision_model."
    patch, image = wrapper.side(config, "patch_size"), wrapper.side(config, "image_size")
    into, out = config.size("projector_input_dim"), config.size("projector_output_dim")
    count = (image // patch) ** 2
    layers, heads = config.size("num_hidden_layers"), config.size("num_attention_heads")
    ratio = config.number("pixel_shuffle_ratio", default=0.5)
    return Tower(
        name=name,
        kind="vision",
        hidden=width,
        blocks=(vit.block(f"{name}model.layers.{{}}.", layers, width, heads, intermediate=inner, style=_STYLE),),
        tensors=(
            vit.table(f"{name}class_embedding", width),
            vit.table(f"{name}positional_embedding_vlm", count + 1, width),
            *parts.linear(f"{name}patch_embedding.linear", width, 3 * patch * patch, "patch", shard=None),
            *parts.norms(width, f"{name}layernorm_pre", f"{name}layernorm_post", bias=True),
            *parts.linear(f"{name}vision_adapter.mlp.fc1", into, inner, "projector", shard=0),
            *parts.linear(f"{name}vision_adapter.mlp.fc2", out, into, "projector", shard=1),
            *parts.linear("multi_modal_projector.linear_1", hidden, config.size("vision_output_dim"), "projector", shard=None),
        ),
        facts={"patch_size": patch, "image_size": image, "tokens_per_image": int(count * ratio**2)},
    )
