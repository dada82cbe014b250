"""What a third sample of public training files had: Markdown, nested commands, older names, programs' own flags."""

from pathlib import Path

import pytest

from vramcast.errors import QuestionError
from vramcast.reading.kinds import kinds_of, taken_for
from vramcast.reading.training.files import read_training_files, read_training_text

README = """# Tune
```bash
pip install x
```
```bash
MODEL="a/b"
deepspeed tune.py --model_name_or_path $MODEL --per_device_train_batch_size 16 --model_max_length 1024 --bf16 True
```
"""


def test_a_command_in_markdown(tmp_path: Path) -> None:
    file = tmp_path / "README.md"
    file.write_text(README)
    values = read_training_files((str(file),)).values
    assert (values["model"], values["micro_batch"], values["seq"]) == ("a/b", 16, 1024)
    taken = taken_for(kinds_of(README.encode(), "README.md"))
    assert taken is not None
    assert taken.command == ("train", "--from")


def test_markdown_without_a_command_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "README.md"
    file.write_text("# Nothing\n```bash\nls\n```\n")
    with pytest.raises(QuestionError, match="no fenced block that trains"):
        read_training_files((str(file),))


def test_torchtitans_mode_none_is_no_checkpointing(tmp_path: Path) -> None:
    file = tmp_path / "flame.toml"
    file.write_text(
        "[training]\nbatch_size = 32\nseq_len = 2048\ntensor_parallel_degree = 2\n"
        '[experimental]\npipeline_parallel_degree = 4\n[activation_checkpoint]\nmode = "none"\n'
    )
    values = read_training_files((str(file),)).values
    assert (values["checkpointing"], values["parallel.tp"], values["parallel.pp"]) == ("none", 2, 4)


def test_a_command_inside_a_shells_own_words() -> None:
    text = """
options=" --tensor-model-parallel-size 8 --num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 \\
  --micro-batch-size 1 --global-batch-size 1536 --fp16 --activations-checkpoint-method uniform "
run_cmd="python -u pretrain_gpt.py ${options}"
srun -l --container-image nvcr.io/nvidia/pytorch sh -c "${run_cmd}"
"""
    values = read_training_text(text).values
    assert (values["parallel.tp"], values["shape.layers"], values["checkpointing"]) == (8, 96, "full")


@pytest.mark.parametrize(
    ("flags", "name", "value"),
    [
        ("--lora_rank 8 --lora_alpha 16", "adapter.rank", 8),
        ("--use_llm_lora 32", "adapter.rank", 32),
        ("--lora_dim 8", "adapter.rank", 8),
        ("--grad_checkpoint True", "checkpointing", "full"),
        ("--zero_stage 3", "zero", 3),
        ("--precision fp16", "compute_dtype", "float16"),
    ],
)
def test_flags_of_programs_that_people_copy(flags: str, name: str, value: object) -> None:
    line = f"torchrun --nproc_per_node 2 tune.py --model_name_or_path a/b --per_device_train_batch_size 2 {flags}"
    assert read_training_text(line).values[name] == value
