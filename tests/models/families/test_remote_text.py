"""Decoders of code beside their checkpoints hold as many elements as mlx-lm 0.32.2 builds of the same config."""

from typing import Any

import pytest

from vramcast.models.families import read_config
from vramcast.models.layers import Attention, LinearAttention

SMALL: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
    "tie_word_embeddings": False,
}  # fmt: skip
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
RING = {
    **SMALL, **EXPERTS, "model_type": "bailing_moe_linear", "num_attention_heads": 8, "num_hidden_layers": 10, "num_experts": 8,
    "num_shared_experts": 2, "first_k_dense_replace": 1, "layer_group_size": 4, "use_qk_norm": True,
    "moe_router_enable_expert_bias": True,
}  # fmt: skip
M1 = {
    **SMALL, "model_type": "baichuan_m1", "num_hidden_layers": 4, "sliding_window": 16, "sliding_window_layers": [1, 3],
    "conv_window": 2, "num_swa_attention_heads": 8, "num_swa_key_value_heads": 4,
}  # fmt: skip
SPARK = {
    **SMALL, "model_type": "spark2_5", "num_hidden_layers": 8, "num_attention_heads": 8, "head_dim": 16, "sliding_window": 32,
    "tie_word_embeddings": True,
}  # fmt: skip
KLEAR = {
    **SMALL, **EXPERTS, "model_type": "Klear", "num_hidden_layers": 3, "mlp_only_layers": [0], "num_experts": 4,
    "n_shared_experts": 2,
}  # fmt: skip
PLAMO3 = {
    **SMALL, "model_type": "plamo3", "num_hidden_layers": 4, "head_dim": 16, "sliding_window": [32, None, 32, None],
}  # fmt: skip
PLAMO = {**SMALL, "model_type": "plamo", "n_shared_head": 4, "num_attention_heads": 8, "num_hidden_layers": 3}
HUNYUAN = {
    **SMALL, "model_type": "hunyuan", "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4, "vocab_size": 1000,
    "moe_topk": 2, "num_experts": 2, "use_cla": True, "cla_share_factor": 2, "tie_word_embeddings": True,
}  # fmt: skip
LOOP = {**SMALL, "model_type": "iquestloopcoder", "num_hidden_layers": 3, "head_dim": 32, "attention_bias": True}


@pytest.mark.parametrize(
    ("raw", "built"),
    [
        (RING, 754_600),
        (M1, 136_304),
        (SPARK, 322_880),
        (KLEAR, 143_148),
        (LOOP, 143_628),
        (PLAMO3, 136_896),
        (PLAMO, 99_072),
        (HUNYUAN, 1_473_920),
    ],
    ids=lambda each: each["model_type"] if isinstance(each, dict) else "",
)
def test_as_many_elements_as_mlx_lm_builds(raw: dict[str, Any], built: int) -> None:
    assert sum(tensor.elements for _, tensor in read_config(raw).all_tensors()) == built


def test_layers_keep_what_they_attend_to() -> None:
    ring = [mixer for block in read_config(RING).layer_list() for mixer in block.mixers]
    assert [isinstance(mixer, LinearAttention) for mixer in ring] == [i not in (3, 7, 8, 9) for i in range(10)]
    slides = [(mixer.window, mixer.kv_heads) for block in read_config(M1).layer_list() for mixer in block.mixers
              if isinstance(mixer, Attention)]  # fmt: skip
    assert slides == [(0, 2), (16, 4)] * 2
    assert [block.shares_cache for block in read_config(HUNYUAN).layer_list()] == [False, True, False, True]
    spark = [mixer.window for block in read_config(SPARK).layer_list() for mixer in block.mixers if isinstance(mixer, Attention)]
    assert spark == [32, 32, 32, 0] * 2


def test_a_loop_says_that_its_later_cache_is_not_counted() -> None:
    assert any("keeps the last tokens of its own" in each for each in read_config(LOOP).unmodelled)


def test_minicpm_o_listens_and_does_not_count_what_it_speaks_with() -> None:
    seen = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 28}
    heard = {"d_model": 32, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 128}
    raw = {
        **SMALL,
        "model_type": "minicpmo",
        "version": "2.6",
        "num_hidden_layers": 2,
        "vision_config": {**seen, "patch_size": 14},
    }
    both = read_config({**raw, "audio_config": heard})
    assert [tower.kind for tower in both.towers] == ["vision", "audio", "projector"]
    assert any("speaks with" in each for each in both.unmodelled)
    mute = read_config({**raw, "audio_config": heard, "init_tts": False, "init_audio": False})
    assert ([tower.kind for tower in mute.towers], mute.unmodelled) == (["vision"], ())
