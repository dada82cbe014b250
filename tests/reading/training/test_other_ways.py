"""Training that no file of TrainingArguments tells: wrapped commands, programs that start others, loops and notebooks."""

import json
from pathlib import Path
from typing import Any

import pytest

from vramcast.reading.kinds import kinds_of, taken_for
from vramcast.reading.training.files import read_training_files

VERL = (
    "data.train_batch_size=64 data.max_prompt_length=100 data.max_response_length=28 "
    "actor.ppo_micro_batch_size_per_gpu=4 actor.optim.lr=1e-6"
)
FLAGS = "--model_name_or_path org/Model-7B --learning_rate 1e-4 --per_device_train_batch_size 4 --gradient_accumulation_steps 2"


def _read(tmp_path: Path, name: str, text: str) -> tuple[str, dict[str, Any]]:
    path = tmp_path / name
    path.write_text(text)
    kind = taken_for(kinds_of(text.encode(), name))
    return " ".join(kind.command) if kind else "", read_training_files((str(path),)).values


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.sh", f"docker run --gpus all --entrypoint python3 vllm-trl:1 -m recipe.main {VERL}"),
        ("a.sh", f'O="{FLAGS}"\nsrun bash -c "uv run python scripts/train.py $O"'),
        ("a.sh", f'export ARGS=" ${{MORE}} {FLAGS} "'),
        ("a.py", f"import subprocess\nN = 4\nsubprocess.run(f'torchrun --nproc_per_node 2 train.py {FLAGS}', shell=True)\n"),
        ("a.py", "import subprocess\nsubprocess.run(['accelerate', 'launch', 'train.py', *'" + FLAGS + "'.split()])\n"),
        ("a.md", f"```bash\ntorchrun check.py --model a\n```\n\n```bash\ntorchrun train.py {FLAGS}\n```\n"),
    ],
)
def test_the_command_behind_it(tmp_path: Path, name: str, text: str) -> None:
    command, values = _read(tmp_path, name, text)
    assert command in ("train --from", "") and values["micro_batch"] == 4
    assert command or "ARGS" in text  # a file of arguments alone says no program


LOOP = """
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
class Config:
    def __init__(self):
        self.batch_size = 2
        self.grad_accumulation = 32
        self.max_length = 128
config = Config()
model = AutoModelForCausalLM.from_pretrained("org/Model-8B", quantization_config=BitsAndBytesConfig(load_in_4bit=True))
model.gradient_checkpointing_enable()
model = get_peft_model(model, LoraConfig(r=32))
for batch in loader:
    loss = model(batch).loss / config.grad_accumulation
    loss.backward()
"""


@pytest.mark.parametrize("notebook", [False, True])
def test_a_loop_of_its_own_with_what_it_builds(tmp_path: Path, notebook: bool) -> None:
    cells = [{"cell_type": "code", "source": part} for part in ("!pip install peft", "for x in y:", LOOP)]
    text = json.dumps({"cells": cells}) if notebook else LOOP
    command, values = _read(tmp_path, "a.ipynb" if notebook else "a.py", text)
    assert command == "train --from"
    told = {
        key: values.get(key) for key in ("model", "adapter.rank", "quant", "accumulate", "micro_batch", "seq", "checkpointing")
    }
    assert told == {"model": "org/Model-8B", "adapter.rank": 32, "quant": "nf4", "accumulate": 32, "micro_batch": 2, "seq": 128,
                    "checkpointing": "full"}  # fmt: skip


def test_a_files_adapter_makes_it_training_without_a_size(tmp_path: Path) -> None:
    text = "model:\n  llm_model_name: org/Model-8B\n  num_epochs: 1\n  init_lora_rank: 16\n  max_length: 128\n  quant: 4bit\n"
    command, values = _read(tmp_path, "a.yaml", text)
    assert command == "train --from"
    assert (values["model"], values["adapter.rank"], values["quant"], values["seq"]) == ("org/Model-8B", 16, "nf4", 128)


def test_a_parser_of_dataclasses_and_a_mapping_of_defaults(tmp_path: Path) -> None:
    parser = "from peft import LoraConfig\nargs = HfArgumentParser((Mine, TrainingArguments)).parse()\nLoraConfig(r=8)\n"
    command, values = _read(tmp_path, "a.py", parser)
    assert command == "train --from" and values["adapter.rank"] == 8
    merged = "D = {'per_device_train_batch_size': 2}\nC = dict(D)\nif given():\n    C.update(load())\nGRPOConfig(**C)\n"
    command, values = _read(tmp_path, "b.py", merged)
    assert command == "train --from" and values["micro_batch"] == 2


def test_a_docstring_is_no_command(tmp_path: Path) -> None:
    text = f'"""Run me.\n\n    torchrun train.py {FLAGS}\n"""\nimport os\n'
    assert taken_for(kinds_of(text.encode(), "a.py")) is None
