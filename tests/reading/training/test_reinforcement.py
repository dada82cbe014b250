"""Trainers of policies: the actor's own step, not what scores, generates or is evaluated beside it."""

from pathlib import Path
from typing import Any

import pytest

from vramcast.reading.kinds import kinds_of, taken_for
from vramcast.reading.training.files import read_training_files

VERL = """
CUDA_VISIBLE_DEVICES=$(cards) python3 -m verl.trainer.main_ppo data.max_prompt_length=1024 data.max_response_length=3072 \\
    actor_rollout_ref.model.path=org/chat-7b actor_rollout_ref.actor.optim.lr=1e-6 actor_rollout_ref.rollout.n=8 \\
    actor_rollout_ref.actor.ppo_mini_batch_size=64 {micro} actor_rollout_ref.actor.use_kl_loss=True \\
    actor_rollout_ref.rollout.tensor_model_parallel_size=4 actor_rollout_ref.rollout.log_prob_micro_batch_size=128 \\
    critic.ppo_micro_batch_size=3 trainer.n_gpus_per_node=8 trainer.nnodes=2
"""
MEGATRON = """
data: {max_prompt_length: 512, max_response_length: 512}
actor_rollout_ref:
  model: {path: org/chat-7b, enable_gradient_checkpointing: false}
  actor:
    strategy: megatron
    ppo_micro_batch_size: 64
    optim: {lr: 1e-6}
    megatron: {tensor_model_parallel_size: 4, pipeline_model_parallel_size: 1, sequence_parallel: true}
  ref: {megatron: {tensor_model_parallel_size: 2}}
trainer: {n_gpus_per_node: 8, nnodes: 1}
"""
EASY = """
data: {max_prompt_length: 2048, max_response_length: 2048}
worker:
  actor:
    global_batch_size: 128
    micro_batch_size_per_device_for_update: 1
    micro_batch_size_per_device_for_experience: 2
    model: {model_path: org/chat-7b, lora: {rank: 0, target_modules: all-linear}}
    fsdp: {enable_cpu_offload: false}
  rollout: {n: 5, tensor_parallel_size: 2}
trainer: {n_gpus_per_node: 8, nnodes: 1}
"""
ROLES = """
num_gpus_per_node: 8
sequence_length: 8192
pretrain: org/Chat-0.5B-Instruct
actor_train:
  model_args: {disable_gradient_checkpointing: false, dtype: bf16}
  training_args: {learning_rate: 1e-6, per_device_train_batch_size: 2, gradient_accumulation_steps: 64}
  strategy_args: {strategy_name: megatron_train, strategy_config: {tensor_model_parallel_size: 2}}
actor_infer:
  model_args: {disable_gradient_checkpointing: true}
  strategy_args: {strategy_name: vllm, strategy_config: {tensor_parallel_size: 8}}
"""
GENERATOR = """
TP=4
uv run --isolated --extra megatron -m examples.main trainer.policy.model.path="org/Chat-30B-A3B" trainer.strategy=megatron \\
  generator.inference_engine.tensor_parallel_size=8 generator.inference_engine.backend=vllm \\
  generator.inference_engine.run_engines_locally=true trainer.policy.megatron_config.tensor_model_parallel_size=$TP \\
  trainer.micro_train_batch_size_per_gpu=4 trainer.train_batch_size=512 trainer.max_prompt_length=2048 \\
  generator.sampling_params.max_generate_length=8192 trainer.placement.policy_num_gpus_per_node=8 \\
  trainer.placement.policy_num_nodes=2 trainer.policy.optimizer_config.lr=1e-5
"""


def _read(tmp_path: Path, name: str, text: str) -> dict[str, Any]:
    file = tmp_path / name
    file.write_text(text)
    taken = taken_for(kinds_of(file.read_bytes(), name, folder=tmp_path))
    assert taken is not None
    assert taken.command == ("train", "--from")
    return read_training_files((str(file),)).values


@pytest.mark.parametrize(
    ("micro", "expected"),
    [
        ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2", 2),
        ("actor_rollout_ref.actor.ppo_micro_batch_size=64", 4),  # of 16 ranks together
        (
            "actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=12288",
            3,
        ),  # tokens of 4,096
    ],
)
def test_a_micro_batch_of_verl_is_that_of_a_card(tmp_path: Path, micro: str, expected: int) -> None:
    said = _read(tmp_path, "run.sh", VERL.format(micro=micro))
    assert said["micro_batch"] == expected
    assert (said["model"], said["seq"], said["gpus"], said["framework"]) == ("org/chat-7b", 4096, 16, "verl")
    assert "parallel.tp" not in said
    assert "options.frozen_copies" not in said  # workers/fsdp_workers.py: FSDP keeps the reference on the host


def test_an_actor_of_megatron_has_the_layout_of_its_own_section(tmp_path: Path) -> None:
    said = _read(tmp_path, "ppo.yaml", MEGATRON + "algorithm: {use_kl_in_reward: true}\n")
    assert said["options.frozen_copies"] == 1  # the model that the divergence is measured from
    assert (said["framework"], said["parallel.tp"], said["parallel.sp"], said["micro_batch"]) == ("megatron", 4, True, 32)


def test_a_rank_of_zero_trains_every_weight(tmp_path: Path) -> None:
    said = _read(tmp_path, "config.yaml", EASY)
    assert "method" not in said
    assert "adapter.targets" not in said
    assert (said["micro_batch"], said["accumulate"], said["seq"]) == (1, 80, 4096)


def test_roles_that_generate_say_nothing_of_the_step(tmp_path: Path) -> None:
    said = _read(tmp_path, "roles.yaml", ROLES)
    assert (said["checkpointing"], said["parallel.tp"], said["framework"], said["compute_dtype"]) == (
        "full",
        2,
        "megatron",
        "bfloat16",
    )


def test_an_engine_named_by_a_key_is_no_launch(tmp_path: Path) -> None:
    said = _read(tmp_path, "run.sh", GENERATOR)
    assert (said["parallel.tp"], said["seq"], said["gpus"], said["micro_batch"]) == (4, 10240, 16, 4)
