"""Training scripts and command lines as flags: variables, arrays and continuations are resolved, nothing is run."""

import re
from typing import Any

import msgspec

from vramcast.errors import QuestionError
from vramcast.reading.shell import ShellStart, open_names, read_script_text
from vramcast.reading.shell.slurm import job_of, job_of_options, options_of
from vramcast.reading.training.starting import program_run, starts_alone, trains, words_run
from vramcast.reading.training.tables import program_named
from vramcast.untrusted import whole_number

PROGRAMS = {
    "pretrain_": "megatron", "llamafactory-cli": "llama_factory", "llamafactory": "llama_factory", "axolotl": "axolotl",
    "swift": "ms_swift", "tune": "torchtune", "litgpt": "litgpt", "composer": "llm_foundry",
}  # fmt: skip
_QUIET = ("echo", "mkdir", "cd", "sleep", "export", "set", "cat", "rm", "cp", "pip", "source", "module", "printf", "tee")
_RUN_BY_NAME = (".py", ".slurm", ".sbatch")  # what a further command with flags runs again
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
    ``objective``: the program's own name, which may tell what is trained for.
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


def read_command(text: str) -> Command:
    """The flags of a script. Raises QuestionError when it has none."""
    words, known, written = _words(text)
    words, more = _first_of_each(words)
    scripts = [word for word in words if word.endswith(".py") and not word.startswith("-")] or starts_alone(text)
    command = Command(more=more, written=written, scripts=scripts)
    for one in _commands(words):
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
    if not (command.flags or command.files or command.overrides or starts_alone(text)):
        raise QuestionError("no flag (--name value) was found in that script: give a command line or a configuration file")
    return command


def _first_of_each(words: list[str]) -> tuple[list[str], int]:
    """The words of the first command of each program with flags, and how many further ones of the same there are.

    Beside a command that trains, Python programs that do not (an evaluation, a conversion) are left out: their flags are not its.
    """
    kept: list[str] = []
    met: set[str] = set()
    more = 0
    commands = _commands(words)
    scripts = [next((part for part in one if part.endswith(_RUN_BY_NAME)), "") for one in commands]
    runs = len(set(filter(None, scripts))) > 1 and any(trains(tuple(one)) for one in commands)
    for one, script in zip(commands, scripts, strict=True):
        flags = sum(part.startswith("--") for part in one)
        if script and flags >= _A_RUN and script in met:
            more += 1
        elif not (runs and script.endswith(".py") and flags and not trains(tuple(one))):
            kept += [*one, END]
            met |= {script} if flags >= _A_RUN else set()
    return kept, more


def _commands(words: list[str]) -> list[list[str]]:
    """The words between the ends of commands."""
    found: list[list[str]] = [[]]
    for word in words:
        if word == END:
            found.append([])
        else:
            found[-1].append(word)
    return [one for one in found if one]


def _program(command: Command, word: str, following: str) -> None:
    leaf = word.rsplit("/", 1)[-1]
    if leaf == "megatron" and following in ("sft", "rlhf", "pt"):
        command.program = command.program or "megatron_swift"
    if _SWIFT.search(word):
        command.program = command.program or "ms_swift"
    for name, program in PROGRAMS.items():
        if leaf == name or (name.endswith("_") and leaf.startswith(name)):
            command.program = command.program or program
    if leaf in ("trl", "sft.py", "dpo.py", "grpo.py", "kto.py", "orpo.py", "reward_modeling.py"):
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


def _words(text: str) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """Every word of the script's commands in order, each command closed by ``END``; its variables, and the files it writes."""
    job = job_of(text)
    script = read_script_text(text, ShellStart(environment=job.environment()))
    words = [word for line in script.lines if line.words[0] not in _QUIET for word in (*line.words, END)]
    shown = {name: value for line in script.lines for name, value in line.environment.items()}
    apart = [w for word in words for w in (word.split() if _holds_flags(word) else [word]) if w != "\\"]
    told = {_JOB_CARDS: str(job.all_cards)} if job.all_cards else {}
    for line in script.lines if not told else ():
        if line.words[0].rsplit("/", 1)[-1] == "srun" and (cards := job_of_options(options_of(line.words)).all_cards):
            told = {_JOB_CARDS: str(cards)}
    return apart, {**shown, **script.variables, **told}, script.files


def _holds_flags(word: str) -> bool:
    """Whether a word is a line of flags, or the whole command of ``sh -c``."""
    return " " in word and (word.startswith("--") or _COMMAND.search(word) is not None)
