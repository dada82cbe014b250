"""Nemotron-H Omni without ears: RADIO, a vision transformer that also reads pairs of frames, before a Nemotron-H decoder.

Source of names and shapes: transformers 5.23, modeling_nemotron_h_omni.py and modeling_radio.py.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, vit, wrapper
from vramcast.models.inventory import Model, Tensor, Tower

_NAMES = {"llm_config": "text_config", "sound_config": "audio_config", "vit_hidden_size": "vision_hidden_size"}


def read(config: Config) -> Model:
    """A Nemotron-H Omni model; its audio encoder is named and not counted."""
    config = Config({**{new: config.raw[old] for old, new in _NAMES.items() if config.has(old)}, **config.raw}, config.path)
    text = wrapper.text_of(config, "nemotron_h")
    hidden, width = text.size("hidden_size"), config.size("vision_hidden_size", default=1280)
    wide, inner = width * int(1 / config.number("downsample_ratio", default=0.5)) ** 2, config.size("projector_hidden_size")
    last = parts.norms(width, "vision_final_layernorm", bias=True) if text.integer("num_nextn_predict_layers", default=0) else ()
    projector = (
        *parts.norms(wide, "multi_modal_projector.layer_norm"),
        *parts.linear("multi_modal_projector.linear_1", inner, wide, "projector", shard=None),
        *parts.linear("multi_modal_projector.linear_2", hidden, inner, "projector", shard=None),
        *last,
    )
    towers = (
        radio(
            wrapper.part(config, "vision_config", "radio"), config.size("video_temporal_patch_size", default=2), "vision_model."
        ),
        Tower(name="multi_modal_projector.", kind="projector", tensors=projector),
    )
    model = wrapper.wrap(config, text, prefix="language_model.backbone.", towers=towers, tied=False)
    return wrapper.without_tower(model, "the audio encoder") if config.has("audio_config") else model


def radio(config: Config, frames: int, name: str) -> Tower:
    """RADIO's encoder; positions for its largest image, several class tokens and registers."""
    hidden, patch, heads = config.size("hidden_size"), config.size("patch_size"), config.size("num_attention_heads")
    inner, pixels = int(hidden * config.number("mlp_ratio", default=4)), config.size("num_channels", default=3) * patch**2
    side, bias = config.size("max_img_size", default=2048) // patch, config.flag("qkv_bias", default=True)
    tokens = config.size("num_cls_tokens", default=3) + config.integer("num_registers", default=7)
    style = vit.Style(attention="attention.", out="o_proj", bias=bias, norms=("norm1", "norm2"), rope=False)
    scales = tuple(Tensor(name=f"layer_scale{i}.lambda1", shape=(hidden,), role="norm") for i in (1, 2))
    layers = config.size("num_hidden_layers")
    block = vit.block(f"{name}encoder.layer.{{}}.", layers, hidden, heads, intermediate=inner, style=style, extra=scales)
    tensors = (
        vit.table(f"{name}embeddings.position_embedding", 1, side**2, hidden),
        vit.table(f"{name}embeddings.cls_register_token", tokens, hidden),
        *parts.linear(f"{name}embeddings.patch_projection", hidden, pixels, "patch", shard=None),
        *parts.linear(f"{name}embeddings.video_patch_projection", hidden, frames * pixels, "patch", shard=None),
    )
    return Tower(name=name, kind="vision", hidden=hidden, blocks=(block,), tensors=tensors, facts={"patch_size": patch})
