"""The cache that transformers' own classes hold after a prompt and after one more token, to the byte, for small random models."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from test_tiny_hybrids import CASES, TEXT
from test_tiny_models import drawn, text_types

from vramcast.models.families import read_config
from vramcast.models.families.registry import MODULES
from vramcast.models.sharding import every_stage
from vramcast.serving.engines.layouts import front_split
from vramcast.serving.engines.transformers.cache import CacheStorage

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

PROMPT = 40
HOLDING = CacheStorage(version=(5, 23), element=2, activation=2)
# What a forward needs beside what a count needs.
MROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}}
RUNNABLE: dict[str, dict[str, Any]] = {
    "gptj": {"rotary_dim": 8},
    "codegen": {"rotary_dim": 8},
    "falcon": {"new_decoder_architecture": False, "multi_query": True},
    "gemma4_unified_text": {"num_kv_shared_layers": 0},
    "zamba2": {"use_shared_attention_adapter": False},
    **{name: {"max_position_embeddings": 64} for name in ("bart", "mbart", "blenderbot", "marian", "pegasus")},
    "whisper": {"max_target_positions": 64, "max_source_positions": 30},
    "qwen2_5_vl": {"text_config": {**TEXT, **MROPE}},
}
# No Cache object: encoders, GPT-1, and two classes that keep their states in their layers or in a list.
WITHOUT = {
    "openai-gpt", "recurrent_gemma", "rwkv", "bert", "roberta", "xlm-roberta", "distilbert", "modernbert", "deberta",
    "deberta-v2", "albert", "electra", "mpnet", "megatron-bert",
}  # fmt: skip
# Three-part rotary positions that tests of counts leave out.
UNRUNNABLE = {"glm4v", "glm_ocr"}
# Compressed entries beside the window, lightning states: kept in caches of these classes' own.
OWN_CACHE = {"deepseek_v4", "minimax"}


def class_name(model_type: str) -> str:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CLASSES

    if model_type in CASES:
        return CASES[model_type][0]
    name = CLASSES.get(model_type, "")
    return name if isinstance(name, str) else name[0]


def fields_of(model_type: str) -> dict[str, Any]:
    import transformers

    chance = random.Random(model_type)
    if model_type in CASES:
        fields = {field: chance.choice(values) for field, values in CASES[model_type][1].items()}
        fields = {name: dict(value) if isinstance(value, dict) else value for name, value in fields.items()}
    else:
        fields = drawn(model_type, transformers.CONFIG_MAPPING[model_type], chance)
    if MODULES.get(model_type) == "latent":
        fields["num_key_value_heads"] = fields["num_attention_heads"]
    return {**fields, **RUNNABLE.get(model_type, {})}


def kept(cache: Any) -> dict[str, int]:
    """Bytes of storage behind keys and values, and behind states."""
    seen: dict[int, tuple[str, int]] = {}
    halves = [getattr(cache, half) for half in ("self_attention_cache", "cross_attention_cache") if hasattr(cache, half)] or [
        cache
    ]
    for layer in (layer for half in halves for layer in half.layers):
        for kind, tensor in tensors_of(layer):
            storage = tensor.untyped_storage()
            seen[storage.data_ptr()] = (kind, storage.nbytes())
    return {kind: sum(size for each, size in seen.values() if each == kind) for kind in ("cache", "state")}


def tensors_of(layer: Any) -> Iterator[tuple[str, Any]]:
    for name, kind in {"keys": "cache", "values": "cache", "indexer_keys": "cache", "conv_states": "state"}.items():
        yield from ((kind, tensor) for tensor in listed(getattr(layer, name, None)) if tensor.numel())
    yield from (("state", tensor) for tensor in listed(getattr(layer, "recurrent_states", None)))


def listed(held: Any) -> list[Any]:
    values = held.values() if isinstance(held, dict) else held if isinstance(held, list | tuple) else [held]
    return [tensor for tensor in values if tensor is not None]


def asked(model: Any, tokens: Any) -> dict[str, Any]:
    """What a forward takes: the tokens, those of both sides, or a spectrogram and the tokens."""
    import torch

    if not model.config.is_encoder_decoder:
        return {"input_ids": tokens}
    if model.main_input_name == "input_features":
        bands, frames = model.config.num_mel_bins, 2 * model.config.max_source_positions
        return {"input_features": torch.zeros(1, bands, frames, dtype=torch.bfloat16), "decoder_input_ids": tokens}
    return {"input_ids": tokens, "decoder_input_ids": tokens}


@pytest.mark.parametrize("model_type", sorted({*text_types(), *CASES} - WITHOUT - OWN_CACHE - UNRUNNABLE))
def test_holds_what_the_classes_hold(model_type: str) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    name = class_name(model_type)
    if model_type not in transformers.CONFIG_MAPPING or not hasattr(transformers, name or "-"):
        pytest.skip("remote code, or a newer class than this transformers has")
    fields = fields_of(model_type)
    config = transformers.CONFIG_MAPPING[model_type](**{k: dict(v) if isinstance(v, dict) else v for k, v in fields.items()})
    torch.manual_seed(0)
    model = getattr(transformers, name)(config).to(torch.bfloat16).eval()
    read = read_config({**fields, "model_type": model_type, "architectures": [name]})
    stage = every_stage(read, 1, front_split)[0]
    tokens = torch.randint(3, 60, (1, PROMPT))
    with torch.no_grad():
        out = model(**asked(model, tokens), use_cache=True)
        past = "past_key_values" if "past_key_values" in out else "cache_params"
        after_prompt = kept(out[past])
        model(**asked(model, tokens[:, :1]), use_cache=True, **{past: out[past]})
    state, crossed = HOLDING.state_bytes(stage), HOLDING.cross_bytes(stage, read, PROMPT)
    assert after_prompt == {"cache": HOLDING.cache_bytes(stage, PROMPT, prefilled=True) + crossed, "state": state}
    assert kept(out[past]) == {"cache": HOLDING.cache_bytes(stage, PROMPT + 1) + crossed, "state": state}
