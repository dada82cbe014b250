"""Families that transformers does not have, against the sizes their publishers state."""

from typing import Any

import pytest

from vramcast.models.families import read_config

OPENELM_270M: dict[str, Any] = {
    "model_type": "openelm", "model_dim": 1280, "head_dim": 64, "num_transformer_layers": 16, "vocab_size": 32000,
    "ffn_multipliers": [0.5, 0.73, 0.97, 1.2, 1.43, 1.67, 1.9, 2.13, 2.37, 2.6, 2.83, 3.07, 3.3, 3.53, 3.77, 4.0],
    "num_query_heads": [12] * 5 + [16] * 7 + [20] * 4, "num_kv_heads": [3] * 5 + [4] * 7 + [5] * 4,
}  # fmt: skip
LING_LITE = {
    "model_type": "bailing_moe", "hidden_size": 2048, "num_hidden_layers": 28, "num_attention_heads": 16,
    "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 5632, "moe_intermediate_size": 1408, "num_experts": 64,
    "num_experts_per_tok": 6, "num_shared_experts": 2, "vocab_size": 126464, "tie_word_embeddings": False,
}  # fmt: skip
LING_MINI_2 = {
    "model_type": "bailing_moe_v2", "hidden_size": 2048, "num_hidden_layers": 20, "num_attention_heads": 16,
    "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 5120, "moe_intermediate_size": 512, "num_experts": 256,
    "num_experts_per_tok": 8, "num_shared_experts": 1, "first_k_dense_replace": 1, "vocab_size": 157184, "use_qk_norm": True,
    "tie_word_embeddings": False,
}  # fmt: skip
LONGCAT = {
    "model_type": "longcat_flash", "hidden_size": 6144, "num_layers": 28, "num_attention_heads": 64, "q_lora_rank": 1536,
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "ffn_hidden_size": 12288,
    "expert_ffn_hidden_size": 2048, "n_routed_experts": 512, "zero_expert_num": 256, "moe_topk": 12, "vocab_size": 131072,
}  # fmt: skip


def test_openelm() -> None:
    model = read_config(OPENELM_270M)
    assert (model.parameters, model.layers) == (271_527_168, 16)  # arXiv 2404.14619, table 1: 0.27 B


@pytest.mark.parametrize(
    ("raw", "total", "active"),
    [(LING_LITE, 16.8, 2.75), (LING_MINI_2, 16.26, 1.43), (LONGCAT, 560.7, 31.3)],
    ids=["Ling-lite", "Ling-mini-2.0", "LongCat-Flash"],
)
def test_mixtures_are_as_large_as_announced(raw: dict[str, Any], total: float, active: float) -> None:
    """Billions of parameters; LongCat's active ones are the most a token can meet, published without the embedding."""
    model = read_config(raw)
    assert model.parameters / 1e9 == pytest.approx(total, rel=0.003)
    assert model.active_parameters / 1e9 == pytest.approx(active, rel=0.03)


PHI4MM = {
    "model_type": "phi4mm", "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32, "num_attention_heads": 24,
    "num_key_value_heads": 8, "vocab_size": 200064, "tie_word_embeddings": True, "vision_lora": {"r": 256},
    "speech_lora": {"r": 320}, "audio_processor": {"config": {"attention_dim": 1024, "attention_heads": 16, "linear_units": 1536,
    "num_blocks": 24, "relative_attention_bias_args": {"t5_bias_max_distance": 500}}},
}  # fmt: skip
SMALL_DEEPSEEK = {
    "hidden_size": 1280, "intermediate_size": 6848, "moe_intermediate_size": 896, "n_routed_experts": 64, "n_shared_experts": 2,
    "num_experts_per_tok": 6, "num_hidden_layers": 12, "num_attention_heads": 10, "num_key_value_heads": 10, "use_mla": False,
    "first_k_dense_replace": 1, "vocab_size": 129280, "kv_lora_rank": None, "q_lora_rank": None,
}  # fmt: skip
DEEPSEEK_OCR = {
    "model_type": "deepseek_vl_v2", "architectures": ["DeepseekOCRForCausalLM"], "language_config": SMALL_DEEPSEEK,
    "projector_config": {"input_dim": 2048, "n_embed": 1280, "projector_type": "linear"},
}  # fmt: skip
DEEPSEEK_VL2_TINY = {
    "model_type": "deepseek_vl_v2", "architectures": ["DeepseekVLV2ForCausalLM"], "language_config": SMALL_DEEPSEEK,
    "projector_config": {"input_dim": 1152, "n_embed": 1280, "depth": 2}, "vision_config": {"layers": 27, "width": 1152},
}  # fmt: skip
LLADA = {
    "model_type": "llada", "d_model": 4096, "n_heads": 32, "n_kv_heads": 32, "n_layers": 32, "mlp_hidden_size": 12288,
    "embedding_size": 126464, "weight_tying": False,
}  # fmt: skip
DREAM = {
    "model_type": "Dream", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
    "num_key_value_heads": 4, "vocab_size": 152064,
}  # fmt: skip
CHATGLM = {
    "model_type": "chatglm", "hidden_size": 4096, "inner_hidden_size": 16384, "num_attention_heads": 32, "num_layers": 28,
    "vocab_size": 130528,
}  # fmt: skip
COGVLM = {
    "architectures": ["CogVLMForCausalLM"], "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32,
    "num_hidden_layers": 32, "vocab_size": 32000, "vision_config": {"hidden_size": 1792, "intermediate_size": 15360,
    "num_heads": 16, "num_hidden_layers": 63, "num_positions": 1226, "image_size": 490, "patch_size": 14},
}  # fmt: skip
RWKV7 = {
    "model_type": "rwkv7", "hidden_size": 2048, "num_hidden_layers": 24, "vocab_size": 65536, "head_dim": 64,
    "a_low_rank_dim": 96, "decay_low_rank_dim": 96, "gate_low_rank_dim": 256, "v_low_rank_dim": 64, "intermediate_size": 8192,
}  # fmt: skip
GROK = {
    "model_type": "grok-1", "hidden_size": 6144, "intermediate_size": 32768, "num_hidden_layers": 64, "num_attention_heads": 48,
    "num_key_value_heads": 8, "num_experts": 8, "num_experts_per_tok": 2, "vocab_size": 131072,
}  # fmt: skip
ARCTIC = {
    "model_type": "arctic", "hidden_size": 7168, "intermediate_size": 4864, "num_hidden_layers": 35, "num_attention_heads": 56,
    "num_key_value_heads": 8, "num_local_experts": 128, "num_experts_per_tok": 2, "vocab_size": 32000,
}  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "published"),
    [
        (PHI4MM, 5_574_460_384), (DEEPSEEK_OCR, 3_336_106_240), (LLADA, 8_015_581_184), (DREAM, 7_615_616_512),
        (CHATGLM, 6_173_286_400), (COGVLM, 17_639_685_376), (RWKV7, 1_527_404_544),
    ],
    ids=lambda value: value.get("model_type", "cogvlm") if isinstance(value, dict) else "",
)  # fmt: skip
def test_elements_equal_what_the_checkpoints_hold(raw: dict[str, Any], published: int) -> None:
    assert read_config(raw).parameters == published


@pytest.mark.parametrize(
    ("raw", "billions"),
    [(DEEPSEEK_VL2_TINY, 3.37), (GROK, 316.5), (ARCTIC, 479)],
    ids=["DeepSeek-VL2-tiny", "Grok-1", "Arctic"],
)
def test_sizes_as_announced(raw: dict[str, Any], billions: float) -> None:
    assert read_config(raw).parameters / 1e9 == pytest.approx(billions, rel=0.001)


def test_llavas_first_form_names_its_tower_without_describing_it() -> None:
    raw = {
        "model_type": "llava_mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "mm_hidden_size": 1024,
        "mm_projector_type": "mlp2x_gelu", "mm_vision_tower": "BAAI/EVA-CLIP-8B",
    }  # fmt: skip
    model = read_config(raw)
    assert model.parameters == 7_241_732_096 + 1024 * 4096 + 4096 + 4096 * 4097
    assert model.unmodelled[-1] == "vision tower BAAI/EVA-CLIP-8B: the config does not describe it"
