"""A ``model_type`` under another name: decoders saved alone, copies with a made-up type, code that transformers took in."""

from typing import Any

import pytest

from vramcast.errors import ConfigError, UnmodelledError
from vramcast.models.families import read_config

LLAMA: dict[str, Any] = {
    "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 1000,
    "intermediate_size": 1024, "tie_word_embeddings": False,
}  # fmt: skip


def test_a_made_up_type_is_what_its_architectures_say() -> None:
    copy = read_config({**LLAMA, "model_type": "Our-Bot-V2", "architectures": ["MistralForCausalLM"]})
    assert copy.parameters == read_config({**LLAMA, "model_type": "mistral"}).parameters
    (said,) = [each for each in copy.assumed if each.name == "model_type"]
    assert (said.value, "'Our-Bot-V2' is no known type" in said.because) == ("mistral", True)


def test_code_beside_the_checkpoint_decides_against_architectures() -> None:
    raw = {**LLAMA, "model_type": "ours", "architectures": ["MistralForCausalLM"]}
    with pytest.raises(UnmodelledError, match="model_type 'ours' has no family here"):
        read_config({**raw, "auto_map": {"AutoModelForCausalLM": "modeling_ours.OursForCausalLM"}})


def test_a_decoder_saved_without_its_towers_keeps_its_own_class() -> None:
    """transformers 5.23 builds 3,151,232 and 3,546,496 parameters of these."""
    raw = {**LLAMA, "head_dim": 64, "vocab_size": 500}
    assert (
        read_config({**raw, "model_type": "qwen3_vl_text"}).parameters == read_config({**raw, "model_type": "qwen3"}).parameters
    )
    glm = read_config({**raw, "model_type": "glm_ocr_text", "architectures": ["GlmOcrTextModel"]})
    assert not any(t.role == "head" for t in glm.tensors)


def test_either_sign_between_words_is_the_same_type() -> None:
    raw = {**LLAMA, "max_position_embeddings": 64, "architectures": ["XLMRobertaModel"]}
    assert (
        read_config({**raw, "model_type": "xlm_roberta"}).parameters
        == read_config({**raw, "model_type": "xlm-roberta"}).parameters
    )


def test_a_text_config_may_carry_the_type_of_the_whole() -> None:
    text, seen = {**LLAMA, "head_dim": 64}, {"depth": 1, "hidden_size": 8, "intermediate_size": 16, "out_hidden_size": 512}
    raw = {"model_type": "qwen3_vl", "vision_config": seen}
    named = read_config({**raw, "text_config": {**text, "model_type": "qwen3_vl"}})
    assert named.parameters == read_config({**raw, "text_config": {**text, "model_type": "qwen3_vl_text"}}).parameters


def test_a_whole_model_is_no_text_decoder() -> None:
    with pytest.raises(ConfigError, match="model_type 'qwen2_audio' is a whole model; a text decoder was expected"):
        read_config({"model_type": "qwen3_vl", "text_config": {**LLAMA, "model_type": "qwen2_audio"}})


@pytest.mark.parametrize(
    ("change", "built"),
    [
        ({"num_hidden_layers": 16, "num_key_value_heads": 2}, 118_189_824),
        ({"use_moe": True, "num_hidden_layers": 4, "num_key_value_heads": 4}, 101_666_304),
        ({"hidden_size": 512, "use_moe": True, "num_experts": 6, "head_dim": 48, "num_hidden_layers": 8}, 130_712_832),
    ],
)
def test_minimind_counts_as_its_own_class_builds_it(change: dict[str, Any], built: int) -> None:
    raw = {"model_type": "minimind", "hidden_size": 768, "router_aux_loss_coef": 5e-4, "vocab_size": 6400, **change}
    assert read_config(raw).parameters == built


def test_code_that_nothing_was_held_against_says_so() -> None:
    raw = {**LLAMA, "num_key_value_heads": 8, "model_type": "yuan", "architectures": ["YuanForCausalLM"]}
    assert any("no published weight index and no build" in each for each in read_config(raw).unmodelled)


def test_a_head_of_somebodys_own_is_named_and_not_counted() -> None:
    raw = {"model_type": "hubert", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
    body = read_config({**raw, "architectures": ["HubertModel"]})
    own = read_config({**raw, "architectures": ["HubertForSpeechClassification"]})
    assert own.parameters == body.parameters
    assert any("HubertForSpeechClassification is not known here: counted is HubertModel" in each for each in own.unmodelled)


def test_code_that_builds_another_class_is_named() -> None:
    """jina-embeddings-v3: 572 M by its card, 559 M as the XLM-RoBERTa that its config says it is."""
    raw = {**LLAMA, "model_type": "xlm-roberta", "max_position_embeddings": 64, "architectures": ["XLMRobertaModel"]}
    own = read_config({**raw, "auto_map": {"AutoModel": "jinaai/xlm-roberta-flash--modeling_lora.XLMRobertaLoRA"}})
    assert any("builds XLMRobertaLoRA; counted is XLMRobertaModel" in each for each in own.unmodelled)
    assert not read_config({**raw, "auto_map": {"AutoModel": "modeling.XLMRobertaModel"}}).unmodelled
