"""Training scripts and command lines as flags: variables, arrays and continuations are resolved, nothing is run."""

import re
from typing import Any

import msgspec

from vramcast.errors import QuestionError
from vramcast.reading.shell import open_names
from vramcast.reading.shell.slurm import job_of, job_of_options, options_of
from vramcast.reading.training.scripts import Source, nothing_beside, whole_script
from vramcast.reading.training.starting import (
    is_launcher,
    other_verb,
    program_run,
    says_how,
    starts_alone,
    starts_ray,
    trains,
    trains_by_name,
    words_run,
)
from vramcast.reading.training.tables import program_named
from vramcast.untrusted import whole_number

PROGRAMS = {
    "pretrain_": "megatron", "llamafactory-cli": "llama_factory", "llamafactory": "llama_factory", "axolotl": "axolotl",
    "swift": "ms_swift", "tune": "torchtune", "litgpt": "litgpt", "composer": "llm_foundry",
}  # fmt: skip
_QUIET = ("echo", "mkdir", "cd", "sleep", "export", "set", "cat", "rm", "cp", "pip", "source", "module", "printf", "tee")
_RUN_BY_NAME = (".py", ".slurm", ".sbatch")  # what a further command with flags runs again
_OF_SETTINGS = re.compile(r"conf|cfg|deepspeed|(?:^|[_.])ds_|zero|recipe|setting|param|args|fsdp|module")
_OF_TRL = ("sft.py", "dpo.py", "grpo.py", "kto.py", "orpo.py", "reward_modeling.py")
_MOST_FOLDERS = 4
_A_RUN = 3  # flags of a command that runs something of its own
_JOB_CARDS = "#cards of the job"  # no variable's name: what SLURM was asked for
_MORE_FLAGS = re.compile(r"\$\{\w*(?:ARGS?|OPTS?|OPTIONS|FLAGS|ARGUMENTS)\}", re.I)  # an open array of further flags
_SWIFT = re.compile(r"(?:^|/)swift[./]cli[./](?:sft|rlhf|pt)(?:\.py)?$")  # the module behind the command of the same name
END = ";"  # of a statement or an array: a switch there takes no value
_COMMAND = re.compile(
    r"(?:^|[\s;&/])(?:python[\d.]*|torchrun|deepspeed|accelerate|swift|llamafactory-cli|axolotl)\s.*\s(?:--\w|\+{0,2}[a-z]\w*(?:\.\w+)+=)",
    re.S,
)
_FILES = (".yaml", ".yml", ".toml", ".json")
_FILE_FLAGS = {"config_file": "accelerate", "config": "", "deepspeed": "deepspeed", "deepspeed_config": "deepspeed"}


class Command(msgspec.Struct, kw_only=True):
    """What a script asks for: the program's own name here, its flags by python name, files it points to, ``key=value`` words.

    ``more``: further commands of the same program, which are not read; ``elsewhere``: arrays of flags that another file holds;
    ``written``: the texts of files that the script itself writes; ``scripts``: Python files that it runs;
    ``objective``: the program's own name, which may tell what is trained for; ``folders``: those that it changes to before;
    ``handed``: Python files that the first program is given as words of its own.
    """

    program: str = ""
    flags: dict[str, Any] = {}
    files: list[str] = []
    overrides: dict[str, str] = {}
    gpus: int | None = None
    task: str = ""
    more: int = 0
    elsewhere: list[str] = []
    written: dict[str, str] = {}
    scripts: list[str] = []
    objective: str = ""
    folders: list[str] = []
    handed: list[str] = []

    def configures(self, file: str) -> bool:
        """Whether a file that the command names holds settings: JSON behind a flag of data, outputs or tokens does not."""
        flags = [name for name, value in self.flags.items() if value == file or (isinstance(value, list) and file in value)]
        words = [name for name, value in self.overrides.items() if file in (value, f"{name}={value}")]
        named = [*flags, *words]
        return not (file.endswith(".json") and named) or any(map(_OF_SETTINGS.search, named))


def read_command(text: str, source: Source = nothing_beside) -> Command:
    """The flags of a script; ``source``: the texts of scripts that it calls. Raises QuestionError when it has none."""
    words, known, written, folders = _words(text, source)
    words, more = _first_of_each(words)
    commands = sorted(_commands(words), key=_prepares)
    scripts = [word for one in commands for word in _files_run(one)] or starts_alone(text, source)
    handed = [word for one in commands[:1] for word in _files_run(one)[1:]]
    command = Command(more=more, written=written, scripts=scripts, folders=folders, handed=handed)
    for one in commands:
        command.program = command.program or program_run(one)
        own = (word for word in words_run(one) if word.endswith(".py") or program_named(word))
        command.objective = command.objective or next(own, "").rsplit("/", 1)[-1]
    for i, word in enumerate(words):
        _program(command, word, words[i + 1] if i + 1 < len(words) else "")
    _flags(command, words)
    _cards(command, known)
    if not command.flags:  # a file of arguments for another script: VARIABLE="--flag value ..."
        kept = [
            value for value in known.values() if len(re.findall(r"(?:^|\s)--[a-z]", value)) >= _A_RUN or value.startswith("--")
        ]
        _flags(command, [word for value in kept for word in (*value.split(), END)])
    if not (command.flags or command.files or command.overrides or starts_alone(text, source)):
        raise QuestionError("no flag (--name value) was found in that script: give a command line or a configuration file")
    return command


def _prepares(words: list[str]) -> int:
    """Where a command stands by what it does: 0 for one that trains by its flags, 1 by its program's name, 2 for others."""
    named = any(map(trains_by_name, _files_run(words)[:1]))
    return 0 if trains(tuple(words)) else 1 if named else 2


def _first_of_each(words: list[str]) -> tuple[list[str], int]:
    """The words of the command that trains, with those that start nothing else, and how many further ones train.

    Left out beside it: Python programs that do not train (an evaluation, a conversion), the other verbs of a training tool.
    """
    commands = _commands(words)
    scripts = [next((part for part in one if part.endswith(_RUN_BY_NAME)), "") for one in commands]
    run = [*map(trains, map(tuple, commands))]
    if not any(run):  # none says how it trains: those that train by their names do
        run = [bool(trains_by_name(script)) for script in scripts]
    first = _first_that_says(commands, run)
    kept: list[str] = []
    more = 0
    for place, (one, script) in enumerate(zip(commands, scripts, strict=True)):
        further = first is not None and place != first and (run[place] or (bool(script) and script == scripts[first]))
        other = any(run) and not run[place] and (_is_python(script, one) or other_verb(one))
        more += further
        if not further and not other:
            kept += [*one, END]
    return kept, more


def _first_that_says(commands: list[list[str]], run: list[bool]) -> int | None:
    """The first command that trains and says how, by flags of its own or a file of settings; else the first that trains."""
    training = [place for place, one in enumerate(run) if one]
    said = {place: says_how(commands[place]) or any(word.endswith(_FILES) for word in commands[place]) for place in training}
    return max(training, key=lambda place: (said[place], -place), default=None)


def _is_python(script: str, words: list[str]) -> bool:
    """Whether a command runs a Python program with flags, or a module."""
    return (script.endswith(".py") and any(part.startswith("-") for part in words)) or bool({"-m", "--module"} & set(words))


def _files_run(words: list[str]) -> list[str]:
    """The Python files that a command runs; a module of the repository's own by its path."""
    files = [word for word in words if word.endswith(".py") and not word.startswith("-")]
    modules = [word for word in words_run(words) if re.fullmatch(r"[a-z_]\w*(?:\.\w+)+", word) and not word.endswith(".py")]
    return files or [f"{word.replace('.', '/')}.py" for word in modules if not is_launcher(word) and not program_named(word)]


def _commands(words: list[str]) -> list[list[str]]:
    """The words between the ends of commands."""
    found: list[list[str]] = [[]]
    for word in words:
        if word == END:
            found.append([])
        else:
            found[-1].append(word)
    return [one for one in found if one]


def is_example(scripts: list[str]) -> bool:
    """Whether the first program bears the name of one of TRL's own example scripts, which set nothing beyond their flags."""
    return bool(scripts) and scripts[0].rsplit("/", 1)[-1] in _OF_TRL


def _program(command: Command, word: str, following: str) -> None:
    leaf = word.rsplit("/", 1)[-1]
    if leaf == "megatron" and following in ("sft", "rlhf", "pt"):
        command.program = command.program or "megatron_swift"
    if _SWIFT.search(word):
        command.program = command.program or "ms_swift"
    for name, program in PROGRAMS.items():
        if leaf == name or (name.endswith("_") and leaf.startswith(name)):
            command.program = command.program or program
    if leaf == "trl" or is_example([leaf]):
        command.program = command.program or "huggingface"
        command.task = command.task or (following if leaf == "trl" else leaf.split(".", 1)[0].split("_", 1)[0])
    if leaf.endswith(_FILES) and not word.startswith("-") and leaf not in ("tokenizer.json",):
        command.files.append(word)
    if re.fullmatch(r"\+{0,2}[A-Za-z_][\w.]*=\S+", word):  # Hydra adds a key by a plus
        name, _, value = word.lstrip("+").partition("=")
        if not name.isupper():  # CUDA_VISIBLE_DEVICES=0,1 is the environment's
            command.overrides[name] = value


def _flags(command: Command, words: list[str]) -> None:
    i = 0
    while i < len(words):
        word = words[i]
        i += 1
        if not word.startswith("--") or len(word) < 3:
            continue
        name, equals, value = word[2:].partition("=")
        values = [value] if equals else []
        while not equals and i < len(words) and words[i] != END and not words[i].startswith("--"):
            if _MORE_FLAGS.fullmatch(words[i]):
                command.elsewhere.append(words[i])
                i += 1
                continue
            values.append(words[i])
            i += 1
            if words[i - 1].endswith(".py"):
                values.pop()
                break
        key = name.replace("-", "_")
        found: Any = True if not values else values[0] if len(values) == 1 else values
        command.flags[key] = found
        if key in _FILE_FLAGS and isinstance(found, str) and found in command.files and key == "deepspeed":
            command.files.remove(found)


def _cards(command: Command, known: dict[str, str]) -> None:
    """Processes from the launcher's flags, or from what the environment shows."""
    job = known.get(_JOB_CARDS)
    shown = known.get("NPROC_PER_NODE") or ("" if job else known.get("GPUS_PER_NODE"))
    per_node = command.flags.get("nproc_per_node") or shown
    nodes = command.flags.get("nnodes") or known.get("NNODES") or 1
    total = command.flags.get("num_processes") or command.flags.get("num_gpus")
    visible = known.get("CUDA_VISIBLE_DEVICES")
    each, on = whole_number(str(per_node or "")), whole_number(str(nodes))
    if total and (count := whole_number(str(total))) is not None:
        command.gpus = count
    elif each is not None and on is not None:
        command.gpus = each * on
    elif isinstance(hosts := command.flags.get("include"), str) and re.fullmatch(r"[\w.-]+:\d+(?:,\d+)*", hosts):
        command.gpus = len(hosts.partition(":")[2].split(","))  # deepspeed --include localhost:0,1
    elif visible and not open_names(visible):
        command.gpus = len(visible.split(","))
    elif (cards := whole_number(job or "")) is not None:
        command.gpus = cards


def _words(text: str, source: Source) -> tuple[list[str], dict[str, str], dict[str, str], list[str]]:
    """Every word of the script's commands in order, each closed by ``END``; its variables, the files it writes, its folders."""
    job = job_of(text)
    script = whole_script(text, environment=job.environment(), source=source)
    lines = [line for line in script.lines if line.words[0] not in _QUIET and not starts_ray(line.words)]
    words = [word for line in lines for word in (*line.words, END)]
    shown = {name: value for line in script.lines for name, value in line.environment.items()}
    apart = [w for word in words for w in (word.split() if _holds_flags(word) else [word]) if w != "\\"]
    told = {_JOB_CARDS: str(job.all_cards)} if job.all_cards else {}
    for line in script.lines if not told else ():
        if line.words[0].rsplit("/", 1)[-1] == "srun" and (cards := job_of_options(options_of(line.words)).all_cards):
            told = {_JOB_CARDS: str(cards)}
    folders = [line.words[1] for line in script.lines if line.words[0] in ("cd", "pushd") and len(line.words) > 1]
    return apart, {**shown, **script.variables, **told}, script.files, [*dict.fromkeys(folders)][:_MOST_FOLDERS]


def _holds_flags(word: str) -> bool:
    """Whether a word is a line of flags, or the whole command of ``sh -c``."""
    return " " in word and (word.startswith("--") or _COMMAND.search(word) is not None)
