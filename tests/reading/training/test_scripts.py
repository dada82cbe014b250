"""Scripts whole: those that hand over to others beside them, Makefiles, images that train."""

from pathlib import Path

import pytest

from vramcast.reading.kinds import kinds_of, taken_for
from vramcast.reading.training.files import read_training_files
from vramcast.reading.training.settings import Settings

TRAIN = "torchrun --nproc_per_node $1 work.py --model_name_or_path $MODEL --per_device_train_batch_size ${BATCH:-4} --lr 1e-4\n"


def _read(folder: Path, name: str, **files: str) -> Settings:
    for other, text in files.items():
        (folder / other.replace("__", "/").replace("_sh", ".sh")).write_text(text)
    return read_training_files((str(folder / name),))


@pytest.mark.parametrize(
    ("calls", "gpus", "batch"),
    [
        ("export MODEL=org/chat-7b\nBATCH=2 bash train.sh 8\n", 8, 2),
        ("source names.sh\n./train.sh 2\n", 2, 4),
        ("export MODEL=org/chat-7b\ncd inner && nohup sh train.sh 1 > log &\n", 1, 16),
        ("export MODEL=org/chat-7b\n/home/else/inner/train.sh 3\n", 3, 16),
    ],
)
def test_a_script_beside_is_read_with_what_it_is_given(tmp_path: Path, calls: str, gpus: int, batch: int) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "train.sh").write_text(TRAIN.replace(":-4", ":-16"))
    settings = _read(tmp_path, "run.sh", run_sh=calls, train_sh=TRAIN, names_sh="export MODEL=org/chat-7b\n")
    assert (settings.get("model"), settings.get("gpus"), settings.get("micro_batch")) == ("org/chat-7b", gpus, batch)
    kind = taken_for(kinds_of(calls.encode(), "run.sh", folder=tmp_path))
    assert kind is not None
    assert kind.command == ("train", "--from")


def test_scripts_that_call_each_other_end(tmp_path: Path) -> None:
    settings = _read(tmp_path, "a.sh", a_sh=f"MODEL=org/chat-7b\nbash b.sh\n{TRAIN}", b_sh="bash a.sh\n")
    assert settings.get("model") == "org/chat-7b"


def test_recipes_of_a_makefile_have_its_variables(tmp_path: Path) -> None:
    text = (
        "PY := python\nMODEL ?= org/chat-7b\nhelp:\n\t@echo use\n"
        "train: data\n\t$(PY) train.py --model_name_or_path $(MODEL) --per_device_train_batch_size 2 --num_train_epochs 1\n"
    )
    settings = _read(tmp_path, "Makefile", Makefile=text)
    assert (settings.get("model"), settings.get("micro_batch")) == ("org/chat-7b", 2)


def test_what_an_image_starts_is_read_with_the_script_beside(tmp_path: Path) -> None:
    text = 'FROM pytorch/pytorch\nENV MODEL=org/chat-7b\nCOPY train.sh /app/\nCMD ["./train.sh", "4"]\n'
    settings = _read(tmp_path, "Dockerfile", Dockerfile=text, train_sh=TRAIN)
    assert (settings.get("model"), settings.get("gpus")) == ("org/chat-7b", 4)


def test_a_file_of_a_program_s_own_that_sets_no_training_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("api:\n  host: a\n  model_name: org/other-7b\nlogging:\n  level: INFO\n")
    settings = _read(tmp_path, "run.sh", run_sh="python train_llm.py --config config.yaml\n")
    assert "config.yaml (no training configuration known here)" in settings.unread
    assert not settings.by_the_way


TAKES = ("--model) MODEL=$2; shift 2 ;;", "--batch) BATCH=$2; shift; shift ;;", "*) exit 1 ;;")
LINES = "\n".join(TAKES)


@pytest.mark.parametrize(
    "loop",
    [
        f'while (( "$#" )); do\n  case "$1" in\n{LINES}\n  esac\ndone\n',
        f"while [[ $# -gt 0 ]]; do case $1 in {' '.join(TAKES)} esac; done\n",
    ],
)
def test_a_loop_over_a_script_s_own_words_takes_all_of_them(tmp_path: Path, loop: str) -> None:
    settings = _read(tmp_path, "run.sh", run_sh="bash train.sh --model org/chat-7b --batch 2\n", train_sh=f"{loop}{TRAIN}")
    assert (settings.get("model"), settings.get("micro_batch")) == ("org/chat-7b", 2)


def test_getopts_takes_the_words_of_its_letters(tmp_path: Path) -> None:
    loop = 'while getopts "m:b:f" opt; do\n  case $opt in\n    m) MODEL=$OPTARG ;;\n    b) BATCH=$OPTARG ;;\n  esac\ndone\n'
    settings = _read(tmp_path, "run.sh", run_sh="bash train.sh -f -m org/chat-7b -b2\n", train_sh=f"{loop}{TRAIN}")
    assert (settings.get("model"), settings.get("micro_batch")) == ("org/chat-7b", 2)


def test_a_loop_that_shifts_nothing_ends(tmp_path: Path) -> None:
    settings = _read(
        tmp_path, "run.sh", run_sh="bash train.sh --x 1\n", train_sh=f"while [ $# -gt 0 ]; do MODEL=org/chat-7b\ndone\n{TRAIN}"
    )
    assert settings.get("model") == "org/chat-7b"


def test_a_program_s_defaults_stand_behind_the_file_that_its_command_names(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(
        "train:\n  per_device_train_batch_size: 1\n  gradient_checkpointing: false\n  num_train_epochs: 1\n"
    )
    (tmp_path / "work.py").write_text(
        "cfg = load(args.config)['train']\nargs = TrainingArguments(\n"
        "    per_device_train_batch_size=cfg.get('per_device_train_batch_size', 2),\n"
        "    gradient_checkpointing=bool(cfg.get('gradient_checkpointing', True)))\ntrainer = Trainer(model=model, args=args)\n"
    )
    settings = _read(tmp_path, "run.sh", run_sh="accelerate launch work.py --config own.yaml\n")
    assert (settings.get("micro_batch"), settings.get("checkpointing")) == (1, "none")


def test_a_launcher_s_own_file_stands_behind_the_program(tmp_path: Path) -> None:
    launcher = "distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_processes: 2\nnum_machines: 1\n"
    (tmp_path / "launch.yaml").write_text(launcher)
    (tmp_path / "work.py").write_text("args = TrainingArguments(fp16=True)\ntrainer = Trainer(model=model, args=args)\n")
    settings = _read(tmp_path, "run.sh", run_sh="accelerate launch --config_file launch.yaml work.py --out x\n")
    assert (settings.get("compute_dtype"), settings.get("gpus")) == ("float16", 2)


@pytest.mark.parametrize(
    ("command", "trains"),
    [
        ("torchrun eval.py --model_name_or_path org/chat-7b --batch_size 8", False),
        ('srun bash -c "torchrun --nproc_per_node 4 eval_harness.py --batch_size 8"', False),
        ("accelerate launch -m lm_eval --model hf --batch_size 8", False),
        ('echo "torchrun train.py --learning_rate 1e-4"', False),
        ("torchrun eval.py --model_name_or_path org/chat-7b --per_device_train_batch_size 8 --learning_rate 1e-4", True),
        ("torchrun train_eval.py --model_name_or_path org/chat-7b --per_device_train_batch_size 8", True),
        ("torchrun retrieval.py --model_name_or_path org/chat-7b --per_device_train_batch_size 8", True),
    ],
)
def test_a_program_that_evaluates_by_its_name_trains_nothing(command: str, trains: bool) -> None:
    kind = taken_for(kinds_of(f"{command}\n".encode(), "run.sh"))
    assert (kind is not None and kind.command == ("train", "--from")) is trains
