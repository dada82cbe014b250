"""Lists and switches of every family with wrong values in them: an answer or one of our errors, never another exception."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramcast.errors import VramcastError
from vramcast.models.families import read_config
from vramcast.models.families.registry import MODULES

DECODERS = {
    "llama", "mixture", "latent", "stacked", "classic", "gemma_shared", "ling", "deepseek_v4", "minimax_m3", "renamed", "openelm",
}  # fmt: skip

KNOWN = [json.loads(line)["config"] for line in Path(__file__).with_name("known_models.jsonl").read_text().splitlines()]
LISTS = [
    "layer_types", "mlp_layer_types", "moe_layer_freq", "mlp_only_layers", "moe_layers", "moe_layers_enum", "no_rope_layers",
    "num_attention_heads_per_layer", "hybrid_layer_pattern", "compress_ratios", "indexer_types", "index_topk_pattern",
    "attention_types", "attention_layers", "intermediate_size", "block_configs", "sliding_window_pattern", "architectures",
    "sparse_attention_config", "ffn_config", "attn_config", "id2label", "num_experts", "moe_topk", "quantization_config",
]  # fmt: skip
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**12) | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
KINDS = sorted(kind for kind, module in MODULES.items() if module in DECODERS)


@settings(max_examples=300, derandomize=True, deadline=None)
@given(base=st.sampled_from(KNOWN), kind=st.sampled_from(KINDS), wrong=st.dictionaries(st.sampled_from(LISTS), JUNK, max_size=3))
def test_junk_is_answered_or_refused(base: dict, kind: str, wrong: dict) -> None:
    small = {**base, "num_hidden_layers": 4, "n_layer": 4}
    for raw in ({**small, **wrong}, {**small, **wrong, "model_type": kind}):
        try:
            assert read_config(raw).parameters > 0
        except VramcastError as error:
            assert str(error)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mlp_only_layers": [[1]]}, r"mlp_only_layers holds \[1\], expected whole numbers"),
        ({"layer_types": "full_attention"}, "layer_types is 'full_attention', expected a list"),
    ],
)
def test_what_is_said(fields: dict, message: str) -> None:
    qwen = next(config for config in KNOWN if config["model_type"] == "qwen3_moe")
    with pytest.raises(VramcastError, match=message):
        read_config({**qwen, **fields})
