"""GLM-ASR and Voxtral Realtime: Whisper's convolutions before a rotary encoder, its frames joined by four before a decoder.

Source of names and shapes: transformers 5.23, modeling_glmasr.py and modeling_voxtral_realtime.py.
"""

import msgspec

from vramcast.models.config import Config
from vramcast.models.families import parts, vit, wrapper
from vramcast.models.inventory import Model, Tensor, Tower

_GLM = vit.Style(out="o_proj", key_bias=False, norms=("input_layernorm", "post_attention_layernorm"), mlp=("mlp.fc1", "mlp.fc2"))
_REALTIME = vit.Style(
    out="o_proj", key_bias=False, norms=("self_attn_layer_norm", "final_layer_norm"), norm_bias=False, activation="silu",
    mlp=("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"), mlp_bias=False,
)  # fmt: skip
_PROJECTOR = "model.multi_modal_projector."


def read(config: Config) -> Model:
    """A GLM-ASR or Voxtral Realtime model."""
    if config.text("model_type") == "glmasr":
        return _glm(config)
    return _realtime(config)


def _glm(config: Config) -> Model:
    text = wrapper.text_of(config, "llama")
    heard = wrapper.part(config, "audio_config", "glmasr_encoder")
    hidden = text.size("hidden_size")
    joined = _projector(heard.size("intermediate_size"), 2 * hidden, hidden, bias=True)
    return wrapper.wrap(
        config, text, prefix="model.language_model.", towers=(_encoder(heard, _GLM, "model.audio_tower."), joined)
    )


def _realtime(config: Config) -> Model:
    text = wrapper.text_of(config, "voxtral_realtime_text")
    heard = wrapper.part(config, "audio_config", "voxtral_realtime_encoder")
    wide, hidden = heard.size("hidden_size") * config.size("downsample_factor", default=4), text.size("hidden_size")
    tower = _encoder(heard, _REALTIME, "model.audio_tower.", inner="embedder.")
    towers = (tower, _projector(wide, hidden, hidden, bias=False))
    return wrapper.wrap(config, text, prefix="model.language_model.", towers=towers)


def _projector(wide: int, middle: int, hidden: int, *, bias: bool) -> Tower:
    tensors = (
        *parts.linear(f"{_PROJECTOR}linear_1", middle, wide, "projector", shard=None, bias=bias),
        *parts.linear(f"{_PROJECTOR}linear_2", hidden, middle, "projector", shard=None, bias=bias),
    )
    return Tower(name=_PROJECTOR, kind="projector", tensors=tensors)


def _encoder(heard: Config, style: vit.Style, name: str, *, inner: str = "") -> Tower:
    """Two convolutions and the layers; the gated MLP of Voxtral Realtime has a bias behind it alone."""
    width, heads, bands = heard.size("hidden_size"), heard.size("num_attention_heads"), heard.size("num_mel_bins", default=128)
    head_dim = heard.size("head_dim", default=max(1, width // heads))
    extra = (Tensor(name="mlp.down_proj.bias", shape=(width,), role="bias"),) if len(style.mlp) == 3 else ()
    block = vit.block(
        f"{name}layers.{{}}.", heard.size("num_hidden_layers"), width, heads, intermediate=heard.size("intermediate_size"),
        style=style, head_dim=head_dim, kv_heads=heard.integer("num_key_value_heads", default=0), extra=extra,
    )  # fmt: skip
    window = heard.integer("sliding_window", default=0)
    mixers = tuple(msgspec.structs.replace(mixer, window=window) for mixer in block.mixers)
    return Tower(
        name=name,
        kind="audio",
        hidden=width,
        blocks=(msgspec.structs.replace(block, mixers=mixers),),
        tensors=(
            *vit.patches(f"{name}{inner}conv1", width, bands, 3, bias=True),
            *vit.patches(f"{name}{inner}conv2", width, width, 3, bias=True),
            *parts.norms(width, f"{name}norm", bias=style.norm_bias),
        ),
    )
