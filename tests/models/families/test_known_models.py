"""Well-known models from the few fields that decide them: exact parameters, active and stored ones, cache per token.

The facts are our own extract; the same models are held against transformers and the checkpoints in tests/against_*.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from vramcast.models.config import Config
from vramcast.models.families import read_config, read_text
from vramcast.models.sharding import cut, share

KNOWN = [json.loads(line) for line in Path(__file__).with_name("known_models.jsonl").read_text().splitlines()]
BY_ID = {row["id"]: row["config"] for row in KNOWN}


@pytest.mark.parametrize("row", KNOWN, ids=lambda row: row["id"])
def test_counts(row: dict[str, Any]) -> None:
    model = read_config(row["config"])
    cache = sum(b.count * sum(m.cache_elements for m in b.mixers) for b in model.blocks)
    assert (model.parameters, model.active_parameters, model.stored_parameters, cache) == (
        row["parameters"], row["active"], row["stored"], row["cache_elements"],
    )  # fmt: skip


@pytest.mark.parametrize("row", KNOWN, ids=lambda row: row["id"])
def test_every_tensor_is_written_out_once(row: dict[str, Any]) -> None:
    model = read_config({**row["config"], "num_hidden_layers": 4} if "num_hidden_layers" in row["config"] else row["config"])
    names = [name for name, _ in model.all_tensors()]
    assert len(names) == len(set(names))
    assert not any("{}" in name for name in names)


@pytest.mark.parametrize("row", KNOWN, ids=lambda row: row["id"])
def test_tensor_parallel_shares_cover_the_model(row: dict[str, Any]) -> None:
    """Two ranks hold at least the whole model, and not the whole model each."""
    blocks = read_config(row["config"]).blocks
    whole = sum(t.elements * b.count for b in blocks for t in b.tensors)
    half = sum(share(t, cut(2)) * b.count for b in blocks for t in b.tensors)
    assert whole / 2 <= half < whole * 0.62


def test_a_nested_text_config_is_named_under_its_prefix_and_takes_its_class_defaults() -> None:
    """LLaVA-1.5 writes its text config as a difference from Llama's class."""
    nested = Config({"model_type": "llama", "vocab_size": 32064, "max_position_embeddings": 4096}, "config.json: text_config")
    model = read_text(nested, prefix="language_model.model.")
    assert model.parameters == 6_738_939_904
    names = {name for name, _ in model.all_tensors()}
    assert {"language_model.model.layers.31.mlp.up_proj.weight", "language_model.lm_head.weight"} <= names


def test_an_architecture_decides_where_the_model_type_is_another() -> None:
    glm = {**BY_ID["zai-org/GLM-4.5"], "model_type": "glm", "architectures": ["Glm4MoeForCausalLM"]}
    assert read_config(glm).parameters == 352_797_814_784


def test_draft_layers_are_stored_not_loaded() -> None:
    model = read_config(BY_ID["deepseek-ai/DeepSeek-V3"])
    draft = model.towers[0]
    assert (draft.kind, draft.stored_only, draft.blocks[0].indices) == ("mtp", True, (61,))
    assert model.stored_parameters - model.parameters == draft.elements == 13_463_426_048
