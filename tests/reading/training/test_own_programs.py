"""Programs of people's own that a script starts: what stands for them, and the line that names what is assumed."""

from pathlib import Path

import pytest

from vramcast.errors import QuestionError
from vramcast.reading.training.files import read_training_files
from vramcast.reading.training.settings import Settings

FLAGS = "--model_name_or_path org/chat-7b --per_device_train_batch_size 2"


def _read(folder: Path, text: str, name: str = "run.sh") -> Settings:
    (folder / name).write_text(text)
    return read_training_files((str(folder / name),))


def _told(settings: Settings) -> str:
    return f"{settings.get('program', '')}: {settings.because.get('program', '')}"


def test_each_thing_that_is_assumed_of_an_unseen_program_is_named_with_its_flag(tmp_path: Path) -> None:
    line = _told(_read(tmp_path, f"torchrun work.py {FLAGS} --bf16 True --optim adafactor --use_lora True\n"))
    assert all(flag in line for flag in ("--targets", "--checkpointing", "--seq", "--from"))
    assert not any(flag in line for flag in ("--method", "--optimizer", "--compute-dtype", "--micro-batch"))


def test_a_program_at_hand_that_says_nothing_is_told_and_one_that_says_all_is_not(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("print('no step')\n")
    settings = _read(tmp_path, f"torchrun work.py {FLAGS}\n")
    assert "at hand, but nothing" in _told(settings)
    assert "--from" not in _told(settings)
    (tmp_path / "work.py").write_text("trainer = Trainer(model=model, args=TrainingArguments(gradient_checkpointing=True))\n")
    assert _told(_read(tmp_path, f"torchrun work.py {FLAGS}\n")) == ": "


@pytest.mark.parametrize(
    ("program", "framework", "seq"),
    [("run_clm.py", "hf_trainer", 1024), ("work.py", "hf_trainer", None), ("train_sft.py", "trl", 1024), ("sft.py", "trl", 1024)],
)
def test_a_data_set_s_name_is_trl_s_where_the_program_does_not_say_otherwise(
    tmp_path: Path, program: str, framework: str, seq: int | None
) -> None:
    settings = _read(tmp_path, f"python {program} {FLAGS} --dataset_name wikitext --learning_rate 1e-4\n")
    assert (settings.get("framework"), settings.get("seq")) == (framework, seq)


def test_flags_of_llava_are_its_own_under_another_folder(tmp_path: Path) -> None:
    flags = "--lora_enable True --mm_projector_type mlp2x_gelu --mm_use_im_start_end False --mm_vision_select_layer -2"
    settings = _read(tmp_path, f"deepspeed mine/train_mem.py {FLAGS} {flags}\n")
    assert (settings.get("adapter.targets"), settings.get("adapter.rank")) == (("all-linear",), 64)
    assert _read(tmp_path, f"deepspeed mine/train.py {FLAGS} --lora_enable True\n").get("adapter.targets") == ("q_proj", "v_proj")


def test_flags_of_a_tool_under_a_program_of_one_s_own_are_told(tmp_path: Path) -> None:
    flags = f"{FLAGS} --stage sft --template llama2 --cutoff_len 700 --finetuning_type lora"
    assert "--targets" in _told(_read(tmp_path, f"torchrun src/finetune.py {flags}\n"))
    assert _told(_read(tmp_path, f"torchrun src/train_bash.py {flags}\n")) == ": "


def test_a_model_s_own_configuration_is_no_training_configuration(tmp_path: Path) -> None:
    shape = '"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 1000, "model_type": "llama"'
    (tmp_path / "small.json").write_text(f'{{{shape}, "torch_dtype": "bfloat16"}}')
    settings = _read(tmp_path, "torchrun work.py --model_config small.json --per_device_train_batch_size 2 --learning_rate 1\n")
    assert settings.get("model", "").endswith("small.json")
    assert settings.get("framework") != "megatron"
    settings = _read(tmp_path, f"torchrun work.py {FLAGS} --model_config small.json\n")
    assert settings.get("model") == "org/chat-7b"


def test_what_prepares_the_data_stands_behind_the_program_that_trains(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("trainer = Trainer(model=model, args=TrainingArguments(gradient_checkpointing=True))\n")
    for name in ("fetch.py", "cut.py"):
        (tmp_path / name).write_text("print('data')\n")
    settings = _read(tmp_path, f"python fetch.py\npython cut.py\npython train.py {FLAGS} --num_train_epochs 1\n")
    assert settings.get("checkpointing") == "full"


GPT = (
    "from model import GPT\nbatch_size = 12\nn_layer = 12\nn_head = 12\nn_embd = 768\nblock_size = 1024\n"
    "learning_rate = 6e-4\nmax_iters = 10\nexec(open('configurator.py').read())\n"
    "loss.backward()\noptimizer.step()\n"
)


def test_a_file_that_a_program_executes_over_its_constants_gives_its_sizes(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(GPT)
    script = "torchrun --nproc_per_node=8 train.py config/large.py --batch_size=5\n"
    assert set(_read(tmp_path, script).absent) == {"large.py"}  # the program's own sizes are none of this run
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "large.py").write_text("n_layer = 48\nn_head = 25\nn_embd = 64 * 25\nbatch_size = 4\n")
    settings = _read(tmp_path, script)
    shape = {name: settings.get(f"shape.{name}") for name in ("layers", "heads", "hidden")}
    assert shape == {"layers": 48, "heads": 25, "hidden": 1600}
    assert (settings.get("micro_batch"), settings.get("global_batch")) == (5, None)
    assert any(line.startswith("optimizer (none known") for line in settings.unread)


def test_a_length_without_a_limit_is_told_and_a_size_below_one_names_its_key(tmp_path: Path) -> None:
    flags = "swift sft --model org/chat-7b --train_type lora"
    settings = _read(tmp_path, f'{flags} --max_length "-1"\n')
    assert any(line.startswith("max_length (-1") and line.endswith("says it)") for line in settings.unread)
    with pytest.raises(QuestionError, match=r"lora_rank.* is .*-1"):
        _read(tmp_path, f"{flags} --lora_rank -1\n")


@pytest.mark.parametrize(("stage", "loss", "task"), [("dpo", "simpo", "orpo"), ("dpo", "sigmoid", "dpo"), ("sft", "orpo", "sft")])
def test_llama_factory_s_losses_without_a_reference(tmp_path: Path, stage: str, loss: str, task: str) -> None:
    text = f"llamafactory-cli train --stage {stage} --pref_loss {loss} --model_name_or_path org/chat-7b --cutoff_len 512\n"
    assert _read(tmp_path, text).get("options.task") == task
