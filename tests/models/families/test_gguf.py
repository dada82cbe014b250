"""GGUF metadata is read into the same Model as the config.json it was converted from."""

import pytest

from vramcast.errors import ConfigError, QuestionError
from vramcast.models.families.gguf import config_of, read_metadata
from vramcast.models.families.gguf_architectures import ARCHITECTURES

LLAMA_3_8B = {
    "general.architecture": "llama", "general.name": "Meta Llama 3.1 8B", "llama.block_count": "32",
    "llama.context_length": "131072", "llama.embedding_length": "4096", "llama.feed_forward_length": "14336",
    "llama.attention.head_count": "32", "llama.attention.head_count_kv": "8", "llama.vocab_size": "128256",
}  # fmt: skip


def test_log_text_gives_the_exact_model() -> None:
    model = read_metadata(LLAMA_3_8B)
    assert (model.parameters, model.layers, model.id) == (8_030_261_248, 32, "Meta Llama 3.1 8B")


def test_a_file_without_output_weight_is_tied() -> None:
    assert read_metadata(LLAMA_3_8B, tied=True).parameters == 8_030_261_248 - 128256 * 4096


def test_the_tokenizer_gives_the_vocabulary_when_no_key_does() -> None:
    metadata = {k: v for k, v in LLAMA_3_8B.items() if k != "llama.vocab_size"}
    assert read_metadata(metadata | {"tokenizer.ggml.tokens": ["a"] * 320}).vocab == 320


def test_latent_attention_is_read_from_either_generation_of_keys() -> None:
    old = {"attention.key_length": 192, "attention.value_length": 128}
    new = {"attention.key_length": 576, "attention.value_length": 512, "attention.key_length_mla": 192} | {
        "attention.value_length_mla": 128
    }
    both = []
    for lengths in (old, new):
        base = {"block_count": 61, "embedding_length": 7168, "attention.head_count": 128, "rope.dimension_count": 64}
        keys = base | lengths | {"attention.kv_lora_rank": 512, "attention.q_lora_rank": 1536, "expert_count": 256}
        raw = config_of({"general.architecture": "deepseek2", **{f"deepseek2.{k}": v for k, v in keys.items()}})
        both.append((raw["qk_nope_head_dim"], raw["qk_rope_head_dim"], raw["v_head_dim"], raw["n_routed_experts"]))
    assert both[0] == both[1] == (128, 64, 128, 256)


def test_nemotron_h_layers_are_told_apart_by_their_per_layer_counts() -> None:
    keys = {"block_count": 4, "embedding_length": 8, "attention.head_count": 4, "attention.head_count_kv": [0, 2, 0, 0]} | {
        "feed_forward_length": [0, 0, 32, 0], "ssm.inner_size": 16, "ssm.time_step_rank": 4, "ssm.state_size": 8,
        "ssm.conv_kernel": 4, "ssm.group_count": 2,
    }  # fmt: skip
    raw = config_of({"general.architecture": "nemotron_h", **{f"nemotron_h.{k}": v for k, v in keys.items()}})
    assert raw["hybrid_override_pattern"] == "M*-M"


def test_a_searched_models_layers_come_from_per_layer_counts() -> None:
    keys = {"block_count": 3, "embedding_length": 64, "attention.head_count": [8, 0, 8], "attention.head_count_kv": [2, 0, 0]} | {
        "feed_forward_length": [128, 256, 0], "attention.key_length": 8, "vocab_size": 100,
    }  # fmt: skip
    model = read_metadata({"general.architecture": "deci", **{f"deci.{k}": v for k, v in keys.items()}}, tied=True)
    attention, mlps, linear = 2 * 64 * 64 + 2 * 64 * 16, 3 * 64 * (128 + 256), 64 * 64
    assert model.parameters == attention + mlps + linear + 4 * 64 + 64 + 100 * 64


SIZES = {
    "block_count": 8, "embedding_length": 256, "feed_forward_length": 512, "attention.head_count": 8,
    "attention.head_count_kv": 4, "attention.key_length": 32, "attention.value_length": 32, "context_length": 2048,
    "expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 64, "expert_shared_feed_forward_length": 64,
    "expert_shared_count": 1, "leading_dense_block_count": 1, "attention.sliding_window": 128, "rope.dimension_count": 16,
    "attention.kv_lora_rank": 32, "attention.q_lora_rank": 48, "attention.shared_kv_layers": 2,
    "attention.indexer.head_count": 4, "wkv.head_size": 32, "attention.indexer.key_length": 16,
    "attention.indexer.top_k": 64, "decoder_block_count": 8, "ssm.state_size": 16, "attention.relative_buckets_count": 32,
    "ssm.conv_kernel": 4, "ssm.inner_size": 512, "ssm.time_step_rank": 16, "ssm.group_count": 2, "shortconv.l_cache": 3,
    "interleave_moe_layer_step": 1,
}  # fmt: skip


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_reads_a_header_of_its_own(name: str) -> None:
    model = read_metadata({"general.architecture": name, **{f"{name}.{k}": v for k, v in SIZES.items()}}, tied=False, vocab=1000)
    assert (model.layers, model.hidden, model.vocab) == (8, 256, 1000)


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"general.architecture": "lama"}, "unknown GGUF architecture 'lama': did you mean"),
        ({"general.architecture": "deepseek2"}, "GGUF metadata has no deepseek2.rope.dimension_count"),
        ({**LLAMA_3_8B, "llama.block_count": "-3"}, "num_hidden_layers is -3, expected 1"),
    ],
)
def test_bad_headers_are_explained(metadata: dict, said: str) -> None:
    with pytest.raises((ConfigError, QuestionError), match=said.replace("(", "\\(")):
        read_metadata(metadata)
