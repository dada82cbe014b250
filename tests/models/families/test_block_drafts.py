"""Drafts that write a block of tokens: what they add to Qwen3's layers, counted by hand from SpecForge's modules."""

from typing import Any

import pytest

from vramcast.errors import ConfigError, UnmodelledError
from vramcast.models.families import read_config

# What z-lab/Qwen3-8B-DFlash-b16 says of its sizes.
DFLASH: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288,
    "num_hidden_layers": 5, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
    "dtype": "bfloat16", "dflash_config": {"target_layer_ids": [1, 9, 17, 25, 33]},
}  # fmt: skip
LAYER = 2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 4096 * 12288 + 2 * 4096 + 2 * 128
DFLASH_PARAMETERS = 5 * LAYER + 5 * 4096 * 4096 + 2 * 4096


def test_dflash_has_neither_embedding_nor_head() -> None:
    model = read_config(DFLASH)
    assert model.parameters == DFLASH_PARAMETERS == 1_048_626_432
    assert not [t for t in model.tensors if t.role in ("embedding", "head")]
    assert any("a draft" in note for note in model.unmodelled)


def test_states_of_as_many_layers_as_it_has_when_it_names_none() -> None:
    assert read_config({**DFLASH, "dflash_config": None}).parameters == DFLASH_PARAMETERS


def _with(name: str, **own: Any) -> dict[str, Any]:
    return {**DFLASH, "architectures": [name], "dflash_config": {**DFLASH["dflash_config"], **own}}


@pytest.mark.parametrize(
    ("kind", "joined"),
    [("vanilla", 0), ("gated", 256 * (4096 + 256) + 256), ("rnn", 3 * 256 * (2 * 256 + 4096) + 3 * 256)],
)
def test_dspark_has_a_bias_of_low_rank_and_says_how_sure_it_is(kind: str, joined: int) -> None:
    raw = _with("DSparkDraftModel", markov_rank=256, markov_head_type=kind, confidence_head_alpha=1.0)
    assert read_config(raw).parameters == DFLASH_PARAMETERS + 2 * 151936 * 256 + joined + 4096 + 1


def test_dspark_of_an_unknown_head_is_refused() -> None:
    with pytest.raises(ConfigError, match="markov_head_type is 'deep', expected vanilla, gated, rnn"):
        read_config(_with("DSparkDraftModel", markov_rank=256, markov_head_type="deep"))


def test_domino_follows_its_block_with_a_recurrent_layer() -> None:
    added = 3 * 1024 * (4096 + 1024) + 256 * (4096 + 1024) + 151936 * 256
    assert read_config(_with("DominoDraftModel", emb_dim=256, gru_hidden_dim=1024)).parameters == DFLASH_PARAMETERS + added


def test_a_draft_of_another_kind_is_not_taken_for_the_model_it_borrows_from() -> None:
    with pytest.raises(UnmodelledError, match="QwenDFlareDraftModel is a draft model beside 'qwen3'"):
        read_config({**DFLASH, "architectures": ["QwenDFlareDraftModel"]})
