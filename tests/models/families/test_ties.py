"""Whether the head is the embedding, where the outer and the inner config disagree: as transformers 5.23 builds each class."""

from typing import Any

import pytest

from vramcast.models.families import read_config

TEXT: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
    "vocab_size": 1000,
}  # fmt: skip
OPT: dict[str, Any] = {
    "model_type": "opt", "hidden_size": 64, "ffn_dim": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000,
    "word_embed_proj_dim": 64, "max_position_embeddings": 64,
}  # fmt: skip
AUDIO = {
    "d_model": 64, "hidden_size": 64, "encoder_layers": 2, "num_hidden_layers": 2, "encoder_attention_heads": 4,
    "num_attention_heads": 4, "encoder_ffn_dim": 128, "intermediate_size": 128,
}  # fmt: skip
NEVER = {
    "qwen2_audio": {**TEXT, "model_type": "qwen2"},
    "audioflamingo3": {**TEXT, "model_type": "qwen2"},
    "mllama": {**TEXT, "model_type": "mllama_text_model", "cross_attention_layers": [1]},
}


@pytest.mark.parametrize("kind", NEVER)
@pytest.mark.parametrize("outer", [None, False, True])
def test_classes_that_never_tie(kind: str, outer: bool | None) -> None:
    assert not read_config(
        {"model_type": kind, "text_config": NEVER[kind], "audio_config": AUDIO, "tie_word_embeddings": outer}
    ).tied


@pytest.mark.parametrize(("outer", "inner", "tied"), [(False, None, True), (True, False, False), (None, True, True)])
def test_blip_2_goes_by_its_decoder(outer: bool | None, inner: bool | None, tied: bool) -> None:
    text = {**OPT, "tie_word_embeddings": inner}
    assert read_config({"model_type": "blip-2", "text_config": text, "tie_word_embeddings": outer}).tied == tied
