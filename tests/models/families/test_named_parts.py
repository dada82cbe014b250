"""Models whose decoder stands in a checkpoint of its own, and others that were refused: published sizes of each."""

import json
from pathlib import Path
from typing import Any

import pytest

from vramcast.errors import ConfigError, NamedElsewhereError, UnmodelledError
from vramcast.models.families import read_config
from vramcast.models.inventory import Tower
from vramcast.models.reading import read_model

WHISPER: dict[str, Any] = {
    "model_type": "whisper", "d_model": 1280, "encoder_layers": 32, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120,
    "num_mel_bins": 128, "max_source_positions": 1500,
}  # fmt: skip
ULTRAVOX: dict[str, Any] = {
    "architectures": ["UltravoxModel"], "model_type": "ultravox", "audio_config": WHISPER, "hidden_size": 4096,
    "projector_act": "swiglu", "projector_ln_mid": True, "stack_factor": 8, "text_model_id": "meta-llama/Llama-3.1-8B-Instruct",
    "torch_dtype": "bfloat16",
}  # fmt: skip
SIZE_OF_ITS_FILE = 1_374_682_344
MOONDREAM: dict[str, Any] = {
    "architectures": ["HfMoondream"], "model_type": "moondream1", "config": {}, "torch_dtype": "bfloat16",
}  # fmt: skip
ASSISTANT: dict[str, Any] = {
    "architectures": ["Gemma4AssistantForCausalLM"], "model_type": "gemma4_assistant", "backbone_hidden_size": 5376,
    "tie_word_embeddings": True, "dtype": "bfloat16",
    "text_config": {
        "model_type": "gemma4_text", "num_hidden_layers": 4, "vocab_size": 262144, "hidden_size_per_layer_input": 0,
        "vocab_size_per_layer_input": 0, "sliding_window": 512, "head_dim": 256, "global_head_dim": 512, "hidden_size": 1024,
        "layer_types": [*["sliding_attention"] * 3, "full_attention"], "intermediate_size": 8192, "num_attention_heads": 32,
        "num_key_value_heads": 16, "num_global_key_value_heads": 4, "attention_k_eq_v": True,
    },
}  # fmt: skip

MING: dict[str, Any] = {
    "architectures": ["BailingMMNativeForConditionalGeneration"], "model_type": "bailingmm", "mlp_depth": 2,
    "torch_dtype": "float32", "talker_config": {"vocab_size": 184445},
    "llm_config": {
        "model_type": "bailing_moe", "hidden_size": 2048, "head_dim": 128, "intermediate_size": 5632, "num_hidden_layers": 28,
        "moe_intermediate_size": 1408, "multi_gate": True, "num_attention_heads": 16, "num_key_value_heads": 4,
        "num_experts": 64, "num_experts_per_tok": 6, "num_shared_experts": 2, "vocab_size": 126464, "norm_topk_prob": True,
    },
    "vision_config": {
        "depth": 32, "hidden_size": 1280, "intermediate_size": 3456, "num_heads": 16, "in_channels": 3, "out_hidden_size": 8192,
        "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2, "window_size": 112,
    },
    "audio_config": {
        "audio_encoder_output_size": 512, "ds_kernel_size": 1,
        "audio_encoder_config_sanm": {
            "attention_heads": 4, "input_size": 560, "kernel_size": 11, "linear_units": 2048, "num_blocks": 50,
            "output_size": 512,
        },
    },
    "whisper_config": {
        "ds_kernel_size": 3,
        "whisper_encoder_config": {"n_ctx": 15000, "n_head": 20, "n_layer": 32, "n_mels": 128, "n_state": 1280},
    },
}  # fmt: skip


def _elements(tower: Tower) -> int:
    return sum(t.elements for t in tower.tensors) + sum(t.elements * b.count for b in tower.blocks for t in b.tensors)


def _file(folder: Path, raw: dict[str, Any]) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(raw))
    return str(path)


def test_ultravox_is_the_named_decoder_with_what_its_file_holds(tmp_path: Path) -> None:
    """fixie-ai/ultravox-v0_6-llama-3_1-8b: one file of encoder and projector, whose header is smaller than 64 KiB."""
    model, text = read_model(_file(tmp_path, ULTRAVOX)), read_model("meta-llama/Llama-3.1-8B-Instruct")
    heard = sum(map(_elements, model.towers))
    assert 0 < SIZE_OF_ITS_FILE - 2 * heard < 2**16
    assert model.parameters == text.parameters + heard
    assert (model.family, model.text_class, [t.kind for t in model.towers]) == ("ultravox", "llama", ["audio", "projector"])


def test_ultravox_says_which_decoder_it_lacks_where_no_checkpoint_can_be_looked_up() -> None:
    with pytest.raises(NamedElsewhereError, match=r"meta-llama/Llama-3\.1-8B-Instruct, a checkpoint of its own"):
        read_config(ULTRAVOX)


def test_ultravox_of_a_nested_decoder_counts_the_norm_where_it_stands() -> None:
    text = {"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 1, "num_attention_heads": 8, "vocab_size": 100}
    raw = {**ULTRAVOX, "text_model_id": None, "text_config": {**text, "intermediate_size": 64}}
    middle, last = read_config(raw), read_config({**raw, "projector_ln_mid": False})
    assert middle.parameters - last.parameters == 2048 - 512


def test_moondream_2_has_the_published_count_though_its_config_is_empty() -> None:
    model = read_config(MOONDREAM)
    assert model.parameters == 1_927_237_104
    assert [tower.kind for tower in model.towers] == ["vision", "projector"]
    assert model.blocks[0].mixers[0].cache_elements == 2 * 2048


def test_moondream_reads_what_a_smaller_one_says() -> None:
    config = {
        "text": {"dim": 1024, "ff_dim": 4096, "n_heads": 16},
        "vision": {"enc_dim": 720, "enc_ff_dim": 2690, "enc_n_heads": 10, "proj_out_dim": 1024},
        "region": {"dim": 1024},
    }
    assert read_config({**MOONDREAM, "config": config}).parameters == 631_889_382


@pytest.mark.parametrize("kind", ["gemma4_assistant", "gemma4_unified_assistant"])
def test_gemma_4_s_assistant_keeps_no_cache_of_its_own(kind: str) -> None:
    """469,518,592 parameters, "0.5 B" for the 31B; as transformers 5.23 builds it once its check of shared layers is passed."""
    text = {**ASSISTANT["text_config"], "model_type": kind.replace("assistant", "text")}
    model = read_config({**ASSISTANT, "model_type": kind, "text_config": text})
    assert model.parameters == 469_518_592
    assert all(block.shares_cache for block in model.blocks)
    assert any("of the model it drafts for" in note for note in model.unmodelled)


def test_an_ordered_vocabulary_is_scored_by_clusters() -> None:
    more = read_config({**ASSISTANT, "use_ordered_embeddings": True, "num_centroids": 2048})
    assert more.parameters - read_config(ASSISTANT).parameters == 2048 * 1024


def test_a_gemma_4_that_drafts_for_nobody_needs_a_layer_that_writes_a_cache() -> None:
    text = {**ASSISTANT["text_config"], "num_kv_shared_layers": 4}
    with pytest.raises(ConfigError, match="a cache nobody writes"):
        read_config({"model_type": "gemma4", "text_config": text})


def test_eagle_3_vl_is_no_draft() -> None:
    seen = {"model_type": "siglip2_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_attention_heads": 16,
            "num_hidden_layers": 27, "num_patches": 256, "patch_size": 14, "num_channels": 3}  # fmt: skip
    text = {"model_type": "qwen3", "head_dim": 128, "hidden_size": 2048, "intermediate_size": 6144, "num_attention_heads": 16,
            "num_hidden_layers": 28, "num_key_value_heads": 8, "tie_word_embeddings": True, "vocab_size": 151680}  # fmt: skip
    raw = {
        "architectures": ["Eagle3_VLForConditionalGeneration"],
        "model_type": "eagle_3_vl",
        "vision_config": seen,
        "text_config": text,
    }
    joined = read_config(raw)
    decoder = read_config({**text, "architectures": ["Qwen3ForCausalLM"]})
    projector = 2 * 4608 + 4608 * 2048 + 2048 + 2048 * 2048 + 2048
    assert joined.parameters == decoder.parameters + _elements(joined.towers[0]) + projector == 2_161_376_192


def test_qwen_s_first_class_is_known_without_its_type() -> None:
    raw = {"architectures": ["QWenLMHeadModel"], "n_embd": 256, "n_head": 2, "n_layer": 2, "ffn_hidden_size": 1024,
           "kv_channels": 128, "vocab_size": 151936, "no_bias": True, "seq_length": 2048}  # fmt: skip
    assert (read_config(raw).family, read_config(raw).parameters) == ("qwen", 79_104_768)


def test_a_draft_of_speculators_keeps_its_layer_s_sizes_apart() -> None:
    layer = {"model_type": "llama", "hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 1, "head_dim": 256,
             "num_attention_heads": 32, "num_key_value_heads": 16, "vocab_size": 262144}  # fmt: skip
    raw = {"architectures": ["Eagle3DraftModel"], "draft_vocab_size": 32000, "speculators_model_type": "eagle3"}
    nested = read_config({**raw, "target_hidden_size": None, "transformer_layer_config": layer})
    flat = read_config({**layer, **raw, "model_type": "llama"})
    assert nested.parameters == flat.parameters == 825_775_104


def test_ming_lite_omni_is_its_index_but_for_the_talker() -> None:
    """76,219,321,216 bytes in float32: Qwen2's 24 layers, both ends, two projections, Whisper's stored positions."""
    talker = 24 * 14_912_384 + 896 + 2 * 184_445 * 896 + (2048 * 896 + 896) + (192 * 896 + 896)
    model = read_config(MING)
    assert 4 * (model.parameters + 15_000 * 1280 + talker) == 76_219_321_216
    assert [tower.kind for tower in model.towers] == ["vision", "projector", "audio", "projector", "audio", "projector"]
    assert any("talker" in note for note in model.unmodelled)
    gates = [t.name for t in model.blocks[0].tensors if t.role == "router"]
    assert {"mlp.image_gate.weight", "mlp.audio_gate.weight"} < set(gates)
    alone = {name: value for name, value in MING.items() if name not in ("audio_config", "whisper_config", "talker_config")}
    assert (len(read_config(alone).towers), read_config(alone).unmodelled) == (2, ())


def test_ming_univision_is_refused_for_what_its_config_does_not_say() -> None:
    with pytest.raises(UnmodelledError, match="what Ming-UniVision draws images with"):
        read_config({**MING, "auto_map": {"AutoConfig": "configuration_bailingmm.MingUniVisionConfig"}})
