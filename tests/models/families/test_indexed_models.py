"""Classes of remote code hold what the weight index beside a published checkpoint states, byte for byte."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from vramcast.errors import ConfigError, UnmodelledError
from vramcast.models.families import read_config
from vramcast.models.quantization import scheme_for, weight_bytes

ROWS = [msgspec.json.decode(line) for line in Path(__file__).with_name("indexed_models.jsonl").read_bytes().splitlines()]
PLAMO2: dict[str, Any] = {
    "model_type": "plamo2", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 1,
    "hidden_size_per_head": 128, "mamba_d_state": 64, "mamba_d_conv": 4, "mamba_num_heads": 32, "mamba_step": 2,
    "intermediate_size": 8192, "vocab_size": 100000, "tie_word_embeddings": True,
}  # fmt: skip
PLAMO: dict[str, Any] = {
    "model_type": "plamo", "hidden_size": 5120, "intermediate_size": 16640, "n_shared_head": 8, "num_attention_heads": 40,
    "num_hidden_layers": 40, "vocab_size": 50432, "tie_word_embeddings": False,
}  # fmt: skip
OLMO: dict[str, Any] = {
    "model_type": "hf_olmo", "d_model": 4096, "n_heads": 32, "n_layers": 32, "mlp_hidden_size": 22016, "vocab_size": 50280,
    "embedding_size": 50304, "weight_tying": False, "rope": True, "layer_norm_with_affine": False,
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_the_index_states_the_bytes(row: dict[str, Any]) -> None:
    model = read_config(row["config"])
    assert weight_bytes(model, scheme_for(model)) == row["index_bytes"]


def test_plamo_by_its_card_and_by_hand() -> None:
    """PLaMo-13B is 13.1 B by its card; PLaMo 2 by hand: 8 Mamba layers, 8 of attention, an MLP and four norms in each."""
    assert round(read_config(PLAMO).parameters / 1e8) == 131
    mamba = 2048 * 8192 + 4096 * 4 + 4096 * (128 + 128) + 128 * 32 + 3 * 32 + 128 + 2 * 64 + 4096 * 2048
    attention = 2048 * (16 + 2) * 128 + 2048 * 2048 + 17 * 128
    each = 3 * 2048 * 8192 + 4 * 2048
    model = read_config(PLAMO2)
    assert model.parameters == 8 * (mamba + attention) + 16 * each + 100_000 * 2048 + 2048
    assert not model.unmodelled


def test_plamo_3_reads_windows_as_a_list() -> None:
    raw = {**PLAMO2, "model_type": "plamo3", "head_dim": 128, "sliding_window": [2048, None] * 8}
    assert {block.mixers[0].window: block.count for block in read_config(raw).blocks} == {2048: 8, 0: 8}


def test_the_first_olmo_has_the_count_of_its_later_form() -> None:
    assert read_config(OLMO).parameters == 6_888_095_744


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({**OLMO, "block_type": "llama"}, UnmodelledError, "block_type is 'llama'; known is sequential"),
        ({**ROWS[0]["config"], "vision_encoder": "eva02"}, UnmodelledError, "vision_encoder 'eva02' has no rule"),
        ({**ROWS[1]["config"], "version": "late"}, ConfigError, "version is 'late', expected a number"),
    ],
)
def test_what_was_never_seen_is_refused(change: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        read_config(change)


JINA: dict[str, Any] = {
    "model_type": "bert", "architectures": ["JinaBertModel"], "feed_forward_type": "geglu", "position_embedding_type": "alibi",
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 30528,
}  # fmt: skip
JAIS: dict[str, Any] = {
    "model_type": "jais", "activation_function": "swiglu", "n_embd": 5120, "n_layer": 40, "n_head": 40, "n_inner": 13653,
    "vocab_size": 84992, "n_positions": 2048,
}  # fmt: skip
FLORENCE: dict[str, Any] = {
    "model_type": "florence2", "architectures": ["Florence2ForConditionalGeneration"], "projection_dim": 1024,
    "text_config": {
        "vocab_size": 51289, "d_model": 1024, "encoder_layers": 12, "encoder_ffn_dim": 4096, "encoder_attention_heads": 16,
        "decoder_layers": 12, "decoder_ffn_dim": 4096, "decoder_attention_heads": 16, "max_position_embeddings": 1024,
    },
    "vision_config": {
        "model_type": "davit", "patch_size": [7, 3, 3, 3], "patch_prenorm": [False, True, True, True],
        "dim_embed": [256, 512, 1024, 2048], "num_heads": [8, 16, 32, 64], "num_groups": [8, 16, 32, 64],
        "depths": [1, 1, 9, 1], "projection_dim": 1024, "image_pos_embed": {"max_pos_embeddings": 50},
    },
}  # fmt: skip


@pytest.mark.parametrize(("raw", "count"), [(JINA, 137_368_320), (FLORENCE, 770_173_952)], ids=["jina", "florence2"])
def test_published_counts(raw: dict[str, Any], count: int) -> None:
    """Hub's count of jina-embeddings-v2-base-en; 0.77 B by Florence-2's card, and as transformers builds its later form."""
    assert read_config(raw).parameters == count


def test_jais_by_hand() -> None:
    """ALiBi has no table of positions; SwiGLU has a second projection into the MLP."""
    layer = 4 * 5120 * 5120 + 4 * 5120 + 3 * 5120 * 13653 + 2 * 13653 + 5120 + 4 * 5120
    assert read_config(JAIS).parameters == 40 * layer + 84992 * 5120 + 2 * 5120


@pytest.mark.parametrize(
    ("raw", "layer"),
    [
        ({"model_type": "transformer", "num_heads": 16}, 4 * 1024 * 1024),
        ({"model_type": "gla", "num_heads": 4}, 1024 * (512 * 2 + 1024 * 3) + 16 * 1024 + 512 * 17 + 256),
        ({"model_type": "delta_net", "num_heads": 8}, 4 * 1024 * 1024 + 1024 * 8 + 3 * 4 * 1024 + 128),
        ({"model_type": "gsa", "num_heads": 4, "elementwise_affine": False}, 4 * 1024 * 1024 + 1024 * 256),
        ({"model_type": "hgrn2", "num_heads": 8}, 4 * 1024 * 1024 + 1024 + 1024),
        (
            {"model_type": "gated_deltanet", "head_dim": 256, "num_heads": 6},
            1024 * (1536 * 2 + 3072 * 3 + 12) + 4 * (1536 * 2 + 3072) + 12 + 512,
        ),
    ],
    ids=lambda each: each["model_type"] if isinstance(each, dict) else "",
)
def test_flash_linear_attention_by_hand(raw: dict[str, Any], layer: int) -> None:
    """A mixer, an MLP of 2,816, two norms, in 24 layers; HGRN 2 has one lower bound for each channel of each layer."""
    model = read_config({"hidden_size": 1024, "num_hidden_layers": 24, "vocab_size": 32000, **raw})
    assert model.parameters == 24 * (layer + 3 * 1024 * 2816 + 2 * 1024) + 2 * 32000 * 1024 + 1024
    assert model.unmodelled


def test_another_transformer_is_not_taken_for_the_librarys() -> None:
    with pytest.raises(ConfigError, match="has no num_heads"):
        read_config({"model_type": "transformer", "hidden_size": 512, "vocab_size": 100})


def test_maira_2_by_its_card() -> None:
    """6.88 B by its card: DINOv2-base, four projections, Vicuna with 207 words more."""
    seen = {
        "model_type": "dinov2", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "image_size": 518,
        "patch_size": 14, "mlp_ratio": 4, "qkv_bias": True, "num_channels": 3, "use_swiglu_ffn": False,
    }  # fmt: skip
    text = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32}
    text |= {"num_attention_heads": 32, "vocab_size": 32207}
    model = read_config({"model_type": "maira2", "projector_n_layers": 4, "vision_config": seen, "text_config": text})
    assert model.parameters == 6_880_185_600
