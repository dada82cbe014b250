"""A config saved by transformers 5 under the class's own spelling of a field."""

import pytest

from vramcast.models.families import read_config

SIZES = {
    "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
    "moe_intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "vocab_size": 128, "num_experts_per_tok": 2, "max_position_embeddings": 128,
}  # fmt: skip


@pytest.mark.parametrize("spelling", ["num_experts", "num_local_experts"])
def test_either_spelling_counts_the_experts(spelling: str) -> None:
    model = read_config({**SIZES, spelling: 4})
    assert model.blocks[0].feedforward.routed == 4
