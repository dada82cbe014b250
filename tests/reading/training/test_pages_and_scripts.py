"""Training that a page shows in pieces, that stands beside other commands, or whose files lie elsewhere."""

from pathlib import Path
from typing import Any

import pytest

from vramcast.reading.kinds import kinds_of, taken_for
from vramcast.reading.training.files import read_training_files

STEPS = """
# Tuning
1. Write the settings:
   ```yaml
   model_name_or_path: <where your model lies>
   stage: sft
   finetuning_type: lora
   lora_target: all
   cutoff_len: 1024
   per_device_train_batch_size: 1
   gradient_accumulation_steps: 8
   ```
2. Run:
   ```bash
   llamafactory-cli train examples/mine.yaml
   ```
"""
PIECES = """
```python
from peft import LoraConfig
config = LoraConfig(r=8, target_modules=["q_proj"])
```
then
```python
args = TrainingArguments(output_dir="o", per_device_train_batch_size=2, gradient_checkpointing=True)
```
"""
TWO = """
accelerate launch --num_processes 8 --config_file configs/deepspeed_zero3.yaml train.py --model_name_or_path org/Chat-7b \\
  --per_device_train_batch_size 2 --gradient_accumulation_steps 8 --learning_rate 1e-6
python score.py --model out --batch_size 300 --tensor_parallel_size 4
"""
ELSEWHERE = """
HERE=$(cd .. && pwd)
torchrun --nproc_per_node 8 sft.py --model_name_or_path org/Chat-7b --per_device_train_batch_size 1 \\
  --deepspeed ${HERE}/src/scripts/zero2.json
"""
PADDED = """
from pathlib import Path
from transformers import AutoModelForCausalLM, TrainingArguments
LONGEST = 4096
def cut(rows):
    return tokenizer(rows["text"], padding="max_length", truncation=True, max_length=LONGEST)
model = AutoModelForCausalLM.from_pretrained(Path("~/org/Chat-7b").expanduser())
args = TrainingArguments(output_dir="o", per_device_train_batch_size=2)
"""
CHAT = """
deepspeed main.py --model_name_or_path org/Chat-7b --per_device_train_batch_size 4 --max_seq_len 4096 --learning_rate 1e-6 \\
  --zero_stage 2 --deepspeed --offload --lora_dim 128 --lora_module_name "layers." --gradient_checkpointing
"""
SAVED = """
torchrun --nproc_per_node 1 tune.py --model_name_or_path org/Chat-7b --per_device_train_batch_size 1 --learning_rate 1e-4 \\
  --lora_rank 64 --trainable q_proj,v_proj,o_proj --modules_to_save embed_tokens,lm_head --load_in_kbits 4
"""
TWICE = '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}'


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.md", STEPS, {"seq": 1024, "micro_batch": 1, "accumulate": 8, "adapter.targets": ("all",), "model": None}),
        ("b.md", PIECES, {"micro_batch": 2, "adapter.rank": 8, "adapter.targets": ("q_proj",), "checkpointing": "full"}),
        ("c.sh", TWO, {"micro_batch": 2, "gpus": 8, "parallel.tp": None, "zero": 3}),
        ("d.sh", ELSEWHERE, {"zero": 2, "micro_batch": 1, "gpus": 8}),
        ("e.py", PADDED, {"seq": 4096, "model": "~/org/Chat-7b", "micro_batch": 2}),
        ("f.sh", CHAT, {"offload": ["optimizer"], "adapter.targets": ("all-linear",), "adapter.rank": 128}),
        ("g.sh", SAVED, {"adapter.targets": ("q_proj", "v_proj", "o_proj"), "quant": "nf4",
                         "adapter.modules_to_save": ("embed_tokens", "lm_head")}),
        ("h.json", TWICE, {"zero": 2, "compute_dtype": "bfloat16"}),
    ],
)  # fmt: skip
def test_what_is_read(tmp_path: Path, name: str, text: str, expected: dict[str, Any]) -> None:
    file = tmp_path / name
    file.write_text(text)
    taken = taken_for(kinds_of(file.read_bytes(), name, folder=tmp_path))
    assert taken is not None
    assert taken.command == ("train", "--from")
    said = read_training_files((str(file),)).values
    assert {key: said.get(key) for key in expected} == expected


def test_a_class_of_ones_own_by_a_trainers_name_is_none(tmp_path: Path) -> None:
    text = "class SFTConfig(BaseModel):\n    batch_size: int = 12\n\nconfig = SFTConfig(group_size=8)\n"
    assert taken_for(kinds_of(text.encode(), "server.py", folder=tmp_path)) is None


def test_targets_that_only_the_program_tells_stay_open(tmp_path: Path) -> None:
    file = tmp_path / "tune.py"
    file.write_text(
        "args = TrainingArguments(output_dir='o')\nlora = LoraConfig(r=16, target_modules=[name for name in found(model)])\n"
    )
    settings = read_training_files((str(file),))
    assert settings.get("adapter.targets") is None
    assert any(line.startswith("lora_target_modules") for line in settings.unread)


PARSED = """
from dataclasses import dataclass, field
import transformers
@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="bert-base-uncased")
@dataclass
class Arguments(transformers.TrainingArguments):
    model_max_length: int = field(default=512)
    lora_enable: bool = False
    lora_r: int = 64
parser = transformers.HfArgumentParser((ModelArguments, Arguments))
"""
CHOSEN = """
deepspeed --include localhost:1,0 tune.py --model_name_or_path org/Chat-7b --per_device_train_batch_size 1 --learning_rate 1e-4 \\
  --load_in_bits 4 --lora_r 8 --target_modules q_proj,v_proj --block_size 2048
"""
PACKED = """
train: {model_path: org/Chat-7b, lora_rank: 0, max_seq_len: 4096, max_batch_len: 10000, effective_batch_size: 32,
        nproc_per_node: 4, distributed_backend: fsdp, learning_rate: 2e-6, num_epochs: 1}
"""
HOLDER = """
```bash
accelerate launch --config_file zero2.yaml train.py --num_processes [number_of_gpus] --per_device_train_batch_size 2 \\
  --learning_rate 1e-5
```
"""


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.py", PARSED, {"model": "bert-base-uncased", "seq": 512, "method": None, "adapter.rank": None}),
        ("b.sh", CHOSEN, {"gpus": 2, "quant": "nf4", "adapter.rank": 8, "seq": 2048}),
        ("c.yaml", PACKED, {"micro_batch": 2, "global_batch": 32, "fsdp": 1, "gpus": 4, "method": None}),
        ("d.md", HOLDER, {"micro_batch": 2, "zero": 2, "gpus": None}),
    ],
)
def test_names_of_other_programs(tmp_path: Path, name: str, text: str, expected: dict[str, Any]) -> None:
    file = tmp_path / name
    file.write_text(text)
    said = read_training_files((str(file),)).values
    assert {key: said.get(key) for key in expected} == expected
