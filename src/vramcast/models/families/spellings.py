"""Configs older or other than transformers': params.json of Mistral and Meta, Mamba's first config.json, in today's words.

None but Florence-2's first form has a ``model_type``. Source of fields: mistral-common and
vllm/transformers_utils/configs/mistral.py; llama's model.py (FeedForward); mamba_ssm/models/config_mamba.py and
mixer_seq_simple.py.
"""

from collections.abc import Callable, Mapping
from typing import Any

from vramcast.errors import UnmodelledError
from vramcast.models.config import Config

_SIZES = {
    "dim": "hidden_size", "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads", "n_kv_heads": "num_key_value_heads",
    "hidden_dim": "intermediate_size", "head_dim": "head_dim", "vocab_size": "vocab_size", "sliding_window": "sliding_window",
    "tied_embeddings": "tie_word_embeddings", "max_seq_len": "max_position_embeddings", "q_lora_rank": "q_lora_rank",
    "max_position_embeddings": "max_position_embeddings", "kv_lora_rank": "kv_lora_rank", "v_head_dim": "v_head_dim",
    "qk_rope_head_dim": "qk_rope_head_dim", "qk_nope_head_dim": "qk_nope_head_dim",
}  # fmt: skip
_EXPERTS = {
    "num_experts": "n_routed_experts", "num_experts_per_tok": "num_experts_per_tok", "expert_hidden_dim": "moe_intermediate_size",
    "num_shared_experts": "n_shared_experts", "first_k_dense_replace": "first_k_dense_replace",
}  # fmt: skip
_LLAMA_VOCAB = 32_000


def translated(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """The config in transformers' words when it is one of these; any other unchanged."""
    if raw.get("model_type") == "florence2":
        return _florence2(raw)
    if raw.get("model_type") is not None:
        return raw
    for fields, translate in _KINDS:
        if all(field in raw for field in fields):
            return translate(Config(raw, path))
    return raw


def _renamed(raw: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {new: raw[old] for old, new in names.items() if raw.get(old) is not None}


def _florence2(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Florence-2 as Microsoft published it: its tower was called DaViT and its fields otherwise (configuration_florence2.py)."""
    seen, said = raw.get("vision_config"), raw.get("text_config")
    if not isinstance(seen, Mapping) or seen.get("model_type") not in ("davit", "florence2_vision"):
        return raw
    places = seen.get("image_pos_embed")
    most = {"max_position_embeddings": places.get("max_pos_embeddings", 50)} if isinstance(places, Mapping) else {}
    tower = {**seen, **_renamed(seen, {"dim_embed": "embed_dim"}), **most, "model_type": "florence_vision"}
    text = {**said, "model_type": "bart"} if isinstance(said, Mapping) else said
    return {**raw, "vision_config": tower, "text_config": text}


def _meta(config: Config) -> dict[str, Any]:
    """Llama's first form: the MLP's width follows from the model's, the vocabulary of -1 is the tokenizer's."""
    dim, step = config.size("dim"), config.size("multiple_of")
    width = int(config.number("ffn_dim_multiplier", default=1) * int(2 * 4 * dim / 3))
    vocab = config.integer("vocab_size", default=-1, least=-1)
    return {
        **_renamed(config.raw, _SIZES),
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "intermediate_size": -(-width // step) * step,
        "vocab_size": vocab if vocab > 0 else _LLAMA_VOCAB,
        "torch_dtype": "bfloat16",
    }


def _mistral(config: Config) -> dict[str, Any]:
    """Mistral's own form: dense, mixed, latent, or with eyes."""
    if config.has("multimodal"):
        raise UnmodelledError(f"{config.path} describes an audio encoder in Mistral's own form: give the config.json beside it")
    said = config.optional_child("moe")
    kind = "deepseek_v3" if config.has("kv_lora_rank") else "mixtral" if said else "mistral"
    mixed = _renamed(said.raw, _EXPERTS) if said else {}
    if kind == "mixtral":
        mixed = {"num_local_experts": mixed.get("n_routed_experts"), "num_experts_per_tok": mixed.get("num_experts_per_tok")}
    text = {"head_dim": 128, **_renamed(config.raw, _SIZES), **mixed, "model_type": kind, "torch_dtype": "bfloat16"}
    scheme = {"quantization_config": {"quant_method": "fp8"}} if config.has("quantization") else {}
    seen = config.optional_child("vision_encoder")
    return {**(_seeing(seen, text) if seen else text), **scheme, "torch_dtype": "bfloat16"}


def _seeing(seen: Config, text: dict[str, Any]) -> dict[str, Any]:
    """Pixtral's tower; later models merge squares of patches before projecting them."""
    merges = seen.text("mm_projector_id", default="") == "patch_merge"
    return {
        "model_type": "mistral3" if merges else "llava",
        "architectures": ["Mistral3ForConditionalGeneration" if merges else "LlavaForConditionalGeneration"],
        "text_config": text,
        "tie_word_embeddings": text.get("tie_word_embeddings", False),
        "vision_config": {"model_type": "pixtral", **seen.raw},
        "spatial_merge_size": seen.size("spatial_merge_size", default=2),
        "multimodal_projector_bias": seen.flag("adapter_bias", default=not merges),
    }


def _mamba(config: Config) -> dict[str, Any]:
    """Mamba 1 and 2 as first published; the vocabulary is padded to a multiple."""
    inner = config.optional_child("ssm_cfg") or Config({}, config.path)
    hidden, step = config.size("d_model"), config.size("pad_vocab_size_multiple", default=8)
    if config.list("attn_layer_idx", default=[]):
        raise UnmodelledError(f"{config.path}: attn_layer_idx is not empty; Mamba beside attention has no rule in this form")
    second = inner.text("layer", default="Mamba1") == "Mamba2"
    width, head = hidden * inner.size("expand", default=2), inner.size("headdim", default=64)
    return {
        "model_type": "mamba2" if second else "mamba",
        "hidden_size": hidden,
        "num_hidden_layers": config.size("n_layer"),
        "vocab_size": -(-config.size("vocab_size") // step) * step,
        "state_size": inner.size("d_state", default=128 if second else 16),
        "conv_kernel": inner.size("d_conv", default=4),
        "expand": inner.size("expand", default=2),
        "tie_word_embeddings": config.flag("tie_embeddings", default=True),
        **({"num_heads": width // head, "head_dim": head, "n_groups": inner.size("ngroups", default=1)} if second else {}),
    }


# The fields that tell each form apart, and what translates it.
_KINDS: tuple[tuple[tuple[str, ...], Callable[[Config], dict[str, Any]]], ...] = (
    (("dim", "n_layers", "n_heads", "multiple_of"), _meta),
    (("dim", "n_layers", "n_heads", "hidden_dim"), _mistral),
    (("d_model", "n_layer", "ssm_cfg"), _mamba),
)
