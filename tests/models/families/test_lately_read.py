"""Families and spellings that were refused or read wrongly: the published figure of each."""

from typing import Any

import pytest

from vramcast.models.families import read_config
from vramcast.models.inventory import Model
from vramcast.models.layers import Experts, LatentAttention

_FULL = [*range(4, 93, 4), 93]
_K3: dict[str, Any] = {
    "model_type": "kimi_linear", "hidden_size": 7168, "intermediate_size": 33792, "num_hidden_layers": 93, "vocab_size": 163840,
    "num_attention_heads": 96, "num_key_value_heads": 96, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "mla_use_nope": True, "mla_use_output_gate": True, "first_k_dense_replace": 1,
    "num_experts": 896, "num_experts_per_token": 16, "num_shared_experts": 2, "moe_intermediate_size": 3072,
    "routed_expert_hidden_size": 3584, "latent_moe_use_norm": True, "attn_res_block_size": 12, "max_position_embeddings": 1048576,
    "linear_attn_config": {
        "full_attn_layers": _FULL, "kda_layers": [i for i in range(1, 94) if i not in _FULL], "head_dim": 128, "num_heads": 96,
        "short_conv_kernel_size": 4, "use_full_rank_gate": True,
    },
}  # fmt: skip


def _k3() -> Model:
    return read_config({"model_type": "kimi_k3", "text_config": _K3})


def test_kimi_k3_has_the_published_totals() -> None:
    """2.8 T parameters, 104 B active (the model card); 92 x 896 x 3 expert matrices (ggml-org/llama.cpp#26185)."""
    model = _k3()
    assert model.parameters == pytest.approx(2.78e12, rel=0.002)
    assert model.active_parameters == pytest.approx(104e9, rel=0.015)
    experts = [t for b in model.blocks for t in b.tensors if t.copies > 1 for _ in range(b.count)]
    assert sum(t.copies for t in experts) == 247_296
    assert {t.shape for t in experts} == {(3072, 3584), (3584, 3072)}


def test_kimi_k3_keeps_latent_attention_in_24_layers_and_no_rotary_table() -> None:
    model = _k3()
    assert sum(b.count for b in model.blocks if isinstance(b.mixers[0], LatentAttention)) == 24
    assert sum(b.count for b in model.blocks if isinstance(b.feedforward, Experts)) == 92
    assert model.facts["rotary_rows"] == 0


def test_a_copy_of_kimi_k3_without_its_tower_says_so() -> None:
    assert any("vision tower" in said for said in _k3().unmodelled)


def test_the_decoder_of_kimi_k3_alone_counts_the_same() -> None:
    """A text-only copy names the class of Kimi Linear; its experts are narrower all the same."""
    assert read_config(_K3).parameters == _k3().parameters


def test_minicpm3_without_the_width_of_values() -> None:
    """openbmb/MiniCPM3-4B: 4,073,875,968 parameters."""
    config = {
        "model_type": "minicpm3", "hidden_size": 2560, "intermediate_size": 6400, "num_hidden_layers": 62, "vocab_size": 73448,
        "num_attention_heads": 40, "num_key_value_heads": 40, "q_lora_rank": 768, "kv_lora_rank": 256, "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 32, "tie_word_embeddings": True,
    }  # fmt: skip
    assert read_config(config).parameters == 4_073_875_968


def test_the_first_spelling_of_qwen() -> None:
    """CodeFuse-DevOps-Model-14B has the shapes of Qwen-14B: 14,167,290,880 parameters."""
    config = {
        "model_type": "qwen", "n_embd": 5120, "ffn_hidden_size": 27392, "n_layer": 40, "n_head": 40, "kv_channels": 128,
        "padded_vocab_size": 152064, "vocab_size": 151851, "n_positions": 8192, "tie_word_embeddings": False,
    }  # fmt: skip
    model = read_config(config)
    assert (model.parameters, model.positions) == (14_167_290_880, 8192)


def test_whisper_has_the_positions_of_its_text() -> None:
    """448 of text (max_target_positions), whatever the spectrogram's 1,500 are."""
    sizes = {"d_model": 384, "decoder_layers": 4, "encoder_layers": 4, "decoder_attention_heads": 6, "encoder_attention_heads": 6}
    config = {"model_type": "whisper", "decoder_ffn_dim": 1536, "encoder_ffn_dim": 1536, "vocab_size": 51865, **sizes}
    assert read_config({**config, "max_target_positions": 448}).positions == 448
