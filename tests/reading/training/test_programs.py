"""Training programs and notebooks, read from their syntax tree: what they set, what only running would tell."""

import json
from pathlib import Path

import pytest

from vramcast.asking import training_question
from vramcast.errors import QuestionError
from vramcast.reading.training.files import read_training_files

PROGRAM = """
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, TrainingArguments

BATCH = 4
bits = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_use_double_quant=True, bnb_4bit_quant_type="nf4")
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B", quantization_config=bits, torch_dtype=torch.bfloat16)
model = get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "v_proj"]))
args = TrainingArguments("out", per_device_train_batch_size=BATCH, gradient_accumulation_steps=2 * 4, bf16=True,
                         gradient_checkpointing=True, optim="paged_adamw_8bit", max_steps=int(open("n").read()))
raise SystemExit("never run")
"""


def test_a_program_is_its_arguments(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(PROGRAM)
    question = training_question(files=[file]).question
    assert (question.model, question.method, question.micro_batch, question.accumulate) == (
        "meta-llama/Llama-3.1-8B",
        "qlora",
        4,
        8,
    )
    assert (question.optimizer, question.checkpointing, question.quant) == ("paged_adamw_8bit", "full", "nf4")
    assert question.adapter is not None and (question.adapter.rank, question.adapter.targets) == (16, ("q_proj", "v_proj"))
    told = {a.name: a.because for a in training_question(files=[file]).assumed}
    assert told["micro_batch"] == "train.py: per_device_train_batch_size"


def test_a_prepared_base_is_float_where_it_is_quantised(tmp_path: Path) -> None:
    file, call = tmp_path / "train.py", "model = prepare_model_for_kbit_training(model)\n"
    for quantised, unquantized in ((True, "float32"), (False, None)):
        loaded = f"quantization_config=BitsAndBytesConfig(load_in_4bit={quantised})"
        start = "from trl import SFTConfig\n"
        file.write_text(
            f"{start}model = AutoModelForCausalLM.from_pretrained('a/b', {loaded})\n{call}SFTConfig(output_dir='x')\n"
        )
        assert read_training_files((str(file),)).get("options.unquantized") == unquantized


def test_trl_and_unsloth_by_their_classes(tmp_path: Path) -> None:
    file = tmp_path / "sft.py"
    file.write_text("from trl import SFTConfig\nSFTConfig(output_dir='x', max_length=2048, packing=True)\n")
    settings = read_training_files((str(file),))
    assert (settings.get("framework"), settings.get("options.task"), settings.get("seq")) == ("trl", "sft", 2048)
    file.write_text(
        "from unsloth import FastLanguageModel\nfrom trl import SFTConfig\n"
        "m, t = FastLanguageModel.from_pretrained(model_name='unsloth/Llama-3.1-8B', max_seq_length=2048, load_in_4bit=True)\n"
        "m = FastLanguageModel.get_peft_model(m, r=16, use_gradient_checkpointing='unsloth')\nSFTConfig(output_dir='x')\n"
    )
    settings = read_training_files((str(file),))
    assert (settings.get("framework"), settings.get("method"), settings.get("checkpointing")) == ("unsloth", "qlora", "offloaded")


def test_what_only_running_tells_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(
        "from transformers import TrainingArguments\nTrainingArguments(output_dir='x', per_device_train_batch_size=n())\n"
    )
    assert read_training_files((str(file),)).unread == ["per_device_train_batch_size (${n})"]
    file.write_text("print('nothing')\n")
    with pytest.raises(
        QuestionError, match=r"a.py sets no TrainingArguments, SFTConfig or the like that can be read without running"
    ):
        read_training_files((str(file),))


def test_notebooks_hold_a_program_or_commands(tmp_path: Path) -> None:
    file = tmp_path / "n.ipynb"
    code = [
        "from transformers import TrainingArguments\n",
        "%matplotlib inline\n",
        "!pip install x\n",
        "TrainingArguments('o', fp16=True)",
    ]
    file.write_text(json.dumps({"cells": [{"cell_type": "code", "source": code}, {"cell_type": "markdown", "source": ["x"]}]}))
    assert read_training_files((str(file),)).get("compute_dtype") == "float16"
    shell = ["!torchrun --nproc_per_node 4 train.py \\\n", "  --model_name_or_path m/x --per_device_train_batch_size 2"]
    file.write_text(json.dumps({"cells": [{"cell_type": "code", "source": shell}]}))
    settings = read_training_files((str(file),))
    assert (settings.get("gpus"), settings.get("micro_batch"), settings.get("model")) == (4, 2, "m/x")
    file.write_text("{}")
    with pytest.raises(QuestionError, match=r"n.ipynb is no notebook: it has no cells"):
        read_training_files((str(file),))


def test_flags_of_accelerates_launcher_count_without_a_switch(tmp_path: Path) -> None:
    file = tmp_path / "a.sh"
    file.write_text(
        "accelerate launch --num_processes 8 --mixed_precision bf16 t.py --per_device_train_batch_size 2 --output_dir x\n"
    )
    settings = read_training_files((str(file),))
    assert (settings.get("compute_dtype"), settings.get("gpus"), settings.unread) == ("bfloat16", 8, [])
