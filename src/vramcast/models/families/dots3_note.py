"""dots 3 Note: the text decoder with a vision transformer whose later layers are mixtures, and a Whisper-like audio encoder.

Source of names and shapes: transformers 5.23, modeling_dots3_note.py; its published configs may spell fields as their first
code did (embed_dim, pyramid_num_routed, whisper_config).
"""

from typing import Any

import msgspec

from vramcast.models.config import Config
from vramcast.models.families import mixtures, parts, vit, wrapper
from vramcast.models.families.mixtures import Mixture
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.layers import Dense

_GATED = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
_EXPERTS = Mixture(routed="num_local_experts", correction="mlp.e_score_correction_bias")
_OLDER_VISION = {"embed_dim": "hidden_size", "num_heads": "num_attention_heads", "use_bias": "attention_bias"}
_OLDER_AUDIO = {
    "d_model": "hidden_size", "encoder_attention_heads": "num_attention_heads", "encoder_layers": "num_hidden_layers",
    "encoder_ffn_dim": "intermediate_size", "num_mel_bins": "feature_size",
}  # fmt: skip


def read(config: Config) -> Model:
    """A dots 3 Note model."""
    text = wrapper.text_of(config, "dots3_note_text")
    towers = (
        _vision(_renamed(config, "vision_config", "dots3_note_vision_encoder", _OLDER_VISION), "model.vision_tower."),
        _audio(_audio_config(config), "model.audio_tower."),
    )
    return wrapper.wrap(config, text, prefix="model.language_model.", towers=towers, tied=False)


def _renamed(config: Config, name: str, kind: str, older: dict[str, str]) -> Config:
    part = wrapper.part(config, name, kind)
    return Config({**part.raw, **{new: part.raw[old] for old, new in older.items() if part.has(old)}}, part.path)


def _audio_config(config: Config) -> Config:
    part = wrapper.part(config, "audio_config", "dots3_note_audio_encoder")
    whisper = part.optional_child("whisper_config")
    said: dict[str, Any] = {new: whisper.raw[old] for old, new in _OLDER_AUDIO.items() if whisper and whisper.has(old)}
    out = part.size("whisper_adapter_out_dim", "adapter_output_size", "adapter_out_dim")
    return Config({**part.raw, **said, "adapter_out_dim": out}, part.path)


def _vision(config: Config, name: str) -> Tower:
    hidden, patch = config.size("hidden_size"), config.size("patch_size", default=14)
    merge = config.size("adapter_merge_size", "spatial_merge_size", default=2)
    wide, out = hidden * merge**2, config.size("adapter_out_dim")
    tensors = (
        *vit.patches(f"{name}patch_embed.proj", hidden, config.size("num_channels", default=3), patch, patch, bias=True),
        *parts.norms(hidden, f"{name}patch_embed.norm", f"{name}norm"),
        *parts.norms(hidden, f"{name}merger.ln_q", bias=True),
        *parts.linear(f"{name}merger.mlp.0", wide, wide, "projector", shard=None, bias=True),
        *parts.linear(f"{name}merger.mlp.2", out, wide, "projector", shard=None, bias=True),
    )
    blocks = parts.stack(_routed(config), lambda routed: _seeing(config, hidden, routed, f"{name}blocks.{{}}."))
    facts: dict[str, float] = {"patch_size": patch, "merge": merge}
    return Tower(name=name, kind="vision", hidden=hidden, blocks=blocks, tensors=tensors, facts=facts)


def _routed(config: Config) -> list[int]:
    """Experts of each layer, 0 = dense: by ``pyramid_num_routed``, else by ``mlp_layer_types`` and ``per_layer_config``."""
    count = config.size("num_hidden_layers")
    if config.has("pyramid_num_routed"):
        pyramid = Config({"pyramid_num_routed": config.raw["pyramid_num_routed"]}, config.path)
        return [max(0, routed) for routed in pyramid.sizes("pyramid_num_routed", count)]
    sparse = mixtures.listed(config, count)
    if not sparse:
        usual = [0] * 25 + [*range(4, 65, 4), 64]
        return [max(0, usual[i]) if i < len(usual) else 0 for i in range(count)]
    own, usual_count = config.optional_child("per_layer_config"), config.size("num_local_experts", default=64)
    told = {int(i): own.child(i).size("num_local_experts", default=usual_count) for i in own.raw if i.isdigit()} if own else {}
    return [told.get(i, usual_count) if is_sparse else 0 for i, is_sparse in enumerate(sparse)]


def _seeing(config: Config, hidden: int, routed: int, name: str) -> Block:
    heads, bias = config.size("num_attention_heads"), config.flag("attention_bias", default=False)
    inner, mlp_bias = config.size("intermediate_size"), config.flag("mlp_bias", default=False)
    style = vit.Style(
        attention="attn.", qkv="qkv", out="proj", bias=bias, out_bias=bias, mlp=_GATED, mlp_bias=mlp_bias,
        norms=("norm1", "norm2"), norm_bias=False, activation="silu",
    )  # fmt: skip
    normed = parts.norms(max(1, hidden // heads), "attn.q_norm", "attn.k_norm")
    block = vit.block(name, 1, hidden, heads, intermediate=inner, style=style, extra=normed)
    if not routed:
        return block
    active = min(routed, config.size("num_experts_per_tok", "capacity_factor", default=2))
    kind = _EXPERTS.kind(Config({**config.raw, "num_local_experts": routed, "num_experts_per_tok": active}, config.path))
    kept = tuple(t for t in block.tensors if not t.name.startswith("mlp."))
    return msgspec.structs.replace(block, feedforward=kind, tensors=(*kept, *_EXPERTS.tensors(config, kind, hidden)))


def _audio(config: Config, name: str) -> Tower:
    """Three convolutions over the spectrogram, layers with rotary positions, two layers that project."""
    hidden, width, out = config.size("hidden_size"), config.size("downsample_hidden_size"), config.size("adapter_out_dim")
    bands = (config.size("feature_size", default=128) + 7) // 8
    convolutions = (
        Tensor(name=f"{name}conv_stem.convs.{i}.weight", shape=(width, width if i else 1, 3, 3), role="conv") for i in range(3)
    )
    biases = (Tensor(name=f"{name}conv_stem.convs.{i}.bias", shape=(width,), role="conv") for i in range(3))
    tensors = (
        *convolutions,
        *biases,
        *parts.linear(f"{name}conv_stem.conv_out", hidden, width * bands, "projector", shard=None),
        *parts.norms(hidden, f"{name}layer_norm"),
        *parts.norms(hidden, f"{name}adapter.norm", bias=True),
        *parts.linear(f"{name}adapter.fc1", out, hidden, "projector", shard=None, bias=True),
        *parts.linear(f"{name}adapter.fc2", out, out, "projector", shard=None, bias=True),
    )
    return Tower(name=name, kind="audio", hidden=hidden, blocks=(_hearing(config, hidden, name),), tensors=tensors)


def _hearing(config: Config, hidden: int, name: str) -> Block:
    heads, bias = config.size("num_attention_heads"), config.flag("attention_bias", default=True)
    kind = Dense(intermediate=config.size("intermediate_size"))
    style = vit.Style(
        out="o_proj", key_bias=False, bias=bias, out_bias=bias, mlp=_GATED, norm_bias=False,
        norms=("input_layernorm", "post_attention_layernorm"), activation="silu",
    )  # fmt: skip
    block = vit.block(
        f"{name}layers.{{}}.", config.size("num_hidden_layers"), hidden, heads, intermediate=kind.intermediate, style=style
    )
    kept = tuple(t for t in block.tensors if not t.name.startswith("mlp."))
    return msgspec.structs.replace(block, tensors=(*kept, *parts.fused_mlp(kind, hidden, bias=True)))
