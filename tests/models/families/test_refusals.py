"""Configs that no model can have, and legitimate ones without a rule: refused with the field, the value and what to try."""

from typing import Any

import pytest

from vramcast.errors import ConfigError, UnmodelledError
from vramcast.models.families import model_types, read_config

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "vocab_size": 100,
}  # fmt: skip
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4}
GEMMA4 = {**LLAMA, "model_type": "gemma4_text", "num_kv_shared_layers": 2}
NAS = {**LLAMA, "model_type": "nemotron-nas", "block_configs": [{"attention": {"window_length": 5}, "ffn": {}}] * 2}


@pytest.mark.parametrize("field", sorted(set(LLAMA) - {"model_type"}))
def test_a_missing_size_is_named(field: str) -> None:
    with pytest.raises(ConfigError, match=f"config.json has no {field}: is this the config.json of a complete model"):
        read_config({k: v for k, v in LLAMA.items() if k != field})


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({**LLAMA, "num_hidden_layers": -1}, "num_hidden_layers is -1, expected 1 to"),
        ({**LLAMA, "hidden_size": 10**12}, "hidden_size is 1000000000000, expected 1 to"),
        ({**LLAMA, "vocab_size": "many"}, "vocab_size is 'many', expected a whole number"),
        ({**LLAMA, "attention_bias": "no"}, "attention_bias is 'no', expected true or false"),
        ({**MIXTRAL, "num_experts_per_tok": 8}, "num_experts_per_tok is 8, more than num_local_experts, 4"),
        (GEMMA4, "num_kv_shared_layers is 2, all 2 layers would read a cache nobody writes"),
    ],
)
def test_impossible_values(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_config(raw)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({**LLAMA, "model_type": "llama9"}, r"model_type 'llama9' has no family here: install the \[torch\] extra"),
        ({"hidden_size": 64}, "config.json has no model_type and no architecture known here: add the model_type of the class"),
        (NAS, "window_length is 5, which has no rule here"),
        ({**LLAMA, "model_type": "hunyuan", "num_experts": 4, "moe_topk": 1, "use_mla": True}, "use_mla is true"),
        ({**MIXTRAL, "mlp_layer_types": ["sparse", "hashed"]}, "mlp_layer_types has 'hashed', known are 'dense' and 'sparse'"),
    ],
)
def test_what_has_no_rule(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(UnmodelledError, match=message):
        read_config(raw)


def test_types_are_listed_once() -> None:
    assert len(model_types()) == len(set(model_types())) > 100
