"""Idefics 2: a SigLIP tower, a gated projection, a Perceiver that condenses patches to latents, a Mistral decoder.

Source of names and shapes: transformers 5.23, modeling_idefics2.py.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, vit, wrapper
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.layers import Attention, Dense


def read(config: Config) -> Model:
    """An Idefics 2 model."""
    text = wrapper.text_of(config, "mistral")
    seen = wrapper.part(config, "vision_config", "idefics2_vision")
    tower = vit.tower(seen, "model.vision_model.")
    connector = _connector(wrapper.part(config, "perceiver_config", "idefics2_perceiver"), text, tower.hidden)
    return wrapper.wrap(config, text, prefix="model.text_model.", towers=(tower, connector), tied=False)


def _connector(config: Config, text: Config, seen: int) -> Tower:
    """The projection is as wide as the decoder's MLP, the Perceiver as its layers."""
    width, name = text.size("hidden_size"), "model.connector."
    projected = Dense(intermediate=text.size("intermediate_size"))
    matrices = parts.gated_mlp(projected, seen, prefix=f"{name}modality_projection.")[:2]
    inner = f"{name}perceiver_resampler."
    tensors: tuple[Tensor, ...] = (
        *matrices,
        *parts.linear(f"{name}modality_projection.down_proj", width, projected.intermediate, "projector", shard=1),
        vit.table(f"{inner}latents", config.size("resampler_n_latents", default=64), width),
        *parts.norms(width, f"{inner}norm"),
    )
    condenser = _perceiver(config, width, f"{inner}layers.{{}}.")
    return Tower(name=name, kind="projector", hidden=width, blocks=(condenser,), tensors=tensors)


def _perceiver(config: Config, width: int, name: str) -> Block:
    kind = Attention(
        heads=config.size("resampler_n_heads"),
        kv_heads=config.size("num_key_value_heads"),
        head_dim=config.size("resampler_head_dim"),
        causal=False,
        rope_dim=0,
    )
    mlp = Dense(intermediate=4 * width)
    normed = ("input_latents_norm", "input_context_norm", "post_attention_layernorm")
    return Block(
        name=name,
        indices=tuple(range(config.size("resampler_depth"))),
        mixers=(kind,),
        feedforward=mlp,
        tensors=(*parts.attention(kind, width), *parts.gated_mlp(mlp, width), *parts.norms(width, *normed)),
    )
