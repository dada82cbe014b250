"""Programs, objectives and switches are told by what runs, not by names that happen to stand in a file."""

from pathlib import Path

import pytest

from vramcast.reading.shell.slurm import job_of
from vramcast.reading.training.files import read_training_text
from vramcast.reading.training.starting import program_run, starts_training


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("torchrun --nproc_per_node 8 train.py --fsdp full_shard --dataset_path data/open_instruct/tulu.jsonl", ""),
        ("git clone https://github.com/PrimeIntellect-ai/prime-rl", ""),
        ("pip install -e prime-rl", ""),
        ("/opt/prime-rl/bin/python train.py", ""),
        ("vllm serve org/M --served-model-name prime-rl/x --chat-template /opt/open_instruct/t.jinja", ""),
        ("deepspeed --module openrlhf.cli.train_sft --max_len 512", "openrlhf"),
        ("ray job submit --address=h -- python3 -m openrlhf.cli.train_ppo_ray", "openrlhf"),
        ("python -m torch.distributed.run --nproc_per_node 8 open_instruct/finetune.py --lr 1", "open_instruct"),
        ("accelerate launch --config_file a.yaml open_instruct/finetune.py", "open_instruct"),
        ("uv run examples/run_grpo_math.py --config a.yaml", "nemo_rl"),
    ],
)
def test_a_program_is_what_a_command_runs(command: str, program: str) -> None:
    assert program_run(command.split()) == program


def test_a_path_of_another_program_changes_nothing() -> None:
    flags = "--model_name_or_path org/chat-8b --per_device_train_batch_size 2 --max_length 512 --bf16 True --fsdp full_shard"
    said = read_training_text(f"torchrun --nproc_per_node 8 train.py {flags} --dataset_path data/open_instruct/tulu.jsonl")
    assert (said.get("gpus"), said.get("zero")) == (8, None)
    assert said.get("fsdp")
    assert starts_training("git clone https://x/prime-rl\nvllm serve org/M --max-model-len 64\n") == ""


@pytest.mark.parametrize("named", ["run_name='orpo-baseline'", "output_dir='out/qwen3-dpo-baseline'"])
def test_a_programs_own_trainer_stands_over_the_name_of_a_run(named: str) -> None:
    text = f"from transformers import Trainer, TrainingArguments\nTrainingArguments(per_device_train_batch_size=2, {named})\n"
    said = read_training_text(text)
    assert said.get("options.task") is None
    assert said.get("framework") != "trl"


def test_what_stands_below_a_section_that_is_off_is_off() -> None:
    text = Path(__file__).with_name("switched.yaml").read_text()
    said = read_training_text(text)
    assert said.get("framework") == "megatron"
    assert said.get("adapter.on") is None
    assert "policy.dtensor_cfg.lora_cfg.enabled (switched off)" in said.idle
    assert read_training_text(text.replace("enabled: false", "enabled: true", 1)).get("adapter.rank") == 32


@pytest.mark.parametrize(
    ("header", "nodes", "cards"),
    [
        ("--nodes=2 --ntasks-per-node=1\n#SBATCH --gres=lscratch:100,gpu:a100:4", 2, 8),
        ("--nodes=2\n#SBATCH --gres=gpu:a100:4,tmpdisk:200", 2, 8),
        ("--ntasks=16 --gpus-per-task=1", 0, 16),
        ("--nodes=2 --ntasks-per-node=4 --gpus-per-task=a100:1", 2, 8),
        ("-N2\n#SBATCH --gpus-per-node a100:4", 2, 8),
        ("-N 2 --gres=lscratch:100", 2, 0),
        ("-N 4 --gres=gpu", 4, 4),
    ],
)
def test_cards_that_a_job_asks_for(header: str, nodes: int, cards: int) -> None:
    job = job_of(f"#!/bin/bash\n#SBATCH {header}\n")
    assert (job.nodes, job.all_cards) == (nodes, cards)


_PPO = "ray job submit -- python3 -m openrlhf.cli.train_ppo_ray --pretrain org/chat-8b --micro_train_batch_size 1"
_ROLL = """
pretrain: org/chat-8b
response_length: 3072
{prompt}
actor_train:
  training_args: {{per_device_train_batch_size: 1}}
  strategy_args: {{strategy_name: deepspeed_train, strategy_config: "${{{config}}}"}}
  device_mapping: list(range(0,16,2))
actor_infer: {{strategy_args: {{strategy_name: vllm}}}}
"""


def test_a_length_of_one_part_has_the_other_by_default_or_is_told() -> None:
    assert read_training_text(f"{_PPO} --prompt_max_len 512").get("seq") == 1536
    assert read_training_text(f"{_PPO} --max_len 4096").get("seq") == 4096
    said = read_training_text(_ROLL.format(prompt="", config="deepspeed_zero3"))
    assert said.get("seq") == 3072
    assert any(line.startswith("the longest prompt, which is not said") for line in said.unread)


@pytest.mark.parametrize(("config", "stage"), [("deepspeed_zero3", 3), ("deepspeed_zero2", 2), ("deepspeed_own", None)])
def test_a_stage_that_only_a_placeholder_names(config: str, stage: int | None) -> None:
    said = read_training_text(_ROLL.format(prompt="prompt_length: 1024", config=config))
    assert (said.get("zero"), said.get("seq"), said.get("gpus")) == (stage, 4096, 8)
    assert bool(said.missing) is (stage is None)


@pytest.mark.parametrize(("name", "optimizer", "told"), [("lionw", "lion", False), ("own_adam_9", None, True)])
def test_an_optimizer_of_a_programs_own_refuses_no_file(name: str, optimizer: str | None, told: bool) -> None:
    text = "model: {d_model: 64, n_heads: 4, n_layers: 2, max_sequence_length: 512, block_type: sequential}\n"
    text += f"optimizer: {{name: {name}}}\nglobal_train_batch_size: 8\ndevice_train_microbatch_size: 2\nsave_folder: x\n"
    said = read_training_text(text)
    assert said.get("optimizer") == optimizer
    assert any(name in line for line in said.unread) is told


@pytest.mark.parametrize(("more", "told"), [("", True), ("--moe-pad-expert-input-to-capacity", False)])
def test_a_capacity_that_only_drops_tokens_is_told(more: str, told: bool) -> None:
    flags = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --micro-batch-size 1 --num-experts 8"
    said = read_training_text(f"python pretrain_gpt.py {flags} --moe-expert-capacity-factor 0.5 {more}\n")
    assert any(line.startswith("moe_expert_capacity_factor") for line in said.unread) is told
