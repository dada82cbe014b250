"""Which layers slide, see a chunk or see everything, by each class's own rule."""

from typing import Any

import pytest

from vramcast.errors import ConfigError, UnmodelledError
from vramcast.models.config import Config
from vramcast.models.families import read_config, spans

SMALL: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 8, "num_attention_heads": 4, "vocab_size": 100,
    "num_key_value_heads": 4,
}  # fmt: skip
W, F = 16, 0


def windows(model_type: str, **fields: Any) -> list[int]:
    model = read_config({**SMALL, "model_type": model_type, "sliding_window": W, **fields})
    return [block.mixers[0].window for block in model.layer_list()]


@pytest.mark.parametrize(
    ("model_type", "fields", "expected"),
    [
        ("llama", {}, [F] * 8),
        ("mistral", {}, [W] * 8),
        ("mistral", {"sliding_window": None}, [F] * 8),
        ("qwen2", {"max_window_layers": 5}, [F] * 8),
        ("qwen2", {"max_window_layers": 5, "use_sliding_window": True}, [F] * 5 + [W] * 3),
        ("qwen2", {"layer_types": ["sliding_attention", "full_attention"] * 4}, [W, F] * 4),
        ("gemma2", {}, [W, F] * 4),
        ("gemma3_text", {}, [W] * 5 + [F] + [W] * 2),
        ("gemma3_text", {"sliding_window_pattern": 4}, [W, W, W, F] * 2),
        ("gemma3_text", {"sliding_window_pattern": 8, "use_bidirectional_attention": True}, [9] * 7 + [F]),
        ("cohere2", {}, [W, W, W, F] * 2),
        ("olmo3", {}, [W, W, W, F] * 2),
        ("exaone4", {"sliding_window_pattern": "LLLG"}, [W, W, W, F] * 2),
        ("exaone4", {"sliding_window": None}, [F] * 8),
        ("cwm", {}, [F, W, W, W] * 2),
        ("gpt_oss", {"num_local_experts": 4}, [W, F] * 4),
        ("smollm3", {"use_sliding_window": True}, [F, F, F, W] * 2),
    ],
)
def test_windows(model_type: str, fields: dict[str, Any], expected: list[int]) -> None:
    assert windows(model_type, **fields) == expected


def test_llama4_layers_with_rope_see_their_chunk() -> None:
    fields = {"model_type": "llama4_text", "intermediate_size_mlp": 128, "num_local_experts": 2, "attention_chunk_size": 32}
    model = read_config({**SMALL, **fields})
    assert [b.mixers[0].chunk for b in model.layer_list()] == [32, 32, 32, 0] * 2


def test_gpt_neo_repeats_its_pattern() -> None:
    types = [[["global", "local"], 4]]
    raw = {
        "model_type": "gpt_neo",
        "hidden_size": 64,
        "num_layers": 8,
        "num_heads": 4,
        "vocab_size": 100,
        "attention_types": types,
    }
    assert [b.mixers[0].window for b in read_config(raw).layer_list()] == [0, 256] * 4


def test_an_unknown_layer_type_is_refused_not_guessed() -> None:
    with pytest.raises(UnmodelledError, match="layer_types has 'strided_attention', which this family has no rule for"):
        windows("qwen3", layer_types=["strided_attention"] * 8)


def test_a_short_list_is_refused() -> None:
    with pytest.raises(ConfigError, match="layer_types has 3 entries for 8 layers"):
        windows("qwen3", layer_types=["full_attention"] * 3)


def test_a_sliding_layer_needs_its_window() -> None:
    config = Config({"layer_types": ["sliding_attention"], "sliding_window": None})
    with pytest.raises(ConfigError, match="has no sliding_window"):
        spans.listed(config, 1)
