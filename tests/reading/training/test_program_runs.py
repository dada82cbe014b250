"""Which run of a program is answered, the releases that its words tell, and what no shape stands for."""

import json
from pathlib import Path

import pytest

from vramcast.asking.training_files import no_model
from vramcast.errors import QuestionError
from vramcast.reading.training.files import read_training_files
from vramcast.reading.training.settings import Settings

LOADED = (
    "from transformers import *\nfrom trl import *\nfrom peft import *\n"
    "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B')\n"
)
PLAIN = f"{LOADED}args = TrainingArguments(per_device_train_batch_size=2)\n"
UNSLOTH = "from unsloth import FastLanguageModel\nmodel, t = FastLanguageModel.from_pretrained('unsloth/Llama-3.2-1B')\n"
KBIT = f"{LOADED}BitsAndBytesConfig(load_in_4bit=True)\nmodel = prepare_model_for_kbit_training(model)\n"
LOOP = "from transformers import *\nmodel = BertForSequenceClassification.from_pretrained('bert-base-uncased')\n"
STEPS = "for batch in train_loader:\n    loss = model(batch['input_ids']).loss\n    loss.backward()\n    optimizer.step()\n"
OWN = """
import torch.nn as nn
n_layer, n_head, n_embd, block_size, batch_size = 6, 6, 384, 128, 32
class Tiny(nn.Module):
    def __init__(self):
        self.table = nn.Embedding(vocab_size, n_embd)
"""


def _read(folder: Path, text: str, name: str = "tune.py") -> Settings:
    (folder / name).write_text(text)
    return read_training_files((str(folder / name),))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{PLAIN}trainer = Trainer(model, args)\ntrainer.train()\n"  # what is loaded, cut and trained after it is no part of it
         "model = AutoModelForCausalLM.from_pretrained('out', torch_dtype=torch.float16)\nt(x, truncation=True, max_length=64)\n"
         "SFTTrainer(model, args=SFTConfig(max_length=32)).train()\n",
         {"param_dtype": None, "seq": None, "options.task": None, "micro_batch": 2}),
        (f"{PLAIN}other = SFTConfig(max_length=512, gradient_checkpointing=False)\nSFTTrainer(model=model, args=args).train()\n",
         {"seq": 1024, "micro_batch": 2}),  # the arguments that the trainer gets
        (f"{LOADED}def make(size):\n    return SFTConfig(per_device_train_batch_size=size, max_length=64)\n"
         "unused = SFTConfig(max_length=512)\ncfg = make(3)\ntrainer = SFTTrainer(model=model, args=cfg)\n",
         {"seq": 64}),
        (f"{PLAIN}model.train()\nt(x, truncation=True, max_length=64)\n", {"seq": 64}),  # a mode, not a run
        (f"{PLAIN}SFTTrainer(model=model, args=args, tokenizer=t, max_seq_length=64, packing=False)\n",
         {"release": "0.12.2", "seq": 64}),
        (f"{PLAIN}SFTTrainer(model=model, args=args, tokenizer=t)\n", {"release": "0.15.2"}),
        (f"{LOADED}SFTTrainer(model=model, args=SFTConfig(max_seq_length=64), processing_class=t)\n", {"release": "0.19.1"}),
        (f"{LOADED}SFTTrainer(model=model, args=SFTConfig(max_length=64), processing_class=t)\n", {"release": None}),
        (f"{PLAIN}Trainer(model=model, args=args, tokenizer=t)\n", {"release": "4.57"}),
        (f"{LOADED}Trainer(model=model, args=TrainingArguments(overwrite_output_dir=True))\n", {"release": "4.57"}),
        (f"{UNSLOTH}SFTTrainer(model=model, tokenizer=t, args=TrainingArguments(output_dir='x'), max_seq_length=64)\n",
         {"release": None, "optimizer": "adamw_torch"}),  # its patched classes take the words of any release
        (f"{UNSLOTH}SFTTrainer(model=model, args=SFTConfig(output_dir='x'))\n", {"micro_batch": 4, "accumulate": 2}),
        (f"{UNSLOTH}model = FastLanguageModel.get_peft_model(model, r=8, target_modules=['q_proj', 'lm_head'])\n"
         "SFTTrainer(model=model, args=SFTConfig(output_dir='x'))\n",
         {"adapter.targets": ("q_proj",), "adapter.modules_to_save": ("lm_head",)}),
        (f"{KBIT}model = get_peft_model(model, LoraConfig(r=8))\n"
         "SFTTrainer(model=model, tokenizer=t, args=TrainingArguments(bf16=True))\n", {"options.unquantized": "float32"}),
        (f"{KBIT}SFTTrainer(model=model, tokenizer=t, peft_config=LoraConfig(r=8), args=TrainingArguments(bf16=True))\n",
         {"options.unquantized": None}),  # TRL before 0.26 prepares it again, and casts its ends back
        (f"{PLAIN}model = PeftModel.from_pretrained(model, 'a', is_trainable=True)\nTrainer(model, args).train()\n",
         {"method": "lora", "adapter.rank": None}),
        (f"{PLAIN}model = PeftModel.from_pretrained(model, 'a').merge_and_unload()\nTrainer(model, args).train()\n",
         {"method": None}),
        (f"{LOOP}{STEPS}", {"options.autocast": False}),
        (f"{LOOP}from accelerate import Accelerator\na = Accelerator()\n{STEPS}", {"options.autocast": None}),
    ],
)  # fmt: skip
def test_what_is_answered(tmp_path: Path, text: str, expected: dict[str, object]) -> None:
    settings = _read(tmp_path, text)
    assert {key: settings.get(key) for key in expected} == expected


def test_further_runs_are_told(tmp_path: Path) -> None:
    settings = _read(tmp_path, f"{PLAIN}Trainer(model, args).train()\nx = 1\nTrainer(model, args).train()\n")
    assert settings.unread == ["1 further runs of tune.py, from line 8 on (the first is answered)"]


def test_an_export_whose_end_is_no_python_is_read_to_its_run(tmp_path: Path) -> None:
    text = f"{PLAIN}trainer = Trainer(model, args)\ntrainer.train()\n# if False:\n    model.save('x')\n"
    settings = _read(tmp_path, text)
    assert settings.get("micro_batch") == 2
    assert settings.unread == ["tune.py from line 9 on (no Python: what stands before it is answered)"]
    with pytest.raises(QuestionError, match="is not Python"):
        _read(tmp_path, text.replace("trainer.train()", "pass"))


def _notebook(*cells: str) -> str:
    return json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells], "nbformat": 4})


def test_a_cell_under_a_timing_magic_is_read(tmp_path: Path) -> None:
    settings = _read(tmp_path, _notebook("%%time\n" + PLAIN), "a.ipynb")
    assert settings.get("micro_batch") == 2


def test_a_broken_cell_that_sets_the_training_is_said(tmp_path: Path) -> None:
    broken = "args = TrainingArguments(\n    num_train_epochs=4\n    learning_rate=1)\n"
    with pytest.raises(
        QuestionError, match=r"the cell that makes TrainingArguments is no Python \(line 2 of it: .*mend the cell"
    ):
        _read(tmp_path, _notebook(LOADED, broken), "a.ipynb")
    assert _read(tmp_path, _notebook(PLAIN, broken), "a.ipynb").get("micro_batch") == 2  # another cell makes them


@pytest.mark.parametrize("beside", [False, True])
def test_a_network_of_its_own_is_not_guessed_from_its_sizes(tmp_path: Path, *, beside: bool) -> None:
    (tmp_path / "net.py").write_text(OWN)
    text = f"from net import Tiny\nn_layer, n_head, n_embd = 6, 6, 384\n{STEPS}" if beside else OWN + STEPS
    settings = _read(tmp_path, f"{text}model = Tiny()\ncontext_length = 4\n")
    assert (settings.get("shape.layers"), settings.builds) == (None, "Tiny")
    assert "one of its own classes (Tiny)" in str(no_model(settings))
    assert "vramcast trace -- python FILE" in str(no_model(settings))
