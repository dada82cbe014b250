"""What a SLURM job's header asks for, and the variables that the job starter sets from it.

Source: Slurm 24.11, sbatch(1), "OUTPUT ENVIRONMENT VARIABLES" (SLURM_NNODES, SLURM_NTASKS, SLURM_GPUS_ON_NODE ...).
"""

import re
from collections.abc import Mapping, Sequence

import msgspec

_LINE = re.compile(r"^[ \t]*#SBATCH[ \t]+(.+)$", re.M)
_ASKED = re.compile(r"(--?[\w-]+)(?:=|[ \t]+)?([^\s#]*)")
_SHORT = {"-N": "--nodes", "-n": "--ntasks", "-G": "--gpus"}
_MOST = 200


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes, tasks and cards that a job asks for; 0 where it does not say."""

    nodes: int = 0
    tasks_each: int = 0
    tasks: int = 0
    cards_each: int = 0
    cards: int = 0

    @property
    def all_cards(self) -> int:
        """Cards of the whole job; 0 where it does not say."""
        return self.cards or self.cards_each * max(1, self.nodes)

    def environment(self) -> dict[str, str]:
        """The variables that the job starter sets; none for a script that asks for nothing."""
        each = self.cards_each or (self.cards // max(1, self.nodes))
        tasks = self.tasks or self.tasks_each * max(1, self.nodes)
        nodes = self.nodes or (1 if each or tasks else 0)
        counts = {
            "SLURM_NNODES": nodes, "SLURM_JOB_NUM_NODES": nodes, "SLURM_NTASKS": tasks, "SLURM_NPROCS": tasks,
            "SLURM_NTASKS_PER_NODE": self.tasks_each, "SLURM_TASKS_PER_NODE": self.tasks_each, "SLURM_GPUS_ON_NODE": each,
            "SLURM_GPUS_PER_NODE": each, "SLURM_GPUS": self.all_cards,
        }  # fmt: skip
        return {name: str(count) for name, count in counts.items() if count}


def job_of(text: str) -> Job:
    """The job that a script's header asks for."""
    options: dict[str, str] = {}
    for line in _LINE.findall(text)[:_MOST]:
        for name, value in _ASKED.findall(line):
            options.setdefault(_SHORT.get(name, name), value)
    return job_of_options(options)


def job_of_options(options: Mapping[str, str]) -> Job:
    """The job that these options of ``sbatch`` or ``srun`` ask for."""
    each = _cards(options.get("--gpus-per-node", "")) or _cards(options.get("--gres", ""))
    tasks_each = _number(options.get("--ntasks-per-node", ""))
    by_task = _number(options.get("--gpus-per-task", "")) * max(1, tasks_each)
    return Job(
        nodes=_number(options.get("--nodes", "").split("-")[0]),
        tasks_each=tasks_each,
        tasks=_number(options.get("--ntasks", "")),
        cards_each=each or by_task,
        cards=_cards(options.get("--gpus", "")),
    )


def options_of(words: Sequence[str]) -> dict[str, str]:
    """The options among a command's words, by their long name."""
    found: dict[str, str] = {}
    for place, word in enumerate(words):
        if word.startswith("-"):
            name, equals, value = word.partition("=")
            following = words[place + 1] if place + 1 < len(words) else ""
            found.setdefault(_SHORT.get(name, name), value if equals else "" if following.startswith("-") else following)
    return found


def _number(text: str) -> int:
    return int(text) if re.fullmatch(r"\d{1,6}", text) else 0


def _cards(text: str) -> int:
    """``gpu:a100:4``, ``a100:4``, ``gpu:4`` or ``4``."""
    last = text.split(",", maxsplit=1)[0].rpartition(":")[2]
    return _number(re.sub(r"\(.*\)$", "", last)) if not text.startswith(("tmp", "lustre")) else 0
