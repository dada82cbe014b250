"""``train --from FILE``: the file decides, typed flags win, and the answer says which was which."""

import json
from pathlib import Path

import pytest

from vramcast.cli import run

AXOLOTL = """
base_model: meta-llama/Llama-3.1-8B
adapter: qlora
load_in_4bit: true
sequence_len: 4096
micro_batch_size: 2
gradient_accumulation_steps: 4
sample_packing: true
gradient_checkpointing: true
lora_r: 32
lora_target_linear: true
optimizer: paged_adamw_8bit
wandb_project: x
"""
MEGATRON = """
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 11008 \\
  --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights --position-embedding-type rope \\
  --vocab-size 32000 --seq-length 2048 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 64 --bf16 \\
  --tensor-model-parallel-size 2
"""
VERA = '{"peft_type": "VERA", "r": 64, "target_modules": ["q_proj"], "base_model_name_or_path": "Qwen/Qwen2.5-7B-Instruct"}'


def ask(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, text: str, *flags: str) -> dict:
    file = tmp_path / name
    file.write_text(text.lstrip())
    assert run(["train", "--from", str(file), *flags, "--json"]) in (0, 1)
    return json.loads(capsys.readouterr().out)


def test_a_file_is_a_question(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    answer = ask(capsys, tmp_path, "ax.yml", AXOLOTL, "--gpu", "4090")
    asked, recipe = answer["workload"], answer["workload"]["recipe"]
    assert (asked["framework"], asked["method"], asked["seq"], asked["micro_batch"]) == ("axolotl", "qlora", 4096, 2)
    assert (recipe["quant"], recipe["optimizer"], recipe["checkpointing"]) == ("nf4", "paged_adamw_8bit", "full")
    assert asked["trainable_parameters"] == 83_886_080  # rank 32 on every linear layer
    told = {a["name"]: a["because"] for a in answer["assumed"]}
    assert told["adapter.rank"] == "ax.yml: lora_r"
    assert told["no effect on memory"] == "data, schedule, logging, saving"
    assert "unquantized" in told


def test_typed_flags_win(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    asked = ask(capsys, tmp_path, "ax.yml", AXOLOTL, "--micro-batch", "8", "--rank", "16")["workload"]
    assert (asked["micro_batch"], asked["seq"], asked["trainable_parameters"]) == (8, 4096, 41_943_040)


def test_a_script_gives_the_shape_the_layout_and_the_accumulation(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    answer = ask(capsys, tmp_path, "run.sh", MEGATRON, "--gpu", "A100-80G")
    asked = answer["workload"]
    assert answer["model"]["parameters"] == 6_738_415_616
    assert (asked["gpus"], asked["parallel"]["tp"], asked["parallel"]["dp"], asked["accumulate"]) == (8, 2, 4, 16)
    assert asked["recipe"]["sharding"] == "ddp"


def test_a_kind_of_adapter(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    answer = ask(capsys, tmp_path, "adapter_config.json", VERA)
    assert answer["workload"]["method"] == "vera"
    assert answer["workload"]["trainable_parameters"] == 28 * (3584 + 64)


def test_a_wrong_file_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("colour: blue")
    assert run(["train", "--from", str(tmp_path / "x.yaml")]) == 2
    assert "is no training configuration known here" in capsys.readouterr().err
    (tmp_path / "y.yaml").write_text("sequence_len: 128\nmicro_batch_size: 1")
    assert run(["train", "--from", str(tmp_path / "y.yaml")]) == 2
    assert "the files name none" in capsys.readouterr().err


def test_a_training_file_may_stand_where_the_model_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("model_name_or_path: meta-llama/Llama-3.1-8B\nfinetuning_type: lora\ncutoff_len: 1024\ncutof_len: 2048\n")
    assert run(["train", str(file), "--gpu", "H100"]) == 0
    shown = capsys.readouterr().out
    assert "LLaMA-Factory" in shown and "1,024 tokens" in shown
    assert "not modelled: the key cutof_len (did you mean cutoff_len?)" in shown
