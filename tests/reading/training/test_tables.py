"""Programs recorded as tables: the trained model's own step, its roles beside it, and defaults that their sources set."""

from pathlib import Path
from typing import Any

import pytest

from vramcast.reading.kinds import kinds_of, taken_for
from vramcast.reading.training.files import read_training_files
from vramcast.reading.training.formats import formats, rules_of
from vramcast.reading.training.tables import MEANINGS, tables

OPENRLHF = """
MODEL=org/chat-4b
ray job submit --address=http://127.0.0.1:8265 -- python3 -m openrlhf.cli.train_ppo_ray \\
   --pretrain ${MODEL} --actor_num_nodes 2 --actor_num_gpus_per_node 4 --vllm_num_engines 4 --vllm_gpu_memory_utilization 0.6 \\
   --colocate_all_models --micro_train_batch_size 2 --train_batch_size 64 --prompt_max_len 1024 --generate_max_len 3072 \\
   --zero_stage 3 --ring_attn_size 2 --gradient_checkpointing --use_kl_loss --critic_pretrain org/other-9b
"""
DOTTED = """
python3 -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path org/chat-4b --data.max_len 8192 --ds.zero_stage 2 \\
   --train.micro_batch_size 1 --train.batch_size 128 --ds.adam_offload --vllm.enable_sleep --vllm.num_engines 8
"""
SLIME = """
ARGS=(--hf-checkpoint /ckpt/Qwen3-8B --actor-num-nodes 1 --actor-num-gpus-per-node 8 --tensor-model-parallel-size 2
  --use-dynamic-batch-size --max-tokens-per-gpu 9216 --rollout-max-response-len 8192 --num-rollout 30 --global-batch-size 256
  --rollout-num-gpus-per-engine 2 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1)
ray job submit -- python3 train.py --colocate ${MODEL_ARGS[@]} ${ARGS[@]}
"""
NEMO_RL = """
policy:
  model_name: org/chat-1b
  train_global_batch_size: 512
  train_micro_batch_size: 4
  max_total_sequence_length: 2048
  precision: bfloat16
  dtensor_cfg: {enabled: true, tensor_parallel_size: 2, activation_checkpointing: true, lora_cfg: {enabled: false, dim: 8}}
  megatron_cfg: {enabled: false, tensor_model_parallel_size: 8, pipeline_model_parallel_size: 4}
  generation: {backend: vllm, vllm_cfg: {gpu_memory_utilization: 0.6, tensor_parallel_size: 4}}
cluster: {gpus_per_node: 8, num_nodes: 2}
"""
ROLL = """
pretrain: org/chat-30b
prompt_length: 2048
response_length: 4096
num_gpus_per_node: 16
actor_train:
  training_args: {per_device_train_batch_size: 1, gradient_accumulation_steps: 32}
  strategy_args:
    strategy_name: megatron_train
    strategy_config: {pipeline_model_parallel_size: 2, virtual_pipeline_model_parallel_size: 4, use_distributed_optimizer: true}
  device_mapping: list(range(0,32))
actor_infer:
  strategy_args: {strategy_name: sglang, strategy_config: {tensor_parallel_size: 8}}
  device_mapping: list(range(32,48))
"""
AREAL = """
allocation_mode: sglang:d4t1+fsdp:d2t2
cluster: {n_nodes: 1, n_gpus_per_node: 8}
gconfig: {n_samples: 4, max_new_tokens: 3072}
actor: {path: org/chat-1b, dtype: bfloat16, gradient_checkpointing: true, mb_spec: {max_tokens_per_mb: 8192}, kl_ctl: 0.0}
train_dataset: {batch_size: 256, max_length: 1024}
"""
PRIME = """
seq_len = 4096
[model]
name = "org/chat-1b"
[trainer.model]
cp = 2
[trainer.model.ac]
freq = 1
[trainer.model.lora]
rank = 32
[orchestrator]
batch_size = 512
[deployment]
num_train_gpus = 4
"""
RL2 = """
torchrun --nproc_per_node=8 -m RL2.trainer.ppo train_data.path=a/b train_data.prompts_per_rollout=128 \\
  actor.model_name=org/chat-1b \\
  actor.sp_size=2 actor.max_length_per_device=8192 rollout.train_sampling_params.max_new_tokens=4096 trainer.project=x
"""
INSTRUCT = """
python mason.py --num_nodes 2 --gpus 8 -- python open_instruct/grpo_fast.py --model_name_or_path org/chat-7b \\
   --pack_length 16384 \\
   --num_unique_prompts_rollout 64 --num_learners_per_node 4 8 --deepspeed_stage 2 --per_device_train_batch_size 1 --beta 0.0
"""


def _read(folder: Path, name: str, text: str) -> tuple[dict[str, Any], list[str]]:
    file = folder / name
    file.write_text(text)
    taken = taken_for(kinds_of(file.read_bytes(), name, folder=folder))
    assert taken is not None
    assert taken.command == ("train", "--from")
    settings = read_training_files((str(file),))
    return settings.values, settings.unread


@pytest.mark.parametrize(
    ("name", "text", "expected", "unread"),
    [
        (
            "a.sh",
            OPENRLHF,
            {"framework": "openrlhf", "micro_batch": 2, "global_batch": 64, "seq": 4096, "gpus": 8, "zero": 3, "parallel.cp": 2,
             "checkpointing": "full", "options.frozen_copies": 1, "options.tenant": 0.6},
            [],
        ),
        (
            "b.sh",
            DOTTED,
            {"framework": "openrlhf", "model": "org/chat-4b", "seq": 8192, "zero": 2, "micro_batch": 1, "offload": ["optimizer"],
             "checkpointing": "none", "options.tenant": None},
            [],
        ),
        (
            "c.sh",
            SLIME,
            {"framework": "megatron", "parallel.tp": 2, "seq": 8192, "micro_batch": 1, "gpus": 8, "optimizer.distributed": True,
             "checkpointing": "full"},
            ["${MODEL_ARGS} (flags that another file holds)"],
        ),
        (
            "d.yaml",
            NEMO_RL,
            {"framework": "nemo_rl", "parallel.tp": 2, "parallel.pp": None, "adapter.rank": None, "seq": 2048, "gpus": 16,
             "checkpointing": "full", "micro_batch": 4, "options.tenant": None},
            [],
        ),
        (
            "e.yaml",
            ROLL,
            {"framework": "megatron", "seq": 6144, "gpus": 32, "parallel.pp": 2, "parallel.vpp": 4, "accumulate": 32,
             "parallel.tp": None},
            [],
        ),
        (
            "f.yaml",
            AREAL,
            {"framework": "pytorch", "fsdp": 2, "parallel.tp": 2, "gpus": 4, "seq": 4096, "micro_batch": 2,
             "param_dtype": "bfloat16", "method": None, "checkpointing": "full"},
            [],
        ),
        (
            "g.toml",
            PRIME,
            {"framework": "prime_rl", "seq": 4096, "parallel.cp": 2, "checkpointing": "full", "adapter.rank": 32, "gpus": 4,
             "adapter.targets": ("all-linear",)},
            [],
        ),
        ("h.sh", RL2, {"model": "org/chat-1b", "fsdp": 2, "parallel.cp": 2, "gpus": 8, "seq": 4096, "micro_batch": 2}, []),
        (
            "i.sh",
            INSTRUCT,
            {"framework": "hf_trainer", "seq": 16384, "gpus": 12, "zero": 2, "options.frozen_copies": None},
            [],
        ),
    ],
)  # fmt: skip
def test_the_step_of_a_recorded_program(
    tmp_path: Path, name: str, text: str, expected: dict[str, Any], unread: list[str]
) -> None:
    said, left = _read(tmp_path, name, text)
    assert {key: said.get(key) for key in expected} == expected
    assert left == unread


def test_roles_are_told_one_by_one(tmp_path: Path) -> None:
    said, _ = _read(tmp_path, "a.sh", OPENRLHF)
    told = said["roles"]
    assert "a reference on its cards is counted" in told
    assert "an engine that claims 60% of the same cards is counted" in told
    assert "a critic is not" in told


def test_cards_of_an_engine_apart_are_not_the_actors(tmp_path: Path) -> None:
    apart = "colocated: {enabled: false, resources: {gpus_per_node: 4, num_nodes: 1}}"
    said, _ = _read(tmp_path, "a.yaml", NEMO_RL.replace("{backend: vllm,", "{backend: vllm, " + apart + ","))
    assert said["gpus"] == 12
    assert "the engine of the rollouts has cards of its own and is not" in said["roles"]


def test_every_table_names_its_source_and_what_its_keys_set() -> None:
    assert set(tables()) <= set(formats())
    for name, table in tables().items():
        assert table.source, name
        assert set(table.keys) <= set(MEANINGS), name
        assert rules_of(name).SIGNATURE, name
        keys = [key for line in table.keys.values() for key in line.split()]
        assert len(keys) == len(set(keys)), name
