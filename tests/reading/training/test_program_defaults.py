"""What a program's calls decide where its arguments are silent, and what its tests of the card find on the one that is asked."""

import json
from pathlib import Path
from typing import Any

import pytest

from vramcast import forecast
from vramcast.asking import training_question
from vramcast.reading.training.files import read_training_text

_LOADS = (
    "import torch\nfrom transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments\n"
    "from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training\nfrom trl import SFTConfig, SFTTrainer\n"
    "bits = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type='nf4', bnb_4bit_compute_dtype=torch.float16)\n"
    "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B-Instruct', quantization_config=bits)\n"
    "peft = LoraConfig(r=8, target_modules=['q_proj', 'v_proj'])\n"
)
_SIZES = "output_dir='o', per_device_train_batch_size=2"


def _read(text: str, gpu: str | None = None) -> Any:
    return training_question(text=text, gpu=gpu).question


@pytest.mark.parametrize(
    ("test", "unsloth", "gpu", "expected"),
    [
        ("is_bfloat16_supported()", True, "T4", "float16"),
        ("is_bfloat16_supported()", True, "L4", "bfloat16"),
        ("is_bfloat16_supported()", True, None, "bfloat16"),
        ("torch.cuda.is_bf16_supported()", True, "V100", "float16"),
        ("torch.cuda.is_bf16_supported()", False, "T4", "bfloat16"),  # torch counts emulation
        ("torch.cuda.is_bf16_supported(including_emulation=False)", False, "T4", "float16"),
        ("torch.cuda.get_device_capability()[0] >= 8", False, "T4", "float16"),
        ("torch.cuda.get_device_capability() >= (8, 0)", False, "L4", "bfloat16"),
        ("major >= 8", False, "T4", "float16"),
        ("major >= 8", False, "H100", "bfloat16"),
    ],
)
def test_tests_of_the_card(test: str, unsloth: bool, gpu: str | None, expected: str) -> None:
    text = (
        f"import torch\n{'from unsloth import is_bfloat16_supported' if unsloth else ''}\n"
        "from transformers import TrainingArguments\n"
        f"major, minor = torch.cuda.get_device_capability()\nbf16 = {test}\n"
        f"TrainingArguments({_SIZES}, fp16=not bf16, bf16=bf16, model_name_or_path='Qwen/Qwen2.5-7B-Instruct')\n"
    )
    assert _read(text, gpu).compute_dtype == expected


def test_trl_keeps_what_training_arguments_say() -> None:
    plain = _read(f"{_LOADS}SFTTrainer(model, args=TrainingArguments({_SIZES}), peft_config=peft)\n")
    assert (plain.checkpointing, plain.options["autocast"], plain.compute_dtype) == ("none", False, "float16")
    own = _read(f"{_LOADS}SFTTrainer(model, args=SFTConfig({_SIZES}), peft_config=peft)\n")
    assert (own.checkpointing, own.options.get("autocast"), own.compute_dtype) == (None, None, "bfloat16")
    off = _read(f"{_LOADS}SFTTrainer(model, args=SFTConfig({_SIZES}, bf16=False), peft_config=peft)\n")
    assert (off.options["autocast"], off.compute_dtype) == (False, "float16")
    half = _read(f"{_LOADS}SFTTrainer(model, args=TrainingArguments({_SIZES}, fp16=True, bf16=False), peft_config=peft)\n")
    assert (half.options.get("autocast"), half.compute_dtype) == (None, "float16")


def test_a_model_that_the_program_loads_keeps_its_type() -> None:
    base = "from trl import SFTConfig, SFTTrainer\nfrom transformers import AutoModelForCausalLM\n"
    loads = "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B-Instruct', torch_dtype='auto')\n"
    held = {name: _weights(f"{base}{text}") for name, text in {
        "loaded": f"{loads}SFTTrainer(model=model, args=SFTConfig({_SIZES}))\n",
        "named": f"SFTTrainer(model='Qwen/Qwen2.5-7B-Instruct', args=SFTConfig({_SIZES}))\n",
    }.items()}  # fmt: skip
    assert held["named"] == 2 * held["loaded"]  # float32 by name, as the checkpoint has it else


def _weights(text: str) -> int:
    question = _read(text)
    return next(term.bytes for term in forecast(question).worst.terms if term.name == "weights")


def test_checkpoints_of_a_quantised_base() -> None:
    trains = f"model = get_peft_model(model, peft)\nTrainer(model, TrainingArguments({_SIZES}, fp16=True))\n"
    bare = _read(f"{_LOADS}{trains}")
    assert (bare.checkpointing, bare.options["unquantized"]) == ("none", "float16")
    ready = _read(f"{_LOADS}model = prepare_model_for_kbit_training(model)\n{trains}")
    assert (ready.checkpointing, ready.options["unquantized"]) == ("full", "float32")
    elsewhere = _read(f"{_LOADS}from helpers import prepare_model\nmodel = prepare_model(model)\n{trains}")
    assert elsewhere.checkpointing is None


def test_adapters_of_unsloth_by_its_own_defaults() -> None:
    text = (
        "from unsloth import {0}\nfrom trl import SFTConfig\n"
        "m, t = {0}.from_pretrained('Qwen/Qwen2.5-7B-Instruct', load_in_4bit=True)\n"
        "m = {0}.get_peft_model(m{1})\nSFTConfig({2}, gradient_checkpointing=True)\n"
    )
    language = _read(text.format("FastLanguageModel", "", _SIZES))
    assert (language.adapter.rank, len(language.adapter.targets), language.checkpointing) == (16, 7, "offloaded")
    vision = _read(text.format("FastVisionModel", ", r=4, use_gradient_checkpointing=True", _SIZES))
    assert (vision.adapter.rank, vision.adapter.targets, vision.checkpointing) == (4, ("all-linear",), "full")


def test_a_head_of_labels_has_no_logits_of_the_vocabulary() -> None:
    text = (
        "from transformers import {0}, TrainingArguments\nmodel = {0}.from_pretrained('Qwen/Qwen2.5-7B-Instruct')\n"
        "TrainingArguments({1})\n"
    )
    assert _read(text.format("AutoModelForSequenceClassification", _SIZES)).loss == "none"
    assert _read(text.format("AutoModelForCausalLM", _SIZES)).loss is None


def test_the_card_of_a_program_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(
        "from unsloth import is_bfloat16_supported as _\nimport torch\nfrom transformers import TrainingArguments\n"
        "TrainingArguments('o', bf16=torch.cuda.is_bf16_supported(), fp16=not torch.cuda.is_bf16_supported())\n"
    )
    assert training_question("Qwen/Qwen2.5-7B-Instruct", files=[file], gpu="T4").question.compute_dtype == "float16"
    assert read_training_text(file.read_text()).get("compute_dtype") == "bfloat16"


@pytest.mark.parametrize(("release", "expected"), [("0.4.7", None), ("0.7.2", "none"), ("1.0.0", "none")])
def test_a_pinned_trl_prepares_a_quantised_base(tmp_path: Path, release: str, expected: str | None) -> None:
    code = [f"!pip install trl=={release}\n", _LOADS, f"SFTTrainer(model, args=TrainingArguments({_SIZES}), peft_config=peft)\n"]
    file = tmp_path / "n.ipynb"
    file.write_text(json.dumps({"cells": [{"cell_type": "code", "source": one} for one in code]}))
    assert training_question(files=[file]).question.checkpointing == expected


def test_what_starts_a_program_stands_before_its_silence(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"{_LOADS}SFTTrainer(model, args=TrainingArguments({_SIZES}), peft_config=peft)\n")
    file = tmp_path / "run.sh"
    file.write_text("accelerate launch --mixed_precision bf16 train.py --learning_rate 1e-4 --per_device_train_batch_size 2\n")
    question = training_question(files=[file]).question
    assert (question.compute_dtype, question.options.get("autocast")) == ("bfloat16", None)
