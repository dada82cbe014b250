"""Molmo 2: a SigLIP tower, patches pooled by attention over several of its layers, a Qwen3- or OLMo-like decoder.

Source of names and shapes: transformers 5.23, modeling_molmo2.py.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, vit, wrapper
from vramcast.models.inventory import Model, Tower
from vramcast.models.layers import Dense

_NAME = "model.multi_modal_projector."


def read(config: Config) -> Model:
    """A Molmo 2 model."""
    text = wrapper.text_of(config, "molmo2_text")
    joined = wrapper.part(config, "adapter_config", "molmo2_adapter")
    seen = wrapper.part(config, "vision_config", "molmo2_vision")
    features = joined.integers("vision_feature_layer", default=[24, 18])
    towers = (_vision(seen, features), _adapter(joined, joined.size("hidden_size") * len(features)))
    untied = Config({**config.raw, "tie_word_embeddings": False}, config.path)
    return wrapper.wrap(untied, text, prefix="model.language_model.", towers=towers)


def _vision(config: Config, features: list[int]) -> Tower:
    """Only as many layers as are read from."""
    width, name, patch = config.size("hidden_size"), "model.vision_tower.", wrapper.side(config, "patch_size")
    depth = config.size("num_hidden_layers")
    layers, heads = max(feature % depth for feature in features) + 1, config.size("num_attention_heads")
    places = (wrapper.side(config, "image_size") // patch) ** 2
    bias = config.flag("attention_bias", default=True)
    style = vit.Style(out="o_proj", rope=False, bias=bias, out_bias=bias)
    head_dim = config.size("head_dim", default=max(1, width // heads))
    block = vit.block(
        f"{name}layers.{{}}.", layers, width, heads, intermediate=config.size("intermediate_size"), style=style,
        head_dim=head_dim, kv_heads=config.integer("num_key_value_heads", default=0),
    )  # fmt: skip
    tensors = (
        vit.table(f"{name}positional_embedding", places, width),
        *parts.linear(f"{name}patch_embedding", width, 3 * patch**2, "patch", shard=None, bias=True),
    )
    return Tower(name=name, kind="vision", hidden=width, blocks=(block,), tensors=tensors, facts={"patch_size": patch})


def _adapter(config: Config, wide: int) -> Tower:
    """One attention that pools windows of patches, and a gated MLP into the decoder's width."""
    width, hidden, bias = config.size("hidden_size"), config.size("text_hidden_size"), config.flag("attention_bias", default=True)
    inner, mlp = f"{_NAME}image_projector.", Dense(intermediate=config.size("intermediate_size"))
    queries = config.size("num_attention_heads") * config.size("head_dim")
    keys = config.size("num_key_value_heads") * config.size("head_dim")
    widths = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
    mlp_bias = config.flag("mlp_bias", default=False)
    tensors = (
        *(
            tensor
            for n, outputs in widths.items()
            for tensor in parts.linear(f"{_NAME}image_pooling_2d.{n}", outputs, wide, "projector", shard=None, bias=bias)
        ),
        *parts.linear(f"{_NAME}image_pooling_2d.o_proj", width, queries, "projector", shard=None, bias=bias),
        *(
            tensor
            for n in ("gate_proj", "up_proj")
            for tensor in parts.linear(f"{inner}{n}", mlp.intermediate, width, "projector", shard=0, bias=mlp_bias)
        ),
        *parts.linear(f"{inner}down_proj", hidden, mlp.intermediate, "projector", shard=1),
    )
    return Tower(name=_NAME, kind="projector", hidden=hidden, tensors=tensors)
