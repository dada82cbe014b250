"""Files of programs without a table of their own: read by the names that training programs share, and nothing else's."""

import json
from pathlib import Path
from typing import Any

import pytest

from vramcast.errors import QuestionError
from vramcast.reading.kinds import kinds_of, taken_for
from vramcast.reading.training import shared
from vramcast.reading.training.files import read_training_files
from vramcast.reading.training.settings import Settings

SECTIONS = """
model: {name: org/Model-8B, lora: {rank: 16}, ac: {freq: 1}}
data: {micro_batch_size: 2, seq_len: 4096}
parallelism: {tp: 2, pp: 1}
optim: {lr: 1e-5}
generation: {max_length: 99, tensor_parallel_size: 8}
reward_model: {path: org/Other-70B, micro_batch_size: 64}
"""
INSIDE = """
work_group: w
modules:
  trainer:
    overrides: {micro_batch_size: 4, global_batch_size: 32, seq_length: 8192, tensor_model_parallel_size: 2}
"""
CONFIG_MAP = """
kind: ConfigMap
metadata: {namespace: "{{ .Release.Namespace }}"}
data:
  training.yaml: |
    training_config:
      QuantizationConfig: {load_in_4bit: true}
      LoraConfig: {r: 8}
      TrainingArguments: {per_device_train_batch_size: 1, output_dir: /x}
"""
HYDRA = """
python3 -m verl.trainer.main_ppo data.max_prompt_length=512 data.max_response_length=1024 data.train_batch_size=1024 \\
    actor_rollout_ref.model.path=org/chat-7b actor_rollout_ref.model.enable_gradient_checkpointing=True \\
    actor_rollout_ref.actor.optim.lr=1e-6 actor_rollout_ref.rollout.tensor_model_parallel_size=4 \\
    critic.model.path=org/critic-7b trainer.n_gpus_per_node=8 trainer.nnodes=2
"""
MLX = """
model: models/Some-2.4B
num_layers: -1
lora_parameters: {rank: 16}
optimizer: adamw
learning_rate: 1e-4
max_seq_length: 1024
batch_size: 2
iters: 600
grad_checkpoint: true
"""
POINTED = """
model: {name_or_path: org/Olmo-7B, dtype: bfloat16}
training: {per_device_train_batch_size: 8, effective_batch_size: 32, learning_rate: 2e-5, gradient_checkpointing: true}
deepspeed: {config_path: configs/zero2.yaml}
slurm: {num_nodes: 2, gpus_per_node: 4}
"""
STRATEGY = """
trainer: {devices: 32, max_steps: 9}
distributed_strategy: {tensor_model_parallel_size: 8, pipeline_model_parallel_size: 1, sequence_parallel: true}
data: {micro_batch_size: 1, global_batch_size: 64}
model: {encoder_seq_length: 4096, num_layers: 32, hidden_size: 4096, num_attention_heads: 32}
"""
FIELDS = """
from dataclasses import dataclass
@dataclass
class PPOExpConfig(Base):
    zero_stage: int = 3
    pretrain: str = "org/Base-7B"
    micro_train_batch_size: int = 1
    max_len: int = 8192
    learning_rate: float = 1e-6
    gradient_checkpointing: bool = True
"""
LOOP = """
import lightning as L
batch_size = 128
micro_batch_size = 4
gradient_accumulation_iters = batch_size // micro_batch_size
max_seq_length = 256
learning_rate = 3e-4
lora_r = 8
fabric = L.Fabric(devices=2, precision="bf16-true")
fabric.backward(loss)
"""


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.yaml", SECTIONS, {"model": "org/Model-8B", "adapter.rank": 16, "micro_batch": 2, "seq": 4096, "parallel.tp": 2,
                              "checkpointing": "full"}),
        ("b.yaml", INSIDE, {"micro_batch": 4, "global_batch": 32, "seq": 8192, "parallel.tp": 2, "framework": "megatron"}),
        ("c.yaml", CONFIG_MAP, {"quant": "nf4", "adapter.rank": 8, "micro_batch": 1, "method": "qlora"}),
        ("d.sh", HYDRA, {"seq": 1536, "model": "org/chat-7b", "checkpointing": "full", "gpus": 16, "parallel.tp": None}),
        ("e.py", LOOP, {"micro_batch": 4, "accumulate": 32, "seq": 256, "adapter.rank": 8, "param_dtype": "bfloat16"}),
        ("h.yaml", MLX, {"model": "models/Some-2.4B", "adapter.rank": 16, "seq": 1024, "micro_batch": 2, "checkpointing": "full",
                         "shape.layers": None}),
        ("i.yaml", POINTED, {"zero": 2, "micro_batch": 8, "global_batch": 32, "gpus": 8}),
        ("j.yaml", STRATEGY, {"parallel.tp": 8, "parallel.pp": 1, "parallel.sp": True, "seq": 4096}),
        ("k.py", FIELDS, {"zero": 3, "model": "org/Base-7B", "micro_batch": 1, "seq": 8192, "checkpointing": "full"}),
        ("l.py", "def train(cutoff_len: int = 256):\n    args = SentenceTransformerTrainingArguments("
         "per_device_train_batch_size=4, fp16=True)\n", {"seq": 256, "micro_batch": 4, "compute_dtype": "float16"}),
        ("f.yaml", "model_name_or_path: a/b\nuse_qlora: true\nlora_rank: 4\nmax_seq_length: 512\n"
         "per_device_train_batch_size: 1\n", {"quant": "nf4", "adapter.rank": 4}),
        ("g.sh", "python train.py --model_name_or_path a/b --source_max_len 16 --target_max_len 512 --output_dir x "
         "--per_device_train_batch_size $8\n", {"seq": 528, "micro_batch": None}),
    ],
)  # fmt: skip
def test_what_is_read(tmp_path: Path, name: str, text: str, expected: dict[str, Any]) -> None:
    (tmp_path / name).write_text(text)
    settings = read_training_files((str(tmp_path / name),))
    assert {key: settings.get(key) for key in expected} == expected
    kind = taken_for(kinds_of(text.encode(), name))
    assert kind is not None
    assert kind.command == ("train", "--from")


@pytest.mark.parametrize(
    ("key", "target"),
    [
        ("train_batch_size_per_device", "micro_batch"), ("trainer.local_bs_per_gpu_batch", "micro_batch"),
        ("total_train_batch", "global_batch"), ("grad_acc", "accumulate"), ("accum_iters", "accumulate"),
        ("max_context_len", "seq"), ("lora_adapter_rank", "adapter.rank"), ("mesh.tensor_parallel_dim", "parallel.tp"),
        ("num_devices", "cards.all"), ("gpus_per_host", "cards.each"), ("eval_batch_size_per_device", None),
        ("log_prob_micro_batch_size_per_gpu", None), ("reduce_bucket_size", None), ("context_parallel_comm", "parallel.cp"),
        ("min_seq_len", None), ("device", None), ("batch_first", None), ("tensorboard_dir", None), ("pipeline", None),
        ("expert_dropout", None), ("checkpoint_path", None), ("image_seq_length", None),
    ],
)  # fmt: skip
def test_names_put_together_alike(key: str, target: str | None) -> None:
    rule = shared.rule_of(key)
    assert (rule[0] if isinstance(rule, tuple) else rule) == target


def test_the_rest_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SECTIONS)
    unread = read_training_files((str(tmp_path / "a.yaml"),)).unread
    assert len(unread) == 1
    assert "generation.max_length" in unread[0]


@pytest.mark.parametrize(
    "keys",
    [
        {"max_model_len": 4096, "tensor_parallel_size": 2, "batch_size": 8},
        {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "max_position_embeddings": 9},
        {"eval.micro_batch_size": 4, "eval.lr": 3, "eval.max_steps": 3},
        {"lr": 1.0, "max_steps": 9, "weight_decay": 0.1},
    ],
)
def test_what_is_no_training(keys: dict[str, Any]) -> None:
    assert shared.marks(keys) < shared.FEWEST


def test_a_value_that_the_shared_name_cannot_have_is_left_unread(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SECTIONS.replace("seq_len: 4096", "seq_len: the longest"))
    settings = read_training_files((str(tmp_path / "a.yaml"),))
    assert settings.get("seq") is None
    assert "data.seq_len" in settings.unread[0]


def test_a_file_without_a_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("lr: 1\nmax_steps: 4\nweight_decay: 0\nother: 3\n")
    with pytest.raises(QuestionError, match="is no training configuration known here"):
        read_training_files((str(tmp_path / "a.yaml"),))


@pytest.mark.parametrize(
    ("key", "value", "target", "count"),
    [
        ("gpus", "0,1,2,3", "cards.all", 4), ("gpus", 8, "cards.all", 8), ("gpus", "0,", "cards.all", 1),
        ("gpus", -1, "cards.all", None), ("trainer.gpus", 8, "cards.each", 8), ("trainer.devices", "0,1", "cards.each", 2),
    ],
)  # fmt: skip
def test_a_list_of_devices_is_counted(key: str, value: object, target: str, count: int | None) -> None:
    rule = shared.rule_of(key)
    assert isinstance(rule, tuple) and rule[0] == target
    assert rule[1](value) == count


def _read(folder: Path, keys: dict[str, Any]) -> Settings:
    (folder / "given.json").write_text(json.dumps(keys))
    return read_training_files((str(folder / "given.json"),))


def test_a_switch_beside_a_section_turns_its_quantisation_and_its_adapters_off(tmp_path: Path) -> None:
    given = {
        "pretrained_model_name": "org/Chat-8B", "model_name": "CausalLM-SFT", "per_device_train_batch_size": 4, "output_dir": "x",
        "is_quantized": False, "quantization_config": {"load_in_4bit": True}, "is_peft": False, "peft_config": {"r": 32},
    }  # fmt: skip
    off = _read(tmp_path, given)
    assert (off.get("model"), off.get("quant"), off.get("method")) == ("org/Chat-8B", None, None)
    on = _read(tmp_path, given | {"is_quantized": True, "is_peft": True})
    assert (on.get("quant"), on.get("adapter.rank"), on.get("method")) == ("nf4", 32, "qlora")


def test_modules_trained_whole_beside_an_adapter_are_read_in_its_section(tmp_path: Path) -> None:
    given = {
        "model": {"name": "org/Chat-8B"}, "lora": {"r": 8, "modules_to_save": ["embed_tokens", "lm_head"]},
        "training": {"per_device_train_batch_size": 1, "num_train_epochs": 1, "gradient_accumulation_steps": 2},
    }  # fmt: skip
    assert _read(tmp_path, given).get("adapter.modules_to_save") == ("embed_tokens", "lm_head")


def test_an_unknown_program_is_told_with_what_its_file_leaves_to_it(tmp_path: Path) -> None:
    given = {"model": {"name": "org/Chat-8B"}, "training": {"micro_batch_size": 2, "num_train_epochs": 1, "optimizer": "adamw"}}
    settings = _read(tmp_path, given)
    told = next(one for one in settings.assumed() if one.name == "program")
    assert told.value == "unknown here"
    assert all(flag in told.because for flag in ("--method", "--checkpointing", "--seq"))
    known = {"per_device_train_batch_size": 1, "output_dir": "x", "num_train_epochs": 1, "model_name_or_path": "org/Chat-8B"}
    assert not any(one.name == "program" for one in _read(tmp_path, known).assumed())


def test_checkpointing_of_unsloth_tells_the_framework_and_what_it_adapts(tmp_path: Path) -> None:
    given = {
        "model_name": "org/Chat-8B", "per_device_train_batch_size": 1, "gradient_checkpointing": "unsloth", "lora_r": 16,
        "max_seq_length": 512, "gradient_accumulation_steps": 4,
    }  # fmt: skip
    settings = _read(tmp_path, given)
    assert (settings.get("framework"), settings.get("checkpointing")) == ("unsloth", "offloaded")
    assert len(settings.get("adapter.targets")) == 7
