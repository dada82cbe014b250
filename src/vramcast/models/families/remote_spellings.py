"""Configs of code beside checkpoints, in the words of the class of transformers that took the model in, or of a family here.

Source of fields: configuration_videollama3.py and its encoder's (DAMO-NLP-SG), configuration_glmasr.py (zai-org),
configuration_vibevoice.py (microsoft), each beside its checkpoint; model_minimind.py (jingyaogong/minimind), built on meta
tensors. VideoLLaMA3-7B equals its weight index (16,089,489,888 bytes).
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from vramcast.models.config import Config

Raw = Mapping[str, Any]


def translated(raw: Raw, path: str) -> Raw:
    """The config in transformers' words when it is one of these; any other unchanged."""
    rule = RULES.get(str(raw.get("model_type")))
    return rule(Config(raw, path)) if rule else raw


def _without(raw: Raw, *names: str) -> dict[str, Any]:
    return {name: value for name, value in raw.items() if name not in names}


def _video_llama_3(config: Config) -> Raw:
    """Qwen2's fields stand beside the tower's config, which has no table of positions."""
    seen = config.child("vision_encoder_config")
    text = {**_without(config.raw, "vision_encoder_config", "auto_map", "architectures"), "model_type": "qwen2"}
    return {
        "model_type": "video_llama_3",
        "architectures": ["VideoLlama3ForConditionalGeneration"],
        "text_config": text,
        "vision_config": {**seen.raw, "model_type": "video_llama_3_vision"},
        **{name: config.raw[name] for name in ("torch_dtype", "dtype", "quantization_config") if config.has(name)},
        "tie_word_embeddings": config.flag("tie_word_embeddings", default=False),
    }


def _minimind(config: Config) -> Raw:
    """MiniMind's third form is a Qwen3, or a Qwen3 of experts; the first two are another family (renamed)."""
    if not config.has("router_aux_loss_coef"):
        return config.raw
    hidden, mixed = config.size("hidden_size", default=768), config.flag("use_moe", default=False)
    wide = config.size("intermediate_size", default=math.ceil(hidden * math.pi / 64) * 64)
    defaults = {
        "hidden_size": hidden, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 6400,
        "intermediate_size": wide, "moe_intermediate_size": wide, "num_experts": 4, "num_experts_per_tok": 1,
        "head_dim": hidden // config.size("num_attention_heads", default=8), "tie_word_embeddings": True,
        "max_position_embeddings": 32768,
    }  # fmt: skip
    said = {name: value for name, value in config.raw.items() if value is not None}
    kind, name = ("qwen3_moe", "Qwen3MoeForCausalLM") if mixed else ("qwen3", "Qwen3ForCausalLM")
    return {**defaults, **_without(said, "auto_map"), "model_type": kind, "architectures": [name]}


def _glm_asr(config: Config) -> Raw:
    """A Llama under ``lm_config``, Whisper's sizes under ``whisper_config``."""
    if not config.has("lm_config"):
        return config.raw
    heard, names = config.child("whisper_config"), {"d_model": "hidden_size", "encoder_ffn_dim": "intermediate_size"}
    names |= {"encoder_layers": "num_hidden_layers", "encoder_attention_heads": "num_attention_heads"}
    audio = {new: heard.raw[old] for old, new in names.items() if heard.has(old)}
    heads = {"num_key_value_heads": audio.get("num_attention_heads"), "num_mel_bins": heard.raw.get("num_mel_bins", 128)}
    return {
        **_without(config.raw, "lm_config", "whisper_config"),
        "architectures": ["GlmAsrForConditionalGeneration"],
        "text_config": {**config.child("lm_config").raw, "model_type": "llama"},
        "audio_config": {**audio, **heads, "model_type": "glmasr_encoder"},
        "tie_word_embeddings": config.child("lm_config").flag("tie_word_embeddings", default=False),
    }


def _vibevoice(config: Config) -> Raw:
    """A Qwen2 under ``decoder_config``, two tokenizers of sound and a diffusion head under their own names."""
    if not config.has("decoder_config"):
        return config.raw
    head = config.child("diffusion_head_config")
    width = head.size("hidden_size")
    diffusion = {
        "model_type": "vibevoice_diffusion",
        "hidden_size": width,
        "latent_size": head.size("latent_size", default=64),
        "num_hidden_layers": head.size("head_layers", default=4),
        "intermediate_size": round(width * config.child("diffusion_head_config").number("head_ffn_ratio", default=3.0)),
    }
    text = config.child("decoder_config")
    return {
        "model_type": "vibevoice",
        "architectures": ["VibeVoiceForConditionalGeneration"],
        "text_config": {**text.raw, "model_type": text.text("model_type", default="qwen2")},
        "audio_config": _tokenizer(config.child("acoustic_tokenizer_config"), "vibevoice_acoustic_tokenizer"),
        "semantic_model_config": _tokenizer(config.child("semantic_tokenizer_config"), "vibevoice_acoustic_tokenizer_encoder"),
        "diffusion_head_config": diffusion,
        **{name: config.raw[name] for name in ("torch_dtype", "dtype") if config.has(name)},
        "tie_word_embeddings": text.flag("tie_word_embeddings", default=False),
    }


def _tokenizer(config: Config, kind: str) -> dict[str, Any]:
    depths = config.raw.get("encoder_depths", "3-3-3-3-3-3-8")
    listed = [int(each) for each in str(depths).split("-") if each.isdigit()] if isinstance(depths, str) else depths
    return {
        "model_type": kind,
        "channels": config.size("channels", default=1),
        "hidden_size": config.size("vae_dim"),
        "num_filters": config.size("encoder_n_filters", default=32),
        "downsampling_ratios": [*reversed(config.list("encoder_ratios", default=[8, 5, 5, 4, 2, 2]))],
        "depths": listed,
    }


RULES: dict[str, Callable[[Config], Raw]] = {
    "videollama3_qwen2": _video_llama_3,
    "minimind": _minimind,
    "glmasr": _glm_asr,
    "vibevoice": _vibevoice,
    "vibepod": _vibevoice,
}
