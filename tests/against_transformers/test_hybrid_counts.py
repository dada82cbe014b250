"""Every config of the corpus outside the text families: hybrids, encoders, models that see or hear."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from loaded import summary
from test_parameter_counts import TEXT_MODULES, config_of, rows

from vramcast.models.config import Config
from vramcast.models.families import kind_of, read_config
from vramcast.models.families.registry import MODULES

pytestmark = pytest.mark.shared

# Rows whose count is of something else than the config at hand, with the reason.
OTHER = {
    "stepfun-ai/Step-3.7-Flash": "transformers ignores the flat fields and counts its class's vocabulary of 128,815, not 128,896",
    "Qwen/Qwen3-ASR-0.6B": "transformers 5.23 ignores thinker_config and counts its class's default of 2.0 billion",
}

# Published element counts of checkpoints whose code is not in transformers (or whose config it reads differently).
PUBLISHED = {
    "OpenGVLab/InternVL2-2B": 2_205_754_368,
    "OpenGVLab/InternVL2-4B": 4_146_855_936,
    "openbmb/MiniCPM-V-2_6": 8_099_175_152,
    "openbmb/MiniCPM-V-4": 4_059_533_040,
    "allenai/Molmo-7B-D-0924": 8_021_025_280,
    "microsoft/Phi-3.5-vision-instruct": 4_146_621_440,
    "Qwen/Qwen-VL-Chat": 9_656_935_168,
    "THUDM/cogvlm2-llama3-caption": 12_507_532_544 - 2_048,  # rotary frequencies are stored with each layer
}


def other_rows() -> list[dict[str, Any]]:
    folder = Path(os.environ.get("VRAMCAST_SHARED", Path(__file__).parents[3] / "shared"))
    return [r for r in rows() if MODULES.get(kind_of(Config(config_of(folder, r["model_id"])))) not in TEXT_MODULES]


@pytest.mark.parametrize("row", other_rows(), ids=lambda row: row["model_id"])
def test_equals_transformers(row: dict[str, Any], shared: Path) -> None:
    if row["model_id"] in OTHER:
        pytest.skip(OTHER[row["model_id"]])
    ours = summary(read_config(config_of(shared, row["model_id"])))
    assert ours["trainable"] == row["params_trainable_unique"]
    assert ours["frozen"] == row["params_frozen_unique"]
    if "params_non_text" in row:
        assert not_text(config_of(shared, row["model_id"])) == row["params_non_text"]


def not_text(raw: dict[str, Any]) -> int:
    """Parameters of towers that see or hear, with their projectors (Kimi's is not among those counted)."""
    counted = ("vision", "audio", "projector")
    return sum(t.elements for t in read_config(raw).towers if t.kind in counted and t.name != "mm_projector.")


@pytest.mark.parametrize("model_id", PUBLISHED)
def test_remote_code_equals_what_was_published(model_id: str, shared: Path) -> None:
    assert read_config(config_of(shared, model_id)).parameters == PUBLISHED[model_id]


@pytest.mark.parametrize("model_id", ["Efficient-Large-Model/VILA1.5-3b", "THUDM/chatglm3-6b", "OpenGVLab/InternVL2-2B"])
def test_whole_models_that_are_called_models_keep_their_head(model_id: str, shared: Path) -> None:
    raw = config_of(shared, model_id)
    assert raw["architectures"][0].endswith("Model")
    assert any(tensor.role == "head" for tensor in read_config(raw).tensors)


def test_every_config_is_read_or_left_out_with_a_reason(shared: Path) -> None:
    folders = sorted(p.parent for p in (shared / "models").glob("*/config.json"))
    unread = {f.name for f in folders if not _read(json.loads((f / "config.json").read_text()))}
    assert not unread


def _read(raw: dict[str, Any]) -> bool:
    try:
        return read_config(raw).parameters > 0
    except Exception:
        return False
