"""How files say who shares what, and how a checkpoint is written: from the key to the answer."""

import json
from pathlib import Path

import pytest

from vramcast.cli import run

ACCELERATE = "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 16\nfsdp_config:\n  fsdp_version: 1\n"


def asked(folder: Path, name: str, text: str, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    file = folder / name
    file.write_text(text)
    assert run(["train", "meta-llama/Llama-3.1-8B", "--from", str(file), "--gpu", "H100x16", "--json"]) in (0, 1)
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(
    ("strategy", "reshard"), [("HYBRID_SHARD", True), ("4", True), ("HYBRID_SHARD_ZERO2", False), ("_HYBRID_SHARD_ZERO2", False)]
)
def test_hybrid_strategies_shard_inside_a_node(
    strategy: str, reshard: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = asked(tmp_path, "fsdp.yaml", f"{ACCELERATE}  fsdp_sharding_strategy: {strategy}\n", capsys)["workload"]
    assert isinstance(found, dict)
    assert (found["parallel"]["dp"], found["parallel"]["replicate"]) == (16, 2)
    assert found["recipe"].get("reshard", True) is reshard


@pytest.mark.parametrize(("kind", "saves"), [("FULL_STATE_DICT", "full"), ("SHARDED_STATE_DICT", "sharded")])
def test_a_state_dict_type_is_how_a_checkpoint_is_written(
    kind: str, saves: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = asked(tmp_path, "fsdp.yaml", f"{ACCELERATE}  fsdp_state_dict_type: {kind}\n", capsys)["workload"]
    assert isinstance(found, dict)
    assert found["recipe"]["saves"] == saves


def test_deepspeeds_keys_of_zero_plus_plus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zero = {
        "stage": 3,
        "zero_hpz_partition_size": 8,
        "zero_quantized_weights": True,
        "zero_quantized_gradients": True,
        "sub_group_size": 1e8,
        "stage3_gather_16bit_weights_on_model_save": True,
    }
    found = asked(tmp_path, "ds.json", json.dumps({"bf16": {"enabled": True}, "zero_optimization": zero}), capsys)["workload"]
    assert isinstance(found, dict)
    recipe = found["recipe"]
    assert found["parallel"]["hpz"] == 8
    assert (recipe["quantized_gathers"], recipe["quantized_gradients"], recipe["sub_group"]) == (True, True, 100_000_000)
    assert recipe["saves"] == "full"
