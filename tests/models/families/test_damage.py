"""Configs that no class can build: refused with the field named, or answered with the damage named."""

from typing import Any

import pytest

from vramcast.errors import ConfigError
from vramcast.models.families import read_config

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
    "num_hidden_layers": 32, "vocab_size": 128256,
}  # fmt: skip
HYBRID: dict[str, Any] = {
    "model_type": "qwen3_5_text", "hidden_size": 1024, "intermediate_size": 3584, "num_attention_heads": 8, "head_dim": 256,
    "num_key_value_heads": 2, "num_hidden_layers": 8, "vocab_size": 248320,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 2,
}  # fmt: skip


@pytest.mark.parametrize("kv_heads", [5, 64])
def test_kv_heads_that_do_not_divide(kv_heads: int) -> None:
    with pytest.raises(ConfigError, match=f"32 query heads .num_attention_heads. are no multiple of {kv_heads} KV heads"):
        read_config({**LLAMA, "num_key_value_heads": kv_heads})


def test_heads_that_do_not_divide_the_hidden_size() -> None:
    damaged = {**LLAMA, "num_attention_heads": 33, "num_key_value_heads": 33}
    with pytest.raises(
        ConfigError, match="hidden_size 4096 is no multiple of num_attention_heads, 33, and head_dim is not stated"
    ):
        read_config(damaged)
    assert read_config({**damaged, "head_dim": 128}).parameters > read_config(LLAMA).parameters


def test_a_pattern_that_is_too_short() -> None:
    with pytest.raises(ConfigError, match="layer_types has 7 entries for 8 layers"):
        read_config({**HYBRID, "layer_types": HYBRID["layer_types"][:7]})


def test_a_pattern_that_is_too_long_is_named() -> None:
    longer = [*HYBRID["layer_types"], "linear_attention"]
    model = read_config({**HYBRID, "layer_types": longer})
    assert model.parameters == read_config(HYBRID).parameters
    assert [(a.name, a.because) for a in model.assumed] == [
        ("layer_types", "the config has 9 entries for 8 layers; those beyond are left out")
    ]
    assert not read_config({**HYBRID, "layer_types": longer, "mtp_num_hidden_layers": 1}).assumed


def test_more_active_experts_than_there_are() -> None:
    zaya = {
        "model_type": "zaya", "hidden_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 1000,
        "moe_intermediate_size": 2048, "num_experts": 16, "num_experts_per_tok": 17,
    }  # fmt: skip
    with pytest.raises(ConfigError, match="num_experts_per_tok is 17, more than the 16 experts"):
        read_config(zaya)
