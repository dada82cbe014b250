"""Configs in other words than transformers', and types nobody here knows: read, bounded or refused with what to try."""

import json
from pathlib import Path
from typing import Any

import pytest

from vramcast.errors import QuestionError, UnmodelledError
from vramcast.models.families import read_config
from vramcast.models.sources.described import from_config
from vramcast.models.sources.local import read_path

META_LLAMA_3 = {
    "dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 128256, "multiple_of": 1024,
    "ffn_dim_multiplier": 1.3, "norm_eps": 1e-05, "rope_theta": 500000.0,
}  # fmt: skip
META_LLAMA_2 = {"dim": 8192, "multiple_of": 4096, "ffn_dim_multiplier": 1.3, "n_heads": 64, "n_kv_heads": 8, "n_layers": 80,
                "norm_eps": 1e-05, "vocab_size": -1}  # fmt: skip
MISTRAL_7B = {"dim": 4096, "n_layers": 32, "head_dim": 128, "hidden_dim": 14336, "n_heads": 32, "n_kv_heads": 8,
              "norm_eps": 1e-05, "vocab_size": 32768, "rope_theta": 1000000.0}  # fmt: skip
MIXTRAL = {**MISTRAL_7B, "vocab_size": 32000, "moe": {"num_experts_per_tok": 2, "num_experts": 8}}
PIXTRAL = {
    "dim": 5120, "n_layers": 40, "head_dim": 128, "hidden_dim": 14336, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 131072,
    "vision_encoder": {"hidden_size": 1024, "num_channels": 3, "image_size": 1024, "patch_size": 16, "intermediate_size": 4096,
                       "num_hidden_layers": 24, "num_attention_heads": 16, "rope_theta": 10000.0},
}  # fmt: skip
MAMBA = {"d_model": 2560, "n_layer": 64, "vocab_size": 50277, "ssm_cfg": {}, "rms_norm": True, "pad_vocab_size_multiple": 8}
MAMBA_2 = {"d_model": 2560, "n_layer": 64, "vocab_size": 50288, "ssm_cfg": {"layer": "Mamba2"}, "pad_vocab_size_multiple": 16,
           "tie_embeddings": True, "attn_layer_idx": []}  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "published"),
    [
        (META_LLAMA_3, 8_030_261_248), (META_LLAMA_2, 68_976_648_192), (MISTRAL_7B, 7_248_023_552), (MIXTRAL, 46_702_792_704),
        (PIXTRAL, 12_682_739_712), (MAMBA, 2_768_345_600), (MAMBA_2, 2_702_599_680),
    ],
    ids=["Llama-3-8B", "Llama-2-70B", "Mistral-7B-v0.3", "Mixtral-8x7B", "Pixtral-12B", "mamba-2.8b", "mamba2-2.7b"],
)  # fmt: skip
def test_other_words_count_the_same(raw: dict[str, Any], published: int) -> None:
    assert read_config(raw).parameters == published


def test_a_folder_with_params_json_alone_is_read(tmp_path: Path) -> None:
    (tmp_path / "params.json").write_text(json.dumps(MISTRAL_7B))
    assert read_path(tmp_path).parameters == 7_248_023_552


def test_an_adapters_folder_names_its_base(tmp_path: Path) -> None:
    said = {"base_model_name_or_path": "Qwen/Qwen3-8B", "peft_type": "LORA", "r": 16}
    (tmp_path / "adapter_config.json").write_text(json.dumps(said))
    with pytest.raises(
        QuestionError, match=r"holds an adapter \(LORA, rank 16\) and no model: ask about its base, 'Qwen/Qwen3-8B'"
    ):
        read_path(tmp_path)


def test_a_pipelines_folder_names_its_models(tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "FluxPipeline", "text_encoder": [], "vae": []}))
    (tmp_path / "text_encoder").mkdir()
    (tmp_path / "text_encoder" / "config.json").write_text("{}")
    with pytest.raises(QuestionError, match="a pipeline of several models: name one of its folders, text_encoder"):
        read_path(tmp_path)


def test_a_type_for_each_part_is_that_of_the_rest() -> None:
    raw = {"model_type": "llava", "text_config": {"model_type": "llama"}, "vision_config": {"model_type": "clip_vision_model"}}
    assert read_config({**raw, "dtype": {"": "bfloat16", "vision_config": "float32"}}).dtype == "bfloat16"
    assert read_config({**raw, "dtype": {"text_config": "torch.float16", "vision_config": "float32"}}).dtype == "float16"


UNKNOWN = {
    "model_type": "alpaca9", "architectures": ["Alpaca9ForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "tie_word_embeddings": True,
}  # fmt: skip


def test_an_unknown_type_is_never_guessed_and_is_told_how_to_say_what_it_is_like() -> None:
    with pytest.raises(
        UnmodelledError, match=r"model_type 'alpaca9' has no family here: install the \[torch\] extra.*\"model_type\": \"llama\""
    ):
        from_config(UNKNOWN, name="x", where="config.json")
    assert from_config({**UNKNOWN, "model_type": "llama"}, name="x", where="config.json").layers == 2
