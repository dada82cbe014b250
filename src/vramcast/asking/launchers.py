"""What stands before a script on its command line: a launcher, with flags of its own that say how many processes it starts."""

import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from vramcast.errors import QuestionError

_PYTHONS = {"python", "python3"}
_LAUNCHERS = {"torchrun", "accelerate", "deepspeed"}
_LAUNCHING_MODULES = {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"}
_LONGEST_FIRST_LINE = 1024
_WRAPPERS = {
    "env", "exec", "hatch", "horovodrun", "mpiexec", "mpirun", "nice", "nohup", "numactl", "pdm", "pipenv", "poetry",
    "srun", "time", "uv",
}  # fmt: skip
_WRAPPERS_COUNTS = {"n", "np", "ntasks"}
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_COUNTS = {"nproc_per_node", "nnodes", "num_processes", "num_gpus", "num_nodes"}


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """A script as ``python`` would be given it; ``processes``: how many a launcher starts, 0 where none was named.

    ``environment``: variables that stand before it, as a shell takes them.
    """

    argv: tuple[str, ...]
    processes: int = 0
    environment: dict[str, str] = {}


def read_launch(words: tuple[str, ...]) -> Launch:
    """The script (or ``-m`` module) and its arguments, and what its launcher was told. Raises QuestionError without a script."""
    before, words = _unwrapped(words)
    if not before:
        return _launched(words)
    launch = _launched(words)
    assigned = dict(word.split("=", 1) for word in before if _ASSIGNMENT.fullmatch(word))
    counts = [int(value) for name, value in _given(before) if name in _WRAPPERS_COUNTS and value.isdigit()]
    return msgspec.structs.replace(launch, environment=assigned, processes=max([launch.processes, *counts]))


def _unwrapped(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What stands before the program itself (variables, ``mpirun -n 8``, ``uv run``), and the rest."""
    if not words or not (_ASSIGNMENT.fullmatch(words[0]) or Path(words[0]).name in _WRAPPERS):
        return (), words
    programs = (i for i, word in enumerate(words) if Path(word).name in _PYTHONS | _LAUNCHERS or word.endswith(".py"))
    start = next(programs, 0)
    return words[:start], words[start:]


def _launched(words: tuple[str, ...]) -> Launch:
    start, name = _script(words), Path(words[0]).name if words else ""
    if program := _installed(name):
        counted = any(given in _COUNTS for given, _ in _given(words))
        return Launch(argv=(program, *words[1:]), processes=_processes(words) if counted else 0)
    if start is None or not (name in _PYTHONS | _LAUNCHERS or name.endswith(".py")):
        raise QuestionError(f"{' '.join(words)[:80]!r} names no script: write vramcast trace -- python train.py ...")
    before = words[:start]
    module = words[start] in {"-m", "--module"}
    argv = ("-m", *words[start + 1 :]) if module else words[start:]
    launched = name in _LAUNCHERS or _LAUNCHING_MODULES.intersection(before)
    if name == "deepspeed" and not module and "--no_local_rank" not in before:
        argv = (*argv[:1], "--local_rank=0", *argv[1:])  # deepspeed 0.19, launcher/launch.py
    return Launch(argv=argv, processes=_processes(before) if launched else 0)


def _installed(name: str) -> str:
    """Where the program stands that a Python package put on the path (tune, litgpt, llamafactory-cli); "" for any other."""
    found = None if name in _PYTHONS | _LAUNCHERS or name.endswith(".py") else shutil.which(name)
    if found is None:
        return ""
    with Path(found).open("rb") as program:
        return found if re.match(rb"#!.*python", program.readline(_LONGEST_FIRST_LINE)) else ""


def _script(words: tuple[str, ...]) -> int | None:
    """Where the first ``.py`` file or ``-m`` stands; a module that only launches is passed over."""
    for place, word in enumerate(words):
        if word.endswith(".py"):
            return place
        if word in {"-m", "--module"} and words[place + 1 : place + 2] and words[place + 1] not in _LAUNCHING_MODULES:
            return place
    return None


def _processes(flags: Iterable[str]) -> int:
    """Nodes times processes (or cards) on each, or accelerate's count of all; what is no number ("gpu", "1:4") counts once."""
    counts = {name: int(value) for name, value in _given(flags) if name in _COUNTS and value.isdigit()}
    each = counts.get("nproc_per_node") or counts.get("num_gpus") or 1
    return counts.get("num_processes") or each * (counts.get("nnodes") or counts.get("num_nodes") or 1)


def _given(flags: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Flags with their values, in both spellings: ``--a-b=1`` and ``--a_b 1``."""
    words = list(flags)
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.lstrip("-").partition("=")
        yield name.replace("-", "_"), value if equals else following
