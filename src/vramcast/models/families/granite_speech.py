"""Granite Speech: a Conformer whose frames a Q-Former condenses, before a Granite decoder.

Source of names and shapes: transformers 5.23, modeling_granite_speech.py.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, qformer, vit, wrapper
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.layers import Attention, Dense


def read(config: Config) -> Model:
    """A Granite Speech model; its LoRA adapter lies in files of its own."""
    text = wrapper.text_of(config, "granite")
    kind = config.text("model_type")
    encoder = _encoder(wrapper.part(config, "encoder_config", f"{kind}_encoder"))
    projector = _projector(config, text.size("hidden_size"))
    return wrapper.wrap(config, text, prefix="model.language_model.", towers=(encoder, projector), tied=True)


def _projector(config: Config, hidden: int) -> Tower:
    name = "model.projector."
    inner = qformer.tower(wrapper.part(config, "projector_config", "blip_2_qformer"), f"{name}qformer.")
    queries = config.size("window_size", default=15) // config.size("downsample_rate", default=5)
    tensors = (
        *inner.tensors,
        vit.table(f"{name}query", 1, queries, inner.hidden),
        *parts.linear(f"{name}linear", hidden, inner.hidden, "projector", shard=None, bias=True),
    )
    return Tower(name=name, kind="projector", hidden=hidden, blocks=inner.blocks, tensors=tensors)


def _encoder(config: Config) -> Tower:
    """The Conformer; after its middle it also tells characters and feeds them back."""
    width, name = config.size("hidden_dim"), "model.encoder."
    labels, inputs = config.size("output_dim", default=42), config.size("input_dim", default=160)
    return Tower(
        name=name,
        kind="audio",
        hidden=width,
        blocks=(_layer(config, width, f"{name}layers.{{}}."),),
        tensors=(
            *parts.linear(f"{name}input_linear", width, inputs, "projector", shard=None, bias=True),
            *parts.linear(f"{name}out", labels, width, "projector", shard=None, bias=True),
            *parts.linear(f"{name}out_mid", width, labels, "projector", shard=None, bias=True),
        ),
    )


def _layer(config: Config, width: int, name: str) -> Block:
    """Half an MLP, attention by distance, a gated convolution and the other half."""
    heads, head_dim = config.size("num_heads"), config.size("dim_head")
    kind = Attention(heads=heads, kv_heads=heads, head_dim=head_dim, causal=False, rope_dim=0)
    mlp = Dense(intermediate=width * config.size("feedforward_mult", default=4), gated=False)
    halves = (parts.plain_mlp(mlp, width, f"{half}.up_proj", f"{half}.down_proj", bias=True) for half in ("ff1", "ff2"))
    return Block(
        name=name,
        indices=tuple(range(config.size("num_layers"))),
        mixers=(kind,),
        feedforward=mlp,
        tensors=(
            *(tensor for half in halves for tensor in half),
            *parts.norms(width, "ff1.pre_norm", "attn.pre_norm", "conv.norm", "ff2.pre_norm", "post_norm", bias=True),
            *_attention(kind, width, config.size("max_pos_emb", default=512)),
            *_convolution(config, width),
        ),
    )


def _attention(kind: Attention, width: int, places: int) -> tuple[Tensor, ...]:
    inner = kind.heads * kind.head_dim
    return (
        *parts.linear("attn.to_q", inner, width, "q", shard=0, groups=kind.heads),
        *parts.linear("attn.to_kv", 2 * inner, width, "k", shard=0),
        *parts.linear("attn.to_out", width, inner, "o", shard=1, bias=True),
        vit.table("attn.rel_pos_emb.weight", 2 * places + 1, kind.head_dim),
    )


def _convolution(config: Config, width: int) -> tuple[Tensor, ...]:
    inner, kernel = width * config.size("conv_expansion_factor", default=2), config.size("conv_kernel_size", default=15)
    return (
        *vit.patches("conv.up_conv", 2 * inner, width, 1, bias=True),
        *vit.patches("conv.depth_conv.conv", inner, 1, kernel),
        *parts.norms(inner, "conv.batch_norm", bias=True),
        *vit.patches("conv.down_conv", width, inner, 1, bias=True),
    )
