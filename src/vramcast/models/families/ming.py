"""Ming-lite-omni: Ling's experts with gates of their own for images and sound, Qwen2.5-VL's tower and two encoders of speech.

Source of names and shapes: modeling_bailingmm.py, modeling_utils.py (SANMEncoder) and modeling_whisper_encoder.py beside the
checkpoint (inclusionAI). Ming-lite-omni's index of 76,219,321,216 bytes, all in float32, is this and its talker, which the config
does not describe and is not counted.
"""

from msgspec.structs import replace

from vramcast.errors import UnmodelledError
from vramcast.models.config import Config
from vramcast.models.families import parts, qwen_vl, seq2seq, vit, wrapper
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.layers import Attention, Dense

_GATES = ("mlp.image_gate", "mlp.audio_gate")
_SPEAKS = "the talker, about 0.7 billion parameters"


def read(config: Config) -> Model:
    """A model of this class. Raises UnmodelledError for Ming-UniVision, whose config is a copy and whose code builds more."""
    beside = config.raw.get("auto_map")
    if isinstance(beside, dict) and "UniVision" in str(beside.get("AutoConfig")):
        raise UnmodelledError(
            f"{config.path}: what Ming-UniVision draws images with is in its code alone: point at its safetensors files, whose "
            "headers are exact"
        )
    text = wrapper.text_of(config, "bailing_moe", "llm_config")
    hidden, depth = text.size("hidden_size"), config.size("mlp_depth", default=1)
    seen = qwen_vl.vision(config, "qwen2_5_vl", "vision.")
    out = config.child("vision_config").size("out_hidden_size")
    looks = _projector("linear_proj.", hidden, depth, parts.linear("0", hidden, out, "projector", shard=None, bias=True))
    heard = (*_sanm(config, hidden, depth), *_whisper(config, hidden, depth))
    model = wrapper.wrap(config, text, prefix="model.model.", towers=(seen, looks, *heard), tied=False)
    if text.flag("multi_gate", default=False):
        model = replace(model, blocks=tuple(_gated(block, hidden) for block in model.blocks))
    return wrapper.without_tower(model, _SPEAKS) if config.has("talker_config") else model


def _gated(block: Block, hidden: int) -> Block:
    """A layer of experts with two more gates."""
    gates = [t for t in block.tensors if t.role == "router" and len(t.shape) == 2]
    more = (replace(t, name=f"{name}.weight") for t in gates for name in _GATES)
    return replace(block, tensors=(*block.tensors, *more))


def _projector(name: str, hidden: int, depth: int, first: tuple[Tensor, ...]) -> Tower:
    layers = (parts.linear(f"{i}", hidden, hidden, "projector", shard=None, bias=True) for i in range(2, 2 * depth, 2))
    tensors = (*first, *(t for each in layers for t in each))
    return Tower(name=name, kind="projector", tensors=tuple(replace(t, name=f"{name}{t.name}") for t in tensors))


def _sanm(config: Config, hidden: int, depth: int) -> tuple[Tower, ...]:
    """Layers of attention with a memory of some frames; the first takes the spectrogram's width in."""
    said = config.optional_child("audio_config")
    if said is None:
        return ()
    own = said.child("audio_encoder_config_sanm")
    wide = own.size("output_size")
    first = _frames("audio.encoders0.{}.", own, 1, own.size("input_size"))
    rest = _frames("audio.encoders.{}.", own, own.size("num_blocks") - 1, wide)
    tower = Tower(
        name="audio.", kind="audio", hidden=wide, blocks=(first, rest), tensors=parts.norms(wide, "audio.after_norm", bias=True)
    )
    into = vit.patches("0", hidden, said.size("audio_encoder_output_size"), said.size("ds_kernel_size", default=1), bias=True)
    return tower, _projector("linear_proj_audio.", hidden, depth, into)


def _frames(name: str, config: Config, count: int, inputs: int) -> Block:
    heads, inner, width = (config.size(name) for name in ("attention_heads", "linear_units", "output_size"))
    kind = Attention(heads=heads, kv_heads=heads, head_dim=max(1, width // heads), causal=False, rope_dim=0)
    feed = Dense(intermediate=inner, gated=False)
    return Block(
        name=name,
        indices=tuple(range(count)),
        mixers=(kind,),
        feedforward=feed,
        tensors=(
            *parts.linear("self_attn.linear_q_k_v", 3 * width, inputs, "qkv", shard=None, bias=True),
            *parts.linear("self_attn.linear_out", width, width, "o", shard=None, bias=True),
            Tensor(name="self_attn.fsmn_block.weight", shape=(width, 1, config.size("kernel_size")), role="conv"),
            *parts.plain_mlp(feed, width, "feed_forward.w_1", "feed_forward.w_2", bias=True),
            *parts.norms(inputs, "norm1", bias=True),
            *parts.norms(width, "norm2", bias=True),
        ),
    )


def _whisper(config: Config, hidden: int, depth: int) -> tuple[Tower, ...]:
    """Whisper's encoder in OpenAI's words; its positions are computed and stored."""
    said = config.optional_child("whisper_config")
    if said is None:
        return ()
    own = said.child("whisper_encoder_config")
    width, name = own.size("n_state"), "whisper_encoder."
    words = {
        "d_model": width, "num_mel_bins": own.size("n_mels"), "max_source_positions": own.size("n_ctx"),
        "encoder_layers": own.size("n_layer"), "encoder_attention_heads": own.size("n_head"), "encoder_ffn_dim": 4 * width,
    }  # fmt: skip
    tower = seq2seq.speech_encoder(Config(words, own.path), name)
    stored = tuple(replace(t, kind="buffer") if t.kind == "frozen" else t for t in tower.tensors)
    into = vit.patches("0", hidden, width, said.size("ds_kernel_size", default=1), bias=True)
    return replace(tower, tensors=stored), _projector("linear_proj_whisper.", hidden, depth, into)
