"""DeepSeek-V4.1-Flash: layers that write entries, layers that read them, tables of n-grams."""

from typing import Any

import pytest

from vramcast.errors import ConfigError
from vramcast.models.families import read_config

# The sizes of deepseek-ai/DeepSeek-V4.1-Flash.
TEXT: dict[str, Any] = {
    "model_type": "deepseek_v41_text", "vocab_size": 129280, "hidden_size": 5120, "moe_intermediate_size": 2304,
    "num_hidden_layers": 40, "num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512, "qk_rope_head_dim": 64,
    "q_lora_rank": 1280, "o_lora_rank": 1024, "o_groups": 8, "n_routed_experts": 384, "n_shared_experts": 1,
    "num_experts_per_tok": 6, "sliding_window": 128, "compress_ratios": [0] * 2 + [2] * 18 + [1] * 20 + [0] * 3,
    "kv_source_layer_ids": [2, 8, 14, 20], "index_source_layer_ids": [2, 8, 14, 20, 24, 28, 32, 36], "index_n_heads": 32,
    "index_head_dim": 128, "index_topk": 512, "hc_mult": 4, "engram_layer_ids": [1, 14],
    "engram_num_embeddings": [384006168, 384016682], "engram_max_ngram_size": 4, "engram_n_heads": 8, "engram_head_dim": 256,
    "num_nextn_predict_layers": 3,
}  # fmt: skip
FLASH: dict[str, Any] = {
    "model_type": "deepseek_v41", "architectures": ["DeepseekV41ForCausalLM"], "dtype": "bfloat16", "text_config": TEXT,
    "vision_config": {"hidden_size": 1024},
}  # fmt: skip


def test_each_part_is_counted_by_hand() -> None:
    width, experts = 5120, 385 * 3 * 5120 * 2304
    attention = 64 + 1280 * width + 64 * 512 * 1280 + 1280 + 512 * width + 512 + 8 * 1024 * 4096 + width * 8192
    mixing = 2 * (24 * 4 * width + 24 + 3)
    layer = attention + mixing + 384 * width + experts + 2 * width
    writing = 4 * (512 * width + 512 + 128 * 512 + 128) + 3 * 512 * width
    scoring = 8 * (32 * 128 * 1280 + 32 * width)
    tables = (384006168 + 384016682) * 256 + 2 * (2 * 4 * width + 5 * width * 24 * 256)
    assert read_config(FLASH).parameters == 40 * layer + writing + scoring + tables + 2 * 129280 * width + width


def test_four_layers_write_what_all_read() -> None:
    writers = [b for b in read_config(FLASH).blocks if not b.shares_cache]
    assert sorted(i for b in writers for i in b.indices) == [2, 8, 14, 20]
    assert {b.mixers[0].compression for b in writers} == {1, 2}


def test_what_is_not_counted_is_named() -> None:
    notes = " ".join(read_config(FLASH).unmodelled)
    assert "3 draft layers" in notes and "the vision tower" in notes and "windows of 36 layers" in notes


def test_a_text_alone_is_read_and_a_short_list_is_refused() -> None:
    assert read_config(TEXT).parameters == read_config(FLASH).parameters
    with pytest.raises(ConfigError, match="compress_ratios has 3 entries for 40 layers"):
        read_config({**TEXT, "compress_ratios": [0, 2, 2]})
