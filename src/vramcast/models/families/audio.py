"""Models that listen: Qwen2-Audio, Qwen3-ASR, Voxtral, Audio Flamingo 3, each Whisper's encoder or one like it before a decoder.

Source of names and shapes: transformers 5.23, modeling_qwen2_audio.py, modeling_qwen3_asr.py, modeling_voxtral.py and
modeling_audioflamingo3.py.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, seq2seq, vit, wrapper
from vramcast.models.inventory import Model, Tensor, Tower

_VOXTRAL_TEXT = {
    "vocab_size": 131072, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 30, "num_key_value_heads": 8,
    "max_position_embeddings": 131072, "head_dim": 128,
}  # fmt: skip
"""What Voxtral's class takes for its decoder where the config is silent (configuration_voxtral.py)."""


def read(config: Config) -> Model:
    """A model that listens."""
    return _READERS.get(config.text("model_type"), _audio)(config)


def _voxtral(config: Config) -> Model:
    """Whisper's encoder; four of its states at a time pass two layers without bias."""
    heard = wrapper.part(config, "audio_config", "voxtral_encoder")
    said = config.optional_child("text_config") or Config({}, config.path)
    text = wrapper.text_of(Config({**config.raw, "text_config": {**_VOXTRAL_TEXT, **said.raw}}, config.path), "llama")
    tower = seq2seq.speech_encoder(as_whisper(heard), "audio_tower.")
    name, hidden = "multi_modal_projector.", text.size("hidden_size")
    tensors = (
        *parts.linear(f"{name}linear_1", hidden, heard.size("intermediate_size"), "projector", shard=None),
        *parts.linear(f"{name}linear_2", hidden, hidden, "projector", shard=None),
    )
    projector = Tower(name=name, kind="projector", tensors=tensors)
    apart = wrapper.tied_as(config, False)
    return wrapper.wrap(apart, text, prefix="language_model.model.", towers=(tower, projector))


def as_whisper(heard: Config) -> Config:
    """An encoder's config under the names that Whisper's class has for its sizes."""
    names = {
        "d_model": "hidden_size", "encoder_layers": "num_hidden_layers", "encoder_attention_heads": "num_attention_heads",
        "encoder_ffn_dim": "intermediate_size",
    }  # fmt: skip
    return Config({**heard.raw, **{old: heard.raw[new] for old, new in names.items() if heard.has(new)}}, heard.path)


def _flamingo(config: Config) -> Model:
    """Audio Flamingo 3 and Music Flamingo: two layers after Whisper's encoder."""
    text = wrapper.text_of(config, "qwen2")
    heard = wrapper.part(config, "audio_config", "audioflamingo3_encoder")
    tower = seq2seq.speech_encoder(as_whisper(heard), "model.audio_tower.")
    name, hidden, bias = "model.multi_modal_projector.", text.size("hidden_size"), config.flag("projector_bias", default=True)
    tensors = (
        *parts.linear(f"{name}linear_1", hidden, tower.hidden, "projector", shard=None, bias=bias),
        *parts.linear(f"{name}linear_2", hidden, hidden, "projector", shard=None, bias=bias),
    )
    projector = Tower(name=name, kind="projector", tensors=tensors)
    apart = wrapper.tied_as(config, False)
    return wrapper.wrap(apart, text, prefix="model.language_model.", towers=(tower, projector))


def _audio(config: Config) -> Model:
    text = wrapper.text_of(config, "qwen2")
    tower = seq2seq.speech_encoder(wrapper.part(config, "audio_config", "qwen2_audio_encoder"), "audio_tower.")
    linear = parts.linear(
        "multi_modal_projector.linear", text.size("hidden_size"), tower.hidden, "projector", shard=None, bias=True
    )
    projector = Tower(name="multi_modal_projector.", kind="projector", tensors=linear)
    apart = wrapper.tied_as(config, False)
    return wrapper.wrap(apart, text, prefix="language_model.model.", towers=(tower, projector))


def _asr(config: Config) -> Model:
    """The published file nests both parts under ``thinker_config``; transformers' own keeps them at the top."""
    whole = config.optional_child("thinker_config") or config
    text = wrapper.text_of(whole, "qwen3_asr_text", "text_config")
    tower = convolved(wrapper.part(whole, "audio_config", "qwen3_asr_encoder"), text.size("hidden_size"))
    tied = (text if config.has("thinker_config") else config).flag("tie_word_embeddings", default=True)
    outer = Config({**whole.raw, "model_type": "qwen3_asr", "tie_word_embeddings": tied}, config.path)
    return wrapper.wrap(outer, text, prefix="thinker.model.", towers=(tower,))


def convolved(config: Config, hidden: int) -> Tower:
    """Three convolutions of stride 2 over the spectrogram, then Whisper's layers with biased keys."""
    width, name = config.size("d_model"), "thinker.audio_tower."
    channels, bands = config.size("downsample_hidden_size"), config.size("num_mel_bins", default=128)
    left = -(-bands // 8)
    convolutions: list[Tensor] = []
    for i, inputs in ((1, 1), (2, channels), (3, channels)):
        convolutions += vit.patches(f"{name}conv2d{i}", channels, inputs, 3, 3, bias=True)
    return Tower(
        name=name,
        kind="audio",
        hidden=width,
        blocks=(seq2seq.encoder_layers(config, name, seq2seq.TEXT),),
        tensors=(
            *convolutions,
            *parts.linear(f"{name}conv_out", width, channels * left, "projector", shard=None),
            *parts.norms(width, f"{name}ln_post", bias=True),
            *parts.linear(f"{name}proj1", width, width, "projector", shard=None, bias=True),
            *parts.linear(f"{name}proj2", config.size("output_dim", default=hidden), width, "projector", shard=None, bias=True),
        ),
    )


_READERS = {"qwen3_asr": _asr, "voxtral": _voxtral, "audioflamingo3": _flamingo, "musicflamingo": _flamingo}
