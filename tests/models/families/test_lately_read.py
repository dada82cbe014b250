"""Families and spellings that were refused or read wrongly: the published figure of each."""

from typing import Any

import pytest

from vramcast.errors import ConfigError
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


_LLAVA = {
    "model_type": "llava", "architectures": ["LlavaLlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 11008,
    "num_attention_heads": 32, "num_hidden_layers": 32, "vocab_size": 32000, "mm_hidden_size": 1024,
    "mm_projector_type": "mlp2x_gelu", "mm_vision_tower": "openai/clip-vit-large-patch14-336",
}  # fmt: skip


def test_a_tower_that_llava_only_names_is_counted() -> None:
    """LLaVA-1.5-7B has 7,062,902,784 parameters, as transformers builds llava-hf's copy of it."""
    model = read_config(_LLAVA)
    assert model.parameters == 7_062_902_784
    assert not model.unmodelled


def test_a_tower_of_unknown_name_is_said_to_be_missing() -> None:
    model = read_config({**_LLAVA, "mm_vision_tower": "./checkpoints/my-tower"})
    assert model.parameters == 6_759_395_328
    assert any("./checkpoints/my-tower" in said for said in model.unmodelled)


_SIGLIP_L = {"cls": "CLIPVisionTower", "params": {"model_name": "siglip_large_patch16_384", "image_size": 384}}


def test_deepseek_vl_has_the_published_count() -> None:
    """deepseek-ai/deepseek-vl-1.3b-base: 1.98 B parameters; Janus-1.3B's parts that draw (0.11 B) are named."""
    text = {
        "model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632, "num_attention_heads": 16, "num_hidden_layers": 24,
        "num_key_value_heads": 16, "vocab_size": 102400,
    }  # fmt: skip
    config = {"model_type": "multi_modality", "language_config": text, "vision_config": _SIGLIP_L}
    assert read_config(config).parameters == pytest.approx(1.98e9, rel=0.003)
    janus = read_config({**config, "gen_vision_config": {"cls": "VQ-16"}})
    assert any("draw" in said for said in janus.unmodelled)


def test_deepseek_vl2_without_the_width_of_its_projector() -> None:
    """deepseek-ai/deepseek-vl2-tiny: 3.37 B parameters; the projector reads what the tower gives."""
    text = {
        "model_type": "deepseek_v2", "hidden_size": 1280, "intermediate_size": 6848, "moe_intermediate_size": 896,
        "use_mla": False, "num_attention_heads": 10, "num_key_value_heads": 10, "num_hidden_layers": 12, "n_routed_experts": 64,
        "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "vocab_size": 129280,
    }  # fmt: skip
    seen = {"layers": 27, "mlp_ratio": 3.7362, "patch_size": 14, "width": 1152}
    config = {
        "model_type": "deepseek_vl_v2",
        "language_config": text,
        "vision_config": seen,
        "projector_config": {"n_embed": 1280},
    }
    assert read_config(config).parameters == pytest.approx(3.37e9, rel=0.002)


def test_minimax_m1_reads_as_minimax() -> None:
    """456 B parameters, 45.9 B active without the embedding and the head (the model card)."""
    config = {
        "model_type": "minimax_m1", "hidden_size": 6144, "intermediate_size": 9216, "num_hidden_layers": 80, "head_dim": 128,
        "num_attention_heads": 64, "num_key_value_heads": 8, "num_local_experts": 32, "num_experts_per_tok": 2,
        "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1] * 10, "vocab_size": 200064, "tie_word_embeddings": False,
    }  # fmt: skip
    model = read_config(config)
    assert model.parameters == pytest.approx(456e9, rel=0.001)
    assert model.active_parameters - 2 * 200064 * 6144 == pytest.approx(45.9e9, rel=0.002)


def test_encoders_stand_alone() -> None:
    """openai/clip-vit-large-patch14: 427,616,513 parameters; google/vit-base-patch16-224-in21k: 86,389,248."""
    sizes = {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14}
    words = {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 12}
    both = {"model_type": "clip", "projection_dim": 768, "text_config": words, "vision_config": sizes}
    assert read_config({**both, "architectures": ["CLIPModel"]}).parameters == 427_616_513
    vit = {"model_type": "vit", "image_size": 224, **words, "patch_size": 16, "architectures": ["ViTModel"]}
    assert read_config(vit).parameters == 86_389_248


def test_mamba2_whose_heads_do_not_make_its_width_is_refused() -> None:
    config = {"model_type": "mamba2", "hidden_size": 2048, "num_hidden_layers": 48, "vocab_size": 32000, "expand": 2}
    with pytest.raises(ConfigError, match="num_heads x head_dim is 128 x 64, expected expand x hidden_size, 4096"):
        read_config(config)


def test_deepseek_ocr2_counts_what_transformers_builds() -> None:
    """3,389,119,360 parameters by transformers 5.23 on meta tensors: SAM, a Qwen2 encoder with queries, the mixture."""
    text = {
        "hidden_size": 1280, "intermediate_size": 6848, "num_hidden_layers": 12, "num_attention_heads": 10, "vocab_size": 129280,
        "num_key_value_heads": 10, "moe_intermediate_size": 896, "n_routed_experts": 64, "n_shared_experts": 2,
        "num_experts_per_tok": 6, "mlp_layer_types": ["dense", *["sparse"] * 11],
    }  # fmt: skip
    seen = {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14}
    encoder = {**seen, "num_key_value_heads": 2}
    config = {"model_type": "deepseek_ocr2", "text_config": text, "vision_config": {"encoder_config": encoder}}
    assert read_config(config).parameters == 3_389_119_360


def test_longt5_with_summaries_counts_what_transformers_builds() -> None:
    """222,913,152 parameters by transformers 5.23: a norm in each layer and a second table of distances."""
    config = {
        "model_type": "longt5", "encoder_attention_type": "transient-global", "d_model": 768, "d_ff": 2048, "num_layers": 12,
        "num_heads": 12, "feed_forward_proj": "gated-gelu", "vocab_size": 32128,
    }  # fmt: skip
    assert read_config(config).parameters == 222_913_152


def test_telechat3_is_a_llama() -> None:
    """TeleChat3-36B-Thinking: the published 36 B; its published config as MLX's copy of it has it."""
    config = {
        "model_type": "telechat3", "architectures": ["Telechat3ForCausalLM"], "hidden_size": 6144, "intermediate_size": 24576,
        "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128, "num_hidden_layers": 64, "vocab_size": 131072,
        "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False,
    }  # fmt: skip
    model = read_config(config)
    assert model.parameters == pytest.approx(36e9, rel=0.01)
    assert model.blocks[0].mixers[0].cache_elements == 2 * 8 * 128
