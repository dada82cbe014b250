"""What a program does in other files of its folder, and what no run of it takes."""

from pathlib import Path

import pytest

from vramcast.reading.training.files import read_training_files
from vramcast.reading.training.settings import Settings

SETTINGS = (
    "from dataclasses import dataclass\n@dataclass\nclass Config:\n    name: str = 'Qwen/Qwen2.5-0.5B'\n    rank: int = 8\n"
)
MODEL = """
from settings import Config
def quantised(size):
    return BitsAndBytesConfig(load_in_4bit=True)
def load(config: Config, length):
    model = AutoModelForCausalLM.from_pretrained(config.name, quantization_config=quantised(4))
    model = prepare_model_for_kbit_training(model)
    tokens = tokenizer(text, truncation=True, max_length=length)
    return get_peft_model(model, LoraConfig(r=config.rank, target_modules=['q_proj']))
def tried():
    return AutoModelForCausalLM.from_pretrained('gpt2', attn_implementation='eager')
"""
MAIN = """
from settings import Config
from model import load
args = TrainingArguments(per_device_train_batch_size=2)
model = load(make_config(), 256)
trainer = Trainer(model=model, args=args)
"""
LOADS = "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B')\n"


def _read(folder: Path, **files: str) -> Settings:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return read_training_files((str(folder / "main.py"),))


def test_functions_of_files_beside_are_read_as_they_are_called(tmp_path: Path) -> None:
    settings = _read(tmp_path, settings=SETTINGS, model=MODEL, main=MAIN)
    expected = {
        "model": "Qwen/Qwen2.5-0.5B", "adapter.rank": 8, "quant": "nf4", "seq": 256, "options.unquantized": "float32",
        "attention": None, "micro_batch": 2,
    }  # fmt: skip
    assert {key: settings.get(key) for key in expected} == expected


def test_a_file_beside_that_nothing_is_called_of_says_nothing(tmp_path: Path) -> None:
    settings = _read(tmp_path, settings=SETTINGS, model=MODEL, main=MAIN.replace("model = load(", "model = other("))
    assert (settings.get("quant"), settings.get("adapter.rank")) == (None, None)


def test_a_loop_s_loader_and_lengths_stand_in_files_beside(tmp_path: Path) -> None:
    data = (
        "def loaders(size):\n    t = tokenizer(x, truncation=True, max_length=64)\n"
        "    return DataLoader(train, batch_size=size)\n"
    )
    main = (
        "from data import loaders\nfrom transformers import AutoModelForCausalLM\n" + LOADS + "for batch in loaders(16):\n"
        "    loss = model(batch['input_ids']).loss\n    loss.backward()\n    optimizer.step()\n"
    )
    settings = _read(tmp_path, data=data, main=main)
    assert (settings.get("micro_batch"), settings.get("seq")) == (16, 64)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"quant = BitsAndBytesConfig(load_in_8bit=True)\n{LOADS}Trainer(model, TrainingArguments(bf16=True))\n",
         {"quant": None}),  # its use is commented out
        (f"lora = LoraConfig(r=8)\n{LOADS}Trainer(model, TrainingArguments(bf16=True))\n",
         {"adapter.rank": None, "method": None}),
        (f"lora = LoraConfig(r=8)\n{LOADS}SFTTrainer(model=model, args=SFTConfig(bf16=True), peft_config=lora)\n",
         {"adapter.rank": 8}),
        (f"{LOADS}q = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)\nlora = LoraConfig(r=8)\n"
         "SFTTrainer(model=load(q), peft_config=lora, tokenizer=t, args=TrainingArguments(output_dir='x'))\n",
         {"release": "0.15.2", "options.unquantized": "float32"}),  # TRL before 0.26 casts nothing back where bf16 is off
        (f"if a:\n    names = ['q']\nelif b:\n    names = ['w']\n{LOADS}"
         "LoraConfig(r=8, target_modules=names)\nTrainingArguments(bf16=True)\n",
         {"adapter.targets": None, "adapter.rank": 8}),  # which branch runs is open
        ("if a:\n    model = AutoModelForCausalLM.from_pretrained('x')\nelse:\n"
         "    model = AutoModelForSequenceClassification.from_pretrained('x')\nTrainingArguments(bf16=True)\n", {"loss": None}),
    ],
)  # fmt: skip
def test_what_no_run_takes_and_what_is_open(tmp_path: Path, text: str, expected: dict[str, object]) -> None:
    settings = _read(tmp_path, main=text)
    assert {key: settings.get(key) for key in expected} == expected


def test_arguments_that_only_running_tells_stay_open(tmp_path: Path) -> None:
    settings = _read(
        tmp_path,
        main=f"{LOADS}kwargs = read(path)\nargs = SFTConfig(max_length=64, **kwargs)\nSFTTrainer(model=model, args=args)\n",
    )
    assert {"micro_batch", "accumulate", "optimizer"} <= settings.opened.keys()
    assert settings.get("seq") == 64
    assert any(
        line.startswith("SFTConfig(**kwargs) (only running tells what it holds: --micro-batch N") for line in settings.unread
    )


def test_a_second_model_of_a_loop_is_told(tmp_path: Path) -> None:
    steps = "for batch in data:\n    loss = model(batch['input_ids']).loss\n    loss.backward()\n    optimizer.step()\n"
    settings = _read(tmp_path, main=f"{LOADS}teacher = AutoModel.from_pretrained('gpt2')\n{steps}")
    assert "teacher (a further model, loaded in line 2: it is not counted)" in settings.unread


@pytest.mark.parametrize(
    ("text", "expected", "told"),
    [
        (f"{LOADS}model = get_peft_model(model, adapters[name](**given))\nTrainer(model, TrainingArguments(bf16=True))\n",
         {"adapter.on": True}, "adapter.rank (what its adapters"),
        (f"{LOADS}SFTTrainer(model=model, args=SFTConfig(bf16=True), peft_config=None)\n", {"adapter.on": None}, ""),
        (f"{LOADS}SFTTrainer(model=model, args=SFTConfig(bf16=True), peft_config=get_peft_config(given))\n",
         {"adapter.on": None}, ""),  # TRL's function gives nothing without --use_peft
        ("from lab.models import make\nmodel, t = make(cfg)\nTrainer(model=model, args=TrainingArguments(bf16=True))\n", {},
         "make of lab.models (not at hand"),
        ("from transformers import make\nmodel = make(cfg)\nTrainer(model=model, args=TrainingArguments(bf16=True))\n", {}, ""),
        (f"{LOADS}model = get_peft_model(\n    model, LoraConfig(r=4))\n"
         "Trainer(model=model, args=TrainingArguments(bf16=True))\n",
         {"adapter.rank": 4}, ""),  # its own name in a call over several lines
        ("length = parse().length or found()\nTrainer(model=m, args=SFTConfig(max_length=length))\n", {"seq": None}, ""),
        ("length = None or found() or 64\nTrainer(model=m, args=SFTConfig(max_length=length))\n", {"seq": 64}, ""),
    ],
)  # fmt: skip
def test_what_is_made_elsewhere_is_told(tmp_path: Path, text: str, expected: dict[str, object], told: str) -> None:
    settings = _read(tmp_path, main=text)
    assert {key: settings.get(key) for key in expected} == expected
    lines = [line for line in settings.unread if "at hand" in line]
    assert [line[: len(told)] for line in lines] == ([told] if told else [])


def test_modules_are_imported_from_the_repository_s_root(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for name, text in (("src/models/load.py", MODEL), ("settings.py", SETTINGS), ("src/run/main.py", "")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    main = tmp_path / "src/run/main.py"
    main.write_text(MAIN.replace("from model import", "from src.models.load import"))
    assert read_training_files((str(main),)).get("adapter.targets") == ("q_proj",)


def test_an_evaluation_under_unsloth_is_no_larger_than_a_training_batch(tmp_path: Path) -> None:
    text = (
        "from unsloth import FastLanguageModel\nmodel, t = FastLanguageModel.from_pretrained('unsloth/Llama-3.2-1B')\n"
        "args = TrainingArguments(eval_strategy='steps')\nSFTTrainer(model=model, args=args)\n"
    )
    text = text.replace("(eval_", "(per_device_train_batch_size=2, eval_")
    assert _read(tmp_path, main=text).get("options.eval_batch") == 2
    assert _read(tmp_path, main=text.replace("SFTTrainer", "Trainer")).get("options.eval_batch") == 8


def test_libraries_leave_room_for_files_beside_and_a_branch_that_is_off_loads_nothing(tmp_path: Path) -> None:
    libraries = "".join(f"from library_{n} import a, b, c\n" for n in range(9))
    model = (
        "def plain(name):\n    return AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.bfloat16)\n"
        "def narrow(name):\n    return AutoModelForCausalLM.from_pretrained(name, quantization_config=BitsAndBytesConfig("
        "load_in_4bit=True))\n"
    )
    main = (
        f"{libraries}from model import plain, narrow\nNARROW = False\n"
        "if NARROW:\n    model = narrow('gpt2')\nelse:\n    model = plain('gpt2')\n"
        "trainer = SFTTrainer(model=model, args=SFTConfig(per_device_train_batch_size=2))\n"
    )
    settings = _read(tmp_path, model=model, main=main)
    assert (settings.get("param_dtype"), settings.get("quant")) == ("bfloat16", None)


def test_adapters_of_a_function_beside_that_may_return_nothing_are_none(tmp_path: Path) -> None:
    made = (
        "def get_peft_config(args):\n    if args.use_peft is False:\n        return None\n    return LoraConfig(r=args.lora_r)\n"
    )
    main = (
        "from made import get_peft_config\nargs = DPOConfig(per_device_train_batch_size=2)\n"
        "trainer = DPOTrainer(model='gpt2', args=args, peft_config=get_peft_config(model_args))\n"
    )
    assert _read(tmp_path, made=made, main=main).get("adapter.on") is None
    assert _read(tmp_path, made=made.replace("args.use_peft is False", "False"), main=main).get("method") == "lora"
