"""Classes of remote code that engines have of their own: Step 3, dots.ocr, SDAR, LLaDA 2."""

from typing import Any

import pytest

from vramcast.errors import ConfigError
from vramcast.models.families import read_config

# What stepfun-ai/step3 says of its decoder; 316 B parameters, 38 B of them active, by its report (arXiv 2507.19427).
STEP3: dict[str, Any] = {
    "model_type": "step3_text", "hidden_size": 7168, "intermediate_size": 18432, "num_attention_heads": 64,
    "num_attention_groups": 1, "num_hidden_layers": 61, "vocab_size": 128815, "moe_intermediate_size": 5120,
    "moe_num_experts": 48, "moe_top_k": 3, "share_expert_dim": 5120, "share_q_dim": 2048, "head_dim": 256,
    "moe_layers_enum": ",".join(map(str, range(4, 60))),
}  # fmt: skip
DOTS: dict[str, Any] = {
    "model_type": "dots_ocr", "architectures": ["DotsOCRForCausalLM"], "hidden_size": 1536, "intermediate_size": 8960,
    "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2, "vocab_size": 151936, "attention_bias": True,
    "vision_config": {"embed_dim": 1536, "intermediate_size": 4224, "num_hidden_layers": 42, "num_attention_heads": 12},
}  # fmt: skip


def test_step_3_counts_what_its_report_says() -> None:
    model = read_config(STEP3)
    assert round(model.parameters / 1e9) == 316
    assert round(model.active_parameters / 1e9) == 39
    assert {b.mixers[0].cache_elements for b in model.blocks} == {512}
    factored = 7168 * 2048 + 2048 + 2048 * 64 * 256
    shared = 2 * 7168 * 256 + 64 * 256 * 7168 + 2 * 7168
    dense, mixed = 3 * 7168 * 18432, 49 * 3 * 7168 * 5120 + 48 * 7168
    assert model.parameters == 61 * (factored + shared) + 5 * dense + 56 * mixed + 2 * 128815 * 7168 + 7168


def test_step_3_without_a_tower_says_which_it_was_given() -> None:
    whole = read_config({"model_type": "step3_vl", "text_config": STEP3})
    assert [a.name for a in whole.assumed] == ["vision_config"]
    assert whole.parameters > read_config(STEP3).parameters


def test_words_for_layers_are_refused() -> None:
    with pytest.raises(ConfigError, match="moe_layers_enum holds 'many', expected whole numbers"):
        read_config({**STEP3, "moe_layers_enum": "4,many"})


def test_dots_ocr_by_hand() -> None:
    layer = 4 * 1536 * 1536 + 3 * 1536 * 4224 + 2 * 1536
    tower = 42 * layer + 1536 * 3 * 14 * 14 + 3 * 1536 + 2 * 1536 + 6144 * 6145 + 1536 * 6145
    text = read_config({**{n: v for n, v in DOTS.items() if n != "vision_config"}, "model_type": "qwen2", "architectures": None})
    assert read_config(DOTS).parameters == text.parameters + tower


@pytest.mark.parametrize(("kind", "like"), [("sdar", "qwen3"), ("sdar_moe", "qwen3_moe"), ("llada2_moe", "bailing_moe_v2")])
def test_diffusion_copies_have_the_layers_of_what_they_were_made_from(kind: str, like: str) -> None:
    raw = {
        "hidden_size": 64, "intermediate_size": 128, "moe_intermediate_size": 32, "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 1000, "num_experts": 4, "num_experts_per_tok": 2,
        "num_shared_experts": 1, "first_k_dense_replace": 1,
    }  # fmt: skip
    assert read_config({**raw, "model_type": kind}).parameters == read_config({**raw, "model_type": like}).parameters
