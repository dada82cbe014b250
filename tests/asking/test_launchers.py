"""What a launcher's command line says: the script, and how many processes it starts."""

from pathlib import Path

import pytest

from vramcast.asking.launchers import Launch, read_launch
from vramcast.errors import QuestionError


@pytest.mark.parametrize(
    ("line", "argv", "processes"),
    [
        ("train.py --lr 1", "train.py --lr 1", 0),
        ("/usr/bin/python3 train.py", "train.py", 0),
        ("python -m package.train --config a.yaml", "-m package.train --config a.yaml", 0),
        ("torchrun --nproc_per_node=8 train.py", "train.py", 8),
        ("torchrun --nnodes 2 --nproc-per-node 8 --rdzv_backend c10d -m a.train --steps 2", "-m a.train --steps 2", 16),
        ("torchrun --nproc_per_node gpu --module a.b", "-m a.b", 1),
        ("python -m torch.distributed.run --nproc_per_node 4 train.py --nnodes 3", "train.py --nnodes 3", 4),
        ("accelerate launch --num_processes 16 --num_machines 2 train.py", "train.py", 16),
        ("accelerate launch -m trl.cli", "-m trl.cli", 1),
        ("deepspeed --num_gpus 8 --num_nodes=2 train.py --deepspeed", "train.py --local_rank=0 --deepspeed", 16),
        ("deepspeed --no_local_rank train.py", "train.py", 1),
    ],
)  # fmt: skip
def test_the_script_is_found_behind_its_launcher(line: str, argv: str, processes: int) -> None:
    assert read_launch(tuple(line.split())) == Launch(argv=tuple(argv.split()), processes=processes)


@pytest.mark.parametrize(
    ("line", "argv", "processes", "environment"),
    [
        ("A=1 B=x=y python train.py", "train.py", 0, {"A": "1", "B": "x=y"}),
        ("mpiexec -n 8 python train.py --n 3", "train.py --n 3", 8, {}),
        ("env OMP_NUM_THREADS=1 torchrun --nproc_per_node 4 train.py", "train.py", 4, {"OMP_NUM_THREADS": "1"}),
        ("uv run train.py", "train.py", 0, {}),
        ("srun --ntasks=16 python -m a.b C=3", "-m a.b C=3", 16, {}),
    ],
)
def test_what_stands_before_the_launcher_is_taken_as_a_shell_takes_it(
    line: str, argv: str, processes: int, environment: dict[str, str]
) -> None:
    read = read_launch(tuple(line.split()))
    assert read == Launch(argv=tuple(argv.split()), processes=processes, environment=environment)


@pytest.mark.parametrize("line", ["bash train.sh", "torchrun --nproc_per_node 8", "python -m", "python -m torch.distributed.run"])
def test_a_line_without_a_script_is_refused(line: str) -> None:
    with pytest.raises(QuestionError, match=r"names no script: write vramcast trace -- python train\.py"):
        read_launch(tuple(line.split()))


@pytest.mark.parametrize(
    ("line", "processes"), [("tune run recipe --config a.yaml", 0), ("tune run --nproc_per_node 4 recipe --config a.yaml", 4)]
)
def test_a_program_that_a_package_installed_is_a_script(
    line: str, processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "tune"
    program.write_text("#!/usr/bin/env python3\nimport torchtune\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_launch(tuple(line.split())) == Launch(argv=(str(program), *line.split()[1:]), processes=processes)
