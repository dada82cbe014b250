"""Qwen-Omni: a thinker that sees, hears and writes; unless it only writes, a talker and the vocoder that voices it.

Source of names and shapes: transformers 5.23, modeling_qwen2_5_omni.py and modeling_qwen3_omni_moe.py; names as in checkpoints.
"""

from typing import Any

import msgspec

from vramcast.models.config import Config
from vramcast.models.families import audio, omni_voice, parts, qwen_vl, read_text, seq2seq, vit, wrapper
from vramcast.models.inventory import Model, Tensor, Tower

_VOICE = "the talker and the vocoder of Qwen3-Omni, which servers load only to answer in speech"


def read(config: Config) -> Model:
    """A Qwen-Omni model; its decoder is the thinker's."""
    kind = config.text("model_type")
    return _first(config) if kind == "qwen2_5_omni" else _thinker(config) if kind == "qwen2_5_omni_thinker" else _third(config)


def _third(config: Config) -> Model:
    """Qwen3-Omni: the thinker alone; nobody's public code builds the talker from the published config (transformers 5.23)."""
    thinker = config.optional_child("thinker_config") or config
    text = wrapper.text_of(thinker, "qwen3_omni_moe_text", "text_config")
    hearing = audio.convolved(wrapper.part(thinker, "audio_config", "qwen3_omni_moe_audio_encoder"), text.size("hidden_size"))
    seeing = qwen_vl.vision(thinker, "qwen3_omni_moe", "thinker.visual.")
    tied = thinker.flag("tie_word_embeddings", default=False)
    outer = Config({**config.raw, "tie_word_embeddings": tied}, config.path)
    model = wrapper.wrap(outer, text, prefix="thinker.model.", towers=(hearing, seeing), tied=tied)
    speaks = config.has("thinker_config") and config.flag("enable_audio_output", default=True)
    return msgspec.structs.replace(model, unmodelled=(*model.unmodelled, _VOICE)) if speaks else model


def _first(config: Config) -> Model:
    """Qwen2.5-Omni: the thinker and, unless it only writes, its voice."""
    thinker = wrapper.part(config, "thinker_config", "qwen2_5_omni_thinker")
    tied = thinker.flag("tie_word_embeddings", default=False)
    said = {"tie_word_embeddings": tied, "architectures": config.raw.get("architectures"), "model_type": "qwen2_5_omni"}
    model = _thinker(Config({**thinker.raw, **_of_the_whole(config), **said}, thinker.path))
    speaks = config.flag("enable_audio_output", default=True)
    return wrapper.with_towers(model, *((_talker(config), *omni_voice.towers(config)) if speaks else ()))


def _of_the_whole(config: Config) -> dict[str, Any]:
    """What the outer config says for all parts."""
    names = ("dtype", "torch_dtype", "quantization_config")
    return {name: config.raw[name] for name in names if config.has(name)}


def _thinker(config: Config) -> Model:
    """What reads, sees, hears and writes."""
    text = wrapper.text_of(config, "qwen2_5_omni_text", "text_config")
    hearing = _audio(wrapper.part(config, "audio_config", "qwen2_5_omni_audio_encoder"))
    seeing = qwen_vl.vision(config, "qwen2_5_omni", "thinker.visual.")
    tied = config.flag("tie_word_embeddings", default=False)
    return wrapper.wrap(config, text, prefix="thinker.model.", towers=(hearing, seeing), tied=tied)


def _audio(config: Config) -> Tower:
    """Whisper's encoder with positions that are not stored, joined to the decoder by a projection."""
    name, width, bands = "thinker.audio_tower.", config.size("d_model"), config.size("num_mel_bins", default=128)
    out = config.size("output_dim", default=3584)
    return Tower(
        name=name,
        kind="audio",
        hidden=width,
        blocks=(seq2seq.encoder_layers(config, name, seq2seq.SPEECH),),
        tensors=(
            *vit.patches(f"{name}conv1", width, bands, 3, bias=True),
            *vit.patches(f"{name}conv2", width, width, 3, bias=True),
            vit.table(f"{name}audio_bos_eos_token.weight", 2, out),
            *parts.norms(width, f"{name}ln_post", bias=True),
            *parts.linear(f"{name}proj", out, width, "projector", shard=None, bias=True),
        ),
    )


def _talker(config: Config) -> Tower:
    """A small Qwen2 decoder over the thinker's states, whose vocabulary is sounds."""
    own = wrapper.part(config, "talker_config", "qwen2_5_omni_talker")
    inner = read_text(Config({**own.raw, "model_type": "qwen2", "tie_word_embeddings": True}, own.path), prefix="talker.model.")
    wide, hidden = own.size("embedding_size", default=3584), inner.hidden
    tensors: tuple[Tensor, ...] = (
        Tensor(name="talker.model.embed_tokens.weight", shape=(inner.vocab, wide), role="embedding"),
        *inner.tensors[1:],
        *parts.linear("talker.thinker_to_talker_proj", hidden, wide, "projector", shard=None, bias=True),
        *parts.linear("talker.codec_head", inner.vocab, hidden, "head", shard=None),
    )
    return Tower(name="talker.", kind="talker", blocks=inner.blocks, tensors=tensors, hidden=hidden)
