"""What scripts and programs say in ways of their own: several commands, Hydra's pluses, answers to prompts, fields of a class."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from vramcast.reading.kinds import kinds_of, taken_for
from vramcast.reading.training.files import read_training_files
from vramcast.reading.training.settings import Settings

Read = Callable[[str, str], Settings]


@pytest.fixture
def said(tmp_path: Path) -> Read:
    def read(name: str, text: str) -> Settings:
        path = tmp_path / name
        path.write_text(text)
        return read_training_files((str(path),))

    return read


def test_the_first_of_several_commands_of_a_program_counts(said: Read) -> None:
    line = "python train.py --model_name={} --micro_batch_size={} --max_length=1024 --gradient_accumulation_steps=2\n"
    found = said("run.sh", line.format("org/a-1b", 8) + line.format("org/b-1b", 4))
    assert (found.values["model"], found.values["micro_batch"]) == ("org/a-1b", 8)
    assert any("1 more command" in one for one in found.unread)


def test_hydra_adds_keys_by_a_plus(said: Read) -> None:
    text = (
        "torchrun --nproc_per_node=8 -m prog.train data.micro_batch_size_per_gpu=1 data.max_length=4096 model.path=org/m-7b \\\n"
        "  ++engine.override_transformer_config.recompute_granularity=full optim.lr=1e-5\n"
    )
    assert said("run.sh", text).values["checkpointing"] == "full"


def test_a_script_s_own_precision_stands_before_its_launcher_s(said: Read) -> None:
    text = (
        "accelerate launch --mixed_precision fp16 --num_processes 8 train.py --model_name_or_path org/m-7b --bf16 True \\\n"
        "  --per_device_train_batch_size 4 --gradient_accumulation_steps 2\n"
    )
    assert said("run.sh", text).values["compute_dtype"] == "bfloat16"
    assert said("run.sh", text.replace(" --bf16 True", "")).values["compute_dtype"] == "float16"


PROMPTED = """
from transformers import AutoModelForCausalLM, TrainingArguments
name = input("Model [org/m-7b]: ") or "org/m-7b"
size = int(input("Batch [2]: ") or "2")
model = AutoModelForCausalLM.from_pretrained(name)
args = TrainingArguments(per_device_train_batch_size=size, bf16=True)
"""


def test_what_stands_where_nobody_answers(said: Read) -> None:
    found = said("train.py", PROMPTED)
    assert (found.values["model"], found.values["micro_batch"]) == ("org/m-7b", 2)


FIELDS = """
from dataclasses import dataclass
from typing import Optional

@dataclass
class Base:
    _target_: str = "trl.SFTConfig"
    per_device_train_batch_size: Optional[int] = 4
    gradient_accumulation_steps: Optional[int] = 8
    bf16: bool = True
    learning_rate: float = 1e-5
"""


def test_fields_that_hydra_makes_arguments_of(said: Read) -> None:
    found = said("config.py", FIELDS)
    assert (found.values["micro_batch"], found.values["accumulate"], found.values["compute_dtype"]) == (4, 8, "bfloat16")
    kind = taken_for(kinds_of(FIELDS.encode(), "config.py"))
    assert kind is not None and kind.command == ("train", "--from")


def test_the_longest_of_several_data_sets_is_the_length(said: Read) -> None:
    text = (
        "model = '/m/Llama-3.1-8B'\nlora_rank = 8\nmicro_batch_size_per_gpu = 1\ngradient_accumulation_steps = 4\n"
        "model_weight_dtype = 'bfloat16'\n[[datasets]]\nsequence_len = 1024\n[[datasets]]\nsequence_len = 2048\n"
    )
    found = said("config.toml", text)
    assert (found.values["seq"], found.values["param_dtype"]) == (2048, "bfloat16")


def test_student_and_section_training(said: Read) -> None:
    text = json.dumps(
        {"training": {"student_model": "org/m-7b", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 4,
                      "learning_rate": 1e-4, "max_seq_length": 2048, "tp": 2, "num_train_epochs": 1}}
    )  # fmt: skip
    found = said("distill.json", text)
    assert (found.values["model"], found.values["parallel.tp"]) == ("org/m-7b", 2)
