"""Embedding, reward and draft models under a decoder's model_type."""

from typing import Any

import pytest

from vramcast.errors import UnmodelledError
from vramcast.models.families import read_config

MISTRAL: dict[str, Any] = {
    "model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 32000,
}  # fmt: skip


def test_an_embedding_model_has_no_head() -> None:
    assert read_config({**MISTRAL, "architectures": ["MistralModel"]}).parameters == 7_110_660_096  # intfloat/e5-mistral-7b


def test_an_untied_gpt2_keeps_its_head() -> None:
    raw = {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "vocab_size": 50257}
    untied = read_config({**raw, "tie_word_embeddings": False, "architectures": ["GPT2LMHeadModel"]})
    assert untied.parameters == 124_439_808 + 768 * 50257


def test_a_reward_model_scores_its_labels() -> None:
    raw = {**MISTRAL, "architectures": ["MistralForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
    assert read_config(raw).parameters == 7_110_660_096 + 4096


def test_a_token_classifier_has_biases() -> None:
    raw = {**MISTRAL, "architectures": ["MistralForTokenClassification"], "num_labels": 9}
    assert read_config(raw).parameters == 7_110_660_096 + 9 * 4097


def test_an_unknown_draft_model_is_refused() -> None:
    with pytest.raises(UnmodelledError, match="DFlashQwen3ForCausalLM is a draft model beside 'llama'"):
        read_config({**MISTRAL, "model_type": "llama", "architectures": ["DFlashQwen3ForCausalLM"]})


LLAMA_8B = {**MISTRAL, "model_type": "llama", "num_hidden_layers": 1, "num_key_value_heads": 8, "vocab_size": 128256}


def test_eagle_3_reads_the_embedding_beside_three_states() -> None:
    """yuhuili/EAGLE3-LLaMA3.1-Instruct-8B: 850 MB in bfloat16, no embedding in the file."""
    model = read_config({**LLAMA_8B, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 32000})
    layer = 2 * 4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336 + 3 * 4096
    assert model.parameters == layer + 3 * 4096 * 4096 + 32000 * 4096 + 4096
    assert model.unmodelled == ("a draft head: the embedding is the target's",)
    assert sum(mixer.cache_elements for block in model.blocks for mixer in block.mixers) == 2 * 8 * 128


def test_eagle_1_stores_the_embedding() -> None:
    model = read_config({**LLAMA_8B, "architectures": ["EagleLlamaForCausalLM"]})
    layer = 4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336 + 4096
    assert model.parameters == 128256 * 4096 + layer + 2 * 4096 * 4096 + 4096


def test_medusas_heads() -> None:
    model = read_config(
        {"model_type": "medusa", "hidden_size": 4096, "vocab_size": 32000, "num_heads": 5, "num_hidden_layers": 1}
    )
    assert model.parameters == 5 * (4096 * 4096 + 32000 * 4096)


def test_a_config_without_model_type_is_known_by_its_class() -> None:
    raw = {**{k: v for k, v in MISTRAL.items() if k != "model_type"}, "architectures": ["MistralForCausalLM"]}
    assert read_config(raw).parameters == 7_241_732_096
