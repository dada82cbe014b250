"""Fuyu: a Persimmon decoder that reads patches through one linear layer, without a tower.

Source of names and shapes: transformers 5.23, modeling_fuyu.py.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, wrapper
from vramcast.models.inventory import Model, Tower


def read(config: Config) -> Model:
    """A Fuyu model."""
    text = wrapper.text_of(config, "persimmon")
    patch, channels = config.size("patch_size", default=30), config.size("num_channels", default=3)
    name = "model.vision_embed_tokens"
    linear = parts.linear(name, text.size("hidden_size"), channels * patch**2, "patch", shard=None, bias=True)
    tower = Tower(name=f"{name}.", kind="projector", tensors=linear, facts={"patch_size": patch})
    return wrapper.wrap(config, text, prefix="model.language_model.", towers=(tower,), tied=False)
