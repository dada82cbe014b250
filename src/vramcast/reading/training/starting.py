"""Whether a text has a command that starts a training run: a launcher with a script, a framework's own program."""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from vramcast.reading.training.tables import program_named

if TYPE_CHECKING:
    from vramcast.reading.shell import Line
    from vramcast.reading.training.scripts import Source

_MEGATRON = re.compile(r"pretrain_\w+\.py$")
# Programs that start a training run, and the words of which one must follow; () for any script.
_TRAINERS: dict[str, tuple[str, ...]] = {
    "torchrun": (), "deepspeed": (), "accelerate": ("launch",), "llamafactory-cli": ("train",), "llamafactory": ("train",),
    "axolotl": ("train",), "trl": ("sft", "dpo", "grpo", "kto", "reward", "rloo"), "swift": ("sft", "rlhf", "pt"),
    "tune": ("run",), "megatron": ("sft", "rlhf", "pt"), "litgpt": ("finetune", "finetune_lora", "finetune_full", "pretrain"),
    "composer": (),
}  # fmt: skip
_A_VERB = 2
_INSIDE = re.compile(r"\s--\w|\s\w+(?:\.\w+)+=")  # a whole command in one word: bash -c "..."
_LAUNCH_INSIDE = re.compile(r"(?:^|\s)(accelerate launch|torchrun|deepspeed)\s[^;|&]*\.py\b")
_OF_TRAINING = re.compile(
    r"learning_rate|lr|\w*epochs?|max_steps|train_iters|\w*accum\w*|lora_\w+|optim\w*|\w*warmup\w*|\w*micro_batch\w*|\w*train_batch\w*|total_training_steps"
)
_BY_STEPS = 2  # how says_how tells a rate or steps
_OF_STEPS = re.compile(r"learning_rate|lr|\w*epochs?|max_steps|train_iters|\w*accum\w*|optim\w*|total_training_steps")
_TRAINING_MODULES = ("torch.distributed.run", "torch.distributed.launch", "axolotl.cli.train", "accelerate.commands.launch")


_BEFORE = ("sudo", "nohup", "srun", "exec", "time", "env", "uv", "run")  # words before a program's own name
_LAUNCHES = re.compile(r"(?:python[\d.]*|torchrun|deepspeed|accelerate|uv|ray|srun|mpirun|horovodrun|colossalai|composer|\$.*)")


def program_run(words: Sequence[str]) -> str:
    """The recorded program that a command starts, "" for none. What is only a value or an address in it names none."""
    return next((name for word in words_run(words) if (name := program_named(word))), "")


def words_run(words: Sequence[str]) -> Iterator[str]:
    """The words of a command that it runs: its own name, modules after ``-m`` or ``--module``, the first Python file."""
    whole = [part for word in words for part in (word.split() if _INSIDE.search(word) else (word,))]
    own = next((place for place, word in enumerate(whole) if word not in _BEFORE and "=" not in word), len(whole))
    launched = False
    for place, word in enumerate(whole):
        if place == own:  # a program by its own name, not by its folder's
            yield word if word.endswith(".py") else word.rsplit("/", 1)[-1]
        if word.endswith(".py") and not word.startswith("-"):
            if launched and place != own:
                yield word
            if launched or place == own:
                return
        launched = launched or _LAUNCHES.fullmatch(word.rsplit("/", 1)[-1]) is not None
        if launched and word in ("-m", "--module") and place + 1 < len(whole):
            yield whole[place + 1]
            if whole[place + 1] not in _TRAINING_MODULES:
                return


def starts_training(text: str, source: "Source | None" = None) -> str:
    """The program of the first command that starts a training run, "" for none; ``source``: texts of scripts that it calls."""
    from vramcast.reading.training.scripts import nothing_beside, whole_script

    lines = whole_script(text, source=source or nothing_beside).lines
    return _known(lines) or next((found for line in lines if (found := _by_flags(line.words))), "")


_OF_TRAINING_NAME = re.compile(
    r"(?:^|[-_.0-9])(?:re|pre)?(?:train|trainer|training|finetune|fine_tune|fine-tune|tune|sft|dpo|grpo|ppo|kto|orpo|rlhf|q?lora)"
    r"(?=[-_.0-9])[\w.-]*\.(?:py|sh)$"
)


def starts_alone(text: str, source: "Source | None" = None) -> list[str]:
    """The programs that a script launches, and those that train by their names, where it says nothing of how."""
    from vramcast.reading.training.scripts import nothing_beside, whole_script

    found: list[str] = []
    for line in whole_script(text, source=source or nothing_beside).lines:
        words = [word for word in line.words if word not in _BEFORE]
        program = words[0].rsplit("/", 1)[-1] if words else ""
        launched = program in ("torchrun", "deepspeed") or words[:2] == ["accelerate", "launch"]
        if not (launched or re.fullmatch(r"python[\d.]*|bash|sh|sbatch", program)):
            continue
        if only_tries(line.words):
            continue
        own = next((word for word in words[1:] if word.endswith((".py", ".sh"))), "")
        if own and (launched or _OF_TRAINING_NAME.search(own.rsplit("/", 1)[-1])):
            found.append(own)
    return list(dict.fromkeys(found))


def keys_of_command(words: Sequence[str]) -> set[str]:
    """The names of a command's flags and of its ``key=value`` words, as python names."""
    flags = {word.lstrip("-").partition("=")[0].replace("-", "_") for word in words if word.startswith("--") and len(word) > 3}
    return flags | {found[1] for word in words if (found := re.fullmatch(r"\+{0,2}([a-z_][\w.]*)=.*", word, re.S))}


def trains(words: tuple[str, ...]) -> bool:
    """Whether one command starts a training run."""
    from vramcast.reading.shell import Line

    return bool(_known((Line(words=words),)) or _by_flags(words)) if words else False


def says_how(words: Sequence[str]) -> int:
    """How plainly a command's flags or keys say that it trains: 2 by its steps or its rate, 1 by a batch, 0 not at all."""
    names = {key.rsplit(".", 1)[-1] for key in keys_of_command(words)}
    return 2 if any(map(_OF_STEPS.fullmatch, names)) else int(any(map(_OF_TRAINING.fullmatch, names)))


def other_verb(words: Sequence[str]) -> bool:
    """Whether a command is a training tool's that does something else: ``llamafactory-cli chat``, ``swift infer``."""
    plain = [word for word in words if word not in _BEFORE and "=" not in word]
    verbs = _TRAINERS.get(plain[0].rsplit("/", 1)[-1], ()) if plain else ()
    return bool(verbs) and (len(plain) < _A_VERB or plain[1] not in verbs)


def trains_by_name(script: str) -> bool:
    """Whether a program's own name says that it trains: ``train_detect.py``, ``run_sft.py``."""
    return _OF_TRAINING_NAME.search(script.rsplit("/", 1)[-1]) is not None


_TRIES = re.compile(
    r"(?:^|[-_./])(?:lm_)?(?:eval(?:uate|uation|s|uator)?|infer(?:ence)?|generat(?:e|ion)|predict(?:ion)?s?|benchmark|convert|merge|export)"
    r"(?=[-_.]|$)"
)
_PRINTS = ("echo", "printf")


def only_tries(words: Sequence[str]) -> bool:
    """Whether a command's program evaluates, generates or converts by its name, and no flag tells of steps or a rate."""
    names = [word.removesuffix(".py").rsplit("/", 1)[-1] for word in words_run(words)][-1:]
    tries = any(_TRIES.search(name) and not _OF_TRAINING_NAME.search(f"{name}.py") for name in names)
    return tries and says_how([part for word in words for part in word.split()]) < _BY_STEPS


def tries_alone(text: str) -> bool:
    """Whether a script, of which no command trains, starts a program that evaluates, generates or converts."""
    from vramcast.reading.shell import read_script_text

    return any(only_tries(line.words) for line in read_script_text(text).lines)


def starts_ray(words: Sequence[str]) -> bool:
    """Whether a command starts or stops a node of Ray, which trains nothing itself."""
    plain = [word for word in words if word not in _BEFORE][:_A_VERB]
    return len(plain) == _A_VERB and plain[0].rsplit("/", 1)[-1] == "ray" and plain[1] in ("start", "stop", "status")


def is_launcher(module: str) -> bool:
    """Whether a module starts the program that stands behind it."""
    return module in _TRAINING_MODULES


def _by_flags(words: tuple[str, ...]) -> str:
    """A Python program, wherever it stands in a command, whose flags or keys say how it trains; "" for others."""
    from vramcast.reading.training import shared

    whole = [part for word in words for part in (word.split() if _INSIDE.search(word) else (word,))]
    if words[0] in _PRINTS or only_tries(words):
        return ""
    if not any(word.endswith(".py") or word.rsplit("/", 1)[-1].startswith(("python", "torchrun")) for word in whole):
        return ""
    keys = keys_of_command(whole)
    trains = any(_OF_TRAINING.fullmatch(key.rsplit(".", 1)[-1]) for key in keys)
    return "a program with flags of training" if trains and shared.marks(keys) >= shared.FEWEST else ""


def _known(lines: "tuple[Line, ...]") -> str:
    for line in lines:
        words = [word for word in line.words if word not in _BEFORE]
        if not words or words[0] in _PRINTS or only_tries(line.words):
            continue
        inner = next(filter(None, map(_LAUNCH_INSIDE.search, words)), None)  # srun bash -c "..."
        if inner is not None:
            return inner[1]
        program, rest = words[0].rsplit("/", 1)[-1], words[1:]
        if program == "automodel" and any(word.endswith((".yaml", ".yml")) for word in rest):  # NeMo Automodel's CLI
            return program
        verbs = _TRAINERS.get(program)
        script = any(word.endswith(".py") or word in ("-m", "--module") for word in rest)
        if verbs is not None and (script if not verbs else bool(rest) and rest[0] in verbs and len(rest) > 1):
            return program
        module = rest[rest.index("-m") + 1] if "-m" in rest[:-1] else ""
        if program.startswith("python") and (module in _TRAINING_MODULES or any(_MEGATRON.search(word) for word in rest[:3])):
            return module or "a pretraining script"
        if found := program_run(line.words):
            return found
    return ""
