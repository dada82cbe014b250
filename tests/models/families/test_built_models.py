"""Families of transformers 5.23: the class's default config counts what transformers builds of it on meta tensors.

The rows are printed by ``python tools/sweep_types.py --rows TYPE ...``; tests/against_transformers sweeps perturbed configs.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from vramcast.models.families import read_config

BUILT = [json.loads(line) for line in Path(__file__).with_name("built_models.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("row", BUILT, ids=lambda row: row["id"])
def test_default_config_counts_what_transformers_built(row: dict[str, Any]) -> None:
    model = read_config(row["config"])
    assert model.parameters == row["parameters"]
    names = [name for name, _ in model.all_tensors()] if row["parameters"] < 3e10 else []
    assert len(names) == len(set(names))
