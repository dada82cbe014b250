"""Phi-4 Multimodal: a Phi-3 decoder with SigLIP, a Conformer, and in its first published form LoRA for each sense.

Source of names and shapes: transformers 5.23, modeling_phi4_multimodal.py; "phi4mm": modeling_phi4mm.py and
speech_conformer_encoder.py beside the checkpoint on the hub, whose 5,574,460,384 elements this equals.
"""

from typing import Any

from vramcast.models.config import Config
from vramcast.models.families import parts, vit, wrapper
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.layers import Attention, Dense

_NAME = "model.embed_tokens_extend."
_SIGLIP = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "num_hidden_layers": 27, "num_attention_heads": 16,
    "intermediate_size": 4304, "image_size": 448, "patch_size": 14,
}  # fmt: skip
_SAME = {
    "attention_dim": "hidden_size", "attention_heads": "num_attention_heads", "linear_units": "intermediate_size",
    "num_blocks": "num_blocks", "ext_pw_out_channel": "ext_pw_out_channel", "kernel_size": "kernel_size",
}  # fmt: skip
_LORA = ("vision_lora", "speech_lora")


def read(config: Config) -> Model:
    """A Phi-4 Multimodal model."""
    text = Config({**config.raw, "model_type": "phi3"}, config.path)
    hidden = text.size("hidden_size")
    remote = config.text("model_type") == "phi4mm"
    heard = _remote_audio(config) if remote else wrapper.part(config, "audio_config", "phi4_multimodal_audio")
    seen = Config(_SIGLIP, config.path) if remote else wrapper.part(config, "vision_config", "phi4_multimodal_vision")
    towers = (_vision(seen, hidden), _audio(heard, hidden, normalised=remote))
    model = wrapper.wrap(config, text, prefix="model.", towers=towers, tied=remote)
    return wrapper.with_towers(model, *(_adapter(config, model, name) for name in _LORA if config.has(name)))


def _adapter(config: Config, model: Model, name: str) -> Tower:
    """One sense's LoRA on the four matrices of every layer, loaded with the model."""
    rank, (block,) = config.child(name).size("r"), model.blocks
    matrices = [t for t in block.tensors if len(t.shape) == 2]
    tensors = tuple(
        tensor
        for each in matrices
        for tensor in (
            *parts.linear(f"{each.name.removesuffix('weight')}lora_A.{name}", rank, each.shape[1], "lora", shard=None),
            *parts.linear(f"{each.name.removesuffix('weight')}lora_B.{name}", each.shape[0], rank, "lora", shard=None),
        )
    )
    return Tower(name=name, kind="adapter", blocks=(Block(name=block.name, indices=block.indices, tensors=tensors),))


def _remote_audio(config: Config) -> Config:
    """The audio encoder under the names of transformers' class."""
    said = config.child("audio_processor").child("config")
    renamed: dict[str, Any] = {new: said.raw[old] for old, new in _SAME.items() if said.has(old)}
    reach = said.optional_child("relative_attention_bias_args")
    distance = reach.size("t5_bias_max_distance", default=500) if reach else 500
    part = wrapper.part(Config({"audio_config": renamed}, said.path), "audio_config", "phi4_multimodal_audio")
    return Config({**part.raw, "bias_max_distance": distance}, said.path)


def _vision(seen: Config, hidden: int) -> Tower:
    """SigLIP, its head included, separators of crops and two layers over every four patches averaged."""
    name = f"{_NAME}image_embed."
    kind = Config({**seen.raw, "model_type": "siglip_vision_model"}, seen.path)
    tower, width = vit.tower(kind, f"{name}img_processor."), seen.size("hidden_size")
    tensors = (
        *tower.tensors,
        vit.table(f"{name}global_img_feature_extensor", 1, 1, width),
        vit.table(f"{name}sub_img_feature_extensor", 1, 1, 1, width),
        *parts.linear(f"{name}img_projection_up", hidden, width, "projector", shard=None, bias=True),
        *parts.linear(f"{name}img_projection_down", hidden, hidden, "projector", shard=None, bias=True),
    )
    return Tower(name=name, kind="vision", hidden=width, blocks=tower.blocks, tensors=tensors, facts=tower.facts)


def _audio(heard: Config, hidden: int, *, normalised: bool) -> Tower:
    """The Conformer, a bias by distance, and a projection for speech alone and one for speech beside images."""
    name, width = f"{_NAME}audio_embed.", heard.size("hidden_size")
    inner, bands = f"{name}encoder.", heard.size("input_size", default=80)
    rows = heard.size("bias_max_distance") * (1 if heard.flag("bias_symmetric", default=False) else 2)
    scale = tuple(vit.table(f"{inner}encoder_embedding.{n}", bands) for n in ("global_mean", "global_invstd"))
    projections = [
        parts.linear(f"{name}{step}_proj_for_{sense}", hidden, inputs, "projector", shard=None, bias=True)
        for sense in ("speech", "vision_speech")
        for step, inputs in (("up", width), ("down", hidden))
    ]
    return Tower(
        name=name,
        kind="audio",
        hidden=width,
        blocks=(_layer(heard, width, f"{inner}encoders.{{}}."),),
        tensors=(
            *(scale if normalised else ()),
            *_subsampling(heard, width, bands, f"{inner}embed."),
            vit.table(f"{inner}relative_attention_bias_layer.bias_values.weight", rows, heard.size("num_attention_heads")),
            *(tensor for each in projections for tensor in each),
        ),
    )


def _subsampling(heard: Config, width: int, bands: int, name: str) -> tuple[Tensor, ...]:
    """A convolution and pairs of depthwise and pointwise ones halve time and bands until ``time_reduction`` is reached."""
    channels, steps = heard.size("nemo_conv_channels", default=1024), heard.size("time_reduction", default=8).bit_length() - 1
    pairs = range(1, steps)
    last = -(-bands // 2**steps)
    return (
        *vit.patches(f"{name}conv.0", channels, 1, 3, 3, bias=True),
        *(t for i in pairs for t in vit.patches(f"{name}conv.{3 * i - 1}", channels, 1, 3, 3, bias=True)),
        *(t for i in pairs for t in vit.patches(f"{name}conv.{3 * i}", channels, channels, 1, 1, bias=True)),
        *parts.linear(f"{name}out", width, channels * last, "projector", shard=None, bias=True),
    )


def _layer(heard: Config, width: int, name: str) -> Block:
    heads, mlp = heard.size("num_attention_heads"), Dense(intermediate=heard.size("intermediate_size"))
    kind = Attention(heads=heads, kv_heads=heads, head_dim=max(1, width // heads), causal=False, rope_dim=0)
    halves = (parts.fused_mlp(mlp, width, prefix=f"feed_forward_{side}.", bias=True) for side in ("in", "out"))
    normed = ("feed_forward_in.layer_norm", "feed_forward_out.layer_norm", "conv.layer_norm", "layer_norm_att", "layer_norm")
    return Block(
        name=name,
        indices=tuple(range(heard.size("num_blocks"))),
        mixers=(kind,),
        feedforward=mlp,
        tensors=(
            *parts.attention(kind, width, bias=True),
            *(tensor for half in halves for tensor in half),
            *_convolution(heard, width),
            *parts.norms(width, *normed, bias=True),
        ),
    )


def _convolution(heard: Config, width: int) -> tuple[Tensor, ...]:
    apart = heard.size("depthwise_separable_out_channel", default=1024)
    out, kernel = heard.size("ext_pw_out_channel", default=1024), heard.size("kernel_size", default=3)
    return (
        *vit.patches("conv.glu.ext_pw_conv_1d", 2 * out, width, 1, bias=True),
        *(Tensor(name=f"conv.glu.b{i}", shape=(1, out, 1), role="bias") for i in (1, 2)),
        *vit.patches("conv.dw_sep_conv_1d.dw_conv", width, 1, kernel, bias=True),
        *vit.patches("conv.dw_sep_conv_1d.pw_conv", apart, width, 1, bias=True),
        *vit.patches("conv.ext_pw_conv_1d", out, width, 1, bias=True),
    )
