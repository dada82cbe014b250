"""Training loops that programs write themselves: what their calls say, and that no trainer's default stands behind them."""

import pytest

from vramcast.asking import training_question
from vramcast.errors import QuestionError
from vramcast.reading.kinds import kinds_of
from vramcast.reading.training.files import read_training_text
from vramcast.reading.training.settings import Settings

LOOP = """
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B-Instruct")
tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B-Instruct")
{head}
optimizer = {optimizer}(model.parameters(), lr=1e-4)
for epoch in range(3):
    for batch in train_loader:
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
"""
_LOADER = "train_loader = DataLoader(train_set, batch_size=3, shuffle=True)\n"
_CUTS = "ids = tokenizer(texts, truncation=True, max_length=384)\n"


def _read(head: str, optimizer: str = "torch.optim.AdamW") -> Settings:
    return read_training_text(LOOP.format(head=head, optimizer=optimizer), where="train.py")


def test_a_loop_is_told_by_its_calls() -> None:
    read = _read(f"val_loader = DataLoader(val_set, batch_size=64)\n{_LOADER}{_CUTS}", "bnb.optim.AdamW8bit")
    found = {name: read.get(name) for name in ("micro_batch", "seq", "optimizer", "framework", "compute_dtype")}
    assert found == {
        "micro_batch": 3, "seq": 384, "optimizer": "adamw_8bit", "framework": "pytorch", "compute_dtype": None,
    }  # fmt: skip


def test_what_a_loop_does_not_say_is_named_with_its_flag() -> None:
    read = _read("")
    assert [line.split(" ", 1)[0] for line in read.unread] == ["micro_batch", "seq"]
    assert "--micro-batch N says it" in read.unread[0] and "--seq N says it" in read.unread[1]
    assert (read.get("micro_batch"), read.get("seq")) == (None, None)  # neither the Trainer's 8 nor TRL's 1,024


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("scope = torch.autocast('cuda', dtype=torch.bfloat16)", ("bfloat16", True)),
        ("scope = torch.cuda.amp.autocast()", ("float16", True)),
        ("scope = torch.autocast('cuda', enabled=False)", (None, None)),
        ("accelerator = Accelerator(mixed_precision='fp16')", ("float16", True)),
        ("accelerator = Accelerator()", (None, None)),
    ],
)
def test_precision_by_the_calls_that_make_it(made: str, expected: tuple[str | None, bool | None]) -> None:
    read = _read(f"{_LOADER}{made}\n")
    assert (read.get("compute_dtype"), read.get("options.autocast")) == expected


def test_a_loop_without_a_model_asks_for_it() -> None:
    text = (
        "from helpers import build, loader\nmodel, optimizer = build(vocab_size)\nfor x in loader:\n    model(x).backward()\n"
        "    optimizer.step()\n"
    )
    with pytest.raises(QuestionError, match=r"the files name none: vramcast train MODEL --from FILE"):
        training_question(text=text)
    assert training_question("Qwen/Qwen2.5-0.5B-Instruct", text=text, micro_batch=2, seq=128).question.framework == "pytorch"


def test_a_loop_that_is_no_language_model_is_no_training_program() -> None:
    text = "import torch\nfor x, y in images:\n    loss(net(x), y).backward()\n    optimizer.step()\n"
    told = text.replace("net(x)", "net(x, vocab_size)")
    found = [[one.because for one in kinds_of(held.encode(), "train.py")] for held in (text, told)]
    assert ["a loop with its own backward pass" in one for one in found] == [False, True]


def test_comprehensions_and_objects_of_libraries() -> None:
    text = (
        "import argparse\nfrom peft import LoraConfig\nfrom trl import ModelConfig\n"
        "from transformers import AutoModelForCausalLM, TrainingArguments\n"
        "parser = argparse.ArgumentParser()\nparser.add_argument('--modules', default='q_proj, v_proj,')\n"
        "args = parser.parse_args()\n"
        "def parts(raw):\n    return [one.strip() for one in raw.split(',') if one.strip()]\n"
        "own = ModelConfig(model_name_or_path='Qwen/Qwen2.5-0.5B-Instruct')\n"
        "model = AutoModelForCausalLM.from_pretrained(own.model_name_or_path)\n"
        "LoraConfig(r=4, target_modules=list(parts(args.modules)))\nTrainingArguments('o', per_device_train_batch_size=1)\n"
    )
    question = training_question(text=text).question
    assert (question.model, question.adapter and question.adapter.targets) == ("Qwen/Qwen2.5-0.5B-Instruct", ("q_proj", "v_proj"))


def test_sizes_of_several_models_beside_each_other_stay_open() -> None:
    base = (
        "optimizer = AdamW(model.parameters())\nfor x in create_dataloader_v1(text, batch_size=2):\n"
        "    model(x).backward()\n    optimizer.step()\n"
    )
    one = "GPT = {'vocab_size': 50257, 'context_length': 256, 'emb_dim': 768, 'n_heads': 12, 'n_layers': 12, 'qkv_bias': True}\n"
    asked = training_question(text=f"import torch\n{one}{base}")
    assert asked.model is not None and asked.model.parameters == 162_447_360  # ch05's, with biases
    assert (asked.question.micro_batch, asked.question.seq) == (2, 256)
    two = one + one.replace("GPT", "LARGE").replace("768", "1024")
    with pytest.raises(QuestionError, match="a variable that nobody set holds hidden"):
        training_question(text=f"import torch\n{two}{base}")


def test_a_rank_that_only_running_tells_is_a_rank() -> None:
    text = (
        "from peft import LoraConfig\nfrom transformers import TrainingArguments\nLoraConfig(r=params['rank'])\n"
        "TrainingArguments('o', model_name_or_path='Qwen/Qwen2.5-0.5B-Instruct')\n"
    )
    assert training_question(text=text).question.method == "lora"


def test_a_class_of_another_library_is_none_of_arguments() -> None:
    text = "from {0} import RewardConfig\nfrom {1} import TrainingArguments\nRewardConfig(beta=1)\nTrainingArguments({2}=3)\n"
    size = "per_device_train_batch_size"
    assert read_training_text(text.format("trl", "transformers", size)).get("options.task") == "reward"
    other = read_training_text(
        text.format("open_instruct.rewards", "arguments", size)
    )  # a class of its own, with a trainer's keys
    assert (other.get("options.task"), other.get("micro_batch")) == (None, 3)
    with pytest.raises(QuestionError, match="sets no TrainingArguments"):
        read_training_text(text.format("open_instruct.rewards", "arguments", "steps"))


def test_an_attribute_that_is_set_is_what_it_says() -> None:
    text = (
        "from transformers import TrainingArguments\ntokenizer.model_max_length = 384\n"
        "ids = tokenizer(texts, truncation=True, max_length=tokenizer.model_max_length)\n"
        "TrainingArguments('o', model_name_or_path='Qwen/Qwen2.5-0.5B-Instruct', per_device_train_batch_size='8,8')\n"
    )
    with pytest.raises(QuestionError, match="8,8"):
        read_training_text(text)
    assert read_training_text(text.replace("'8,8'", "'1,024'")).get("seq") == 384


def test_what_strings_hold_is_no_loop() -> None:
    text = 'SAMPLES = ["""loss.backward()\\noptimizer.step()\\ntokenizer(x)"""]\nprint(SAMPLES)\n'
    assert not any("backward" in one.because for one in kinds_of(text.encode(), "samples.py"))


def test_an_open_setting_names_its_flag() -> None:
    text = (
        "from peft import LoraConfig\nfrom transformers import LlamaForSequenceClassification, TrainingArguments\n"
        "model = LlamaForSequenceClassification.from_pretrained('meta-llama/Llama-3.1-8B')\n"
        "LoraConfig(r=params['rank'], target_modules=['q_proj', 'score'])\n"
        "TrainingArguments('o', per_device_train_batch_size=settings.batch)\n"
    )
    asked = training_question(text=text)
    assert [one.what.partition(": a variable")[2] for one in asked.unmodelled if "variable" in one.what] == [
        " that nobody set holds it; --micro-batch N says it", " that nobody set holds it; --rank N says it",
    ]  # fmt: skip
    assert (asked.question.loss, asked.question.adapter and asked.question.adapter.targets) == ("none", ("q_proj",))


def test_a_program_that_only_holds_code_as_text_does_not_train() -> None:
    held = 'TEXT = """\nTrainingArguments(output_dir=x)\n"""\n'
    plain = "from transformers import TrainingArguments\nTrainingArguments(output_dir='x')\n"
    found = [[one.what for one in kinds_of(text.encode(), "a.py")] for text in (held, held + plain)]
    assert ["a training program" in one for one in found] == [False, True]


def test_adapters_whose_numbers_are_not_told() -> None:
    text = (
        "from peft import LoraConfig\nfrom transformers import TrainingArguments\nLoraConfig(**given)\n"
        "TrainingArguments('o', model_name_or_path='Qwen/Qwen2.5-0.5B-Instruct')\n"
    )
    assert training_question(text=text).question.method == "lora"
    assert (
        training_question(text=text.replace("LoraConfig(**given)", "if False:\n    LoraConfig(**given)")).question.method
        == "full"
    )


def test_settings_that_come_when_a_program_is_started() -> None:
    with pytest.raises(QuestionError, match="HfArgumentParser takes them from the command or the YAML that starts it"):
        read_training_text("from own import A\nfrom transformers import HfArgumentParser\nHfArgumentParser(A).parse()\n")
