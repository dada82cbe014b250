"""What a SLURM job's header asks for, and the variables that the job starter sets from it.

Source: Slurm 24.11, sbatch(1), "OUTPUT ENVIRONMENT VARIABLES" (SLURM_NNODES, SLURM_NTASKS, SLURM_GPUS_ON_NODE ...).
"""

import re
from collections.abc import Mapping, Sequence

import msgspec

_LINE = re.compile(r"^[ \t]*#SBATCH[ \t]+(.+)$", re.M)
_ASKED = re.compile(r"(?:^|(?<=\s))(-[NnG](?=[\w=])|--?[\w-]+)(?:=|[ \t]+)?([^\s#]*)")
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
    nodes, tasks = _number(options.get("--nodes", "").split("-")[0]), _number(options.get("--ntasks", ""))
    by_task = _cards(options.get("--gpus-per-task", ""))
    # --ntasks-per-node is the most that a node takes where --ntasks says how many there are
    all_by_task = by_task * (tasks or tasks_each * max(1, nodes) or max(1, nodes)) if not each else 0
    return Job(
        nodes=nodes,
        tasks_each=tasks_each,
        tasks=tasks,
        cards_each=each,
        cards=_cards(options.get("--gpus", "")) or all_by_task,
    )


def options_of(words: Sequence[str]) -> dict[str, str]:
    """The options among a command's words, by their long name."""
    found: dict[str, str] = {}
    for place, word in enumerate(words):
        if word.startswith("-"):
            name, equals, value = word.partition("=")
            if word[:2] in _SHORT and len(word) > 2:  # -N2, written together
                name, equals, value = word[:2], "=", word[2:].lstrip("=")
            following = words[place + 1] if place + 1 < len(words) else ""
            found.setdefault(_SHORT.get(name, name), value if equals else "" if following.startswith("-") else following)
    return found


def _number(text: str) -> int:
    return int(text) if re.fullmatch(r"\d{1,6}", text) else 0


def _cards(text: str) -> int:
    """Cards of ``gpu:a100:4``, ``a100:4``, ``gpu:4``, ``4``, or in a list (``lscratch:100,gpu:4``); ``gpu`` is one."""
    parts = [re.sub(r"\(.*\)$", "", part) for part in re.split(r",(?![^(]*\))", text)]
    named = [part for part in parts if part.partition(":")[0] == "gpu"]
    if not named and len(parts) == 1 and not parts[0].startswith(("tmp", "lustre", "lscratch", "disk", "ssd", "nvme")):
        named = parts
    return sum(1 if part == "gpu" else _number(part.rpartition(":")[2]) for part in named)
