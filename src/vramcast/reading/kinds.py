"""What a pasted text or a file is, by what stands in it, and which command answers it. Kinds are weighed, never guessed.

Each kind has a test that is sure of its own marks (magic bytes, keys of its own, lines that only one program prints). Where two
kinds hold, the one that says why it is sure wins; where none does, the nearest are told.
"""

import re
from collections.abc import Callable
from textwrap import shorten
from typing import Any

import msgspec

from vramcast.errors import QuestionError, VramcastError
from vramcast.reading.serving.markdown import is_markdown
from vramcast.reading.templates import plain_ending

CERTAIN, LIKELY, HINT = 3, 2, 1
_HEAD = 2**20
# Files that hold no log of a run, whatever they quote; a trainer's own JSON is known by its keys.
_STRUCTURED = (".json", ".yaml", ".yml", ".md", ".mdx", ".rst", ".py", ".toml", ".ipynb", ".html", ".pbtxt", ".sh", ".bash",
               ".bat", ".cmd", ".ps1", ".service", ".env", ".ini", ".tf", ".sbatch", ".slurm")  # fmt: skip
_NAMES_AN_ENGINE = "a configuration with a command"  # a mapping that names one, as those of rollouts do
_OWN_KEYS = "an engine configuration"  # keys of an engine at the root, which a run with a section of it may have too
_NO_MODEL = "an engine's arguments, and no model"
_ROLLOUTS = "trl vllm-serve"  # TRL's server of answers beside a run
_SETTINGS = ("engine configuration", "configuration with a command", "file of variables")  # which a training run may have too
_CONFIG_KEYS = ("model_type", "architectures", "hidden_size", "num_hidden_layers", "n_layer", "text_config")
_TRAINS = re.compile(
    r"\b(?:\w*TrainingArguments|SFTConfig|DPOConfig|GRPOConfig|KTOConfig|ORPOConfig|RewardConfig|PPOConfig)\s*\("
    r"|ArgumentParser\(\s*[(\[][^)\]]{0,200}(?:TrainingArguments|(?:SFT|DPO|GRPO|KTO|ORPO)Config)"
    r"|\btype=(?:Seq2Seq)?TrainingArguments\b"
    r"|class \w+\((?:\w+\.){0,3}(?:TrainingArguments|(?:SFT|DPO|GRPO|KTO|ORPO)Config)\)"
    r"|_target_\b[^\n]{0,30}[\"'][\w.]*(?:TrainingArguments|(?:SFT|DPO|GRPO|KTO|ORPO)Config)[\"']"
)
_RUNS = re.compile(
    r"\b(?:torchrun|accelerate launch|deepspeed|swift|llamafactory-cli)\b|python3? -m |\.write\(|subprocess|os\.system"
)
_ERRORS = re.compile(
    r"out of memory|OutOfMemoryError|cudaMalloc failed|Traceback \(most recent call last\)|\b(?:ERROR|WARNING|INFO)\b", re.I
)


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """``what``: the kind in words; ``command``: the words of the command that answers it; ``strength``: how sure; ``because``."""

    what: str
    command: tuple[str, ...]
    strength: int
    because: str


def kinds_of(data: bytes, name: str = "", *, folder: Any = None) -> tuple[Kind, ...]:
    """The kinds that these bytes may be, surest first. ``name``: the file's own; ``folder``: where it lies, for what it names."""
    if found := _by_magic(data, name):
        return (found,)
    text = data[: 4 * _HEAD].decode("utf-8", "replace")
    prose: tuple[Callable[[str, str], Kind | None], ...] = (_memory, _topology, _report, _training_log)
    files: tuple[Callable[[str, str], Kind | None], ...] = (
        _json,
        lambda t, n: _training(t, n, folder),
        lambda t, n: _serving(t, n, folder),
        _rows,
    )
    script = text.startswith("#!")  # it runs nvidia-smi, it is no report of it
    tests = files if script or plain_ending(name).endswith(_STRUCTURED) else (*prose, *files)
    found_ = [kind for test in tests if (kind := _tried(test, text, name)) is not None]
    if any(kind.command == ("explain",) for kind in found_):  # a command above a message is the run that the log tells of
        found_ = [kind for kind in found_ if "--from" not in kind.command]
    if any(
        kind.command == ("train", "--from") and kind.strength == CERTAIN for kind in found_
    ):  # an engine without a model: the rollouts of what trains
        found_ = [kind for kind in found_ if kind.because != _NO_MODEL and kind.what not in (_NAMES_AN_ENGINE, _OWN_KEYS)]
        if _ROLLOUTS in text:
            found_ = [kind for kind in found_ if kind.command != ("serve", "--from")]
    return tuple(sorted(found_, key=lambda kind: -kind.strength))


def taken_for(kinds: tuple[Kind, ...]) -> Kind | None:
    """The kind that stands out: the surest, where no other is as sure; None where two are, or none is more than a hint."""
    if not kinds or kinds[0].strength < LIKELY:
        return None
    rivals = [kind for kind in kinds[1:] if kind.strength == kinds[0].strength and kind.command != kinds[0].command]
    return None if rivals else kinds[0]


def _tried(test: Callable[[str, str], Kind | None], text: str, name: str) -> Kind | None:
    try:
        return test(text, name)
    except VramcastError:
        return None


def _by_magic(data: bytes, name: str) -> Kind | None:
    if data[:4] == b"GGUF":
        return Kind(what="a GGUF file", command=("serve",), strength=CERTAIN, because="its first four bytes")
    if data[:1] == b"\x80":
        return Kind(what="a memory snapshot of PyTorch", command=("explain",), strength=CERTAIN, because="it is a pickle")
    if data.startswith(b"SQLite format 3"):
        return Kind(what="a profile of Nsight Systems", command=("profile",), strength=CERTAIN, because="it is an SQLite file")
    if data.startswith(b"\x1f\x8b"):
        return Kind(what="a packed profiler trace", command=("profile",), strength=LIKELY, because="it is gzip")
    head = data[:_HEAD]
    if b'"traceEvents"' in head or (head.lstrip()[:1] == b"[" and b'"ph"' in head):
        return Kind(what="a profiler trace", command=("profile",), strength=CERTAIN, because="traceEvents")
    if name.endswith(".safetensors") or (re.match(rb".{8}\{\"", data[:10], re.S) and b'"dtype"' in data[:4096]):
        return Kind(what="a safetensors file", command=("models",), strength=CERTAIN, because="its header")
    return None


def _json(text: str, name: str) -> Kind | None:
    """A model's own files, a training configuration or engine arguments in JSON."""
    if not text.lstrip().startswith("{"):
        return None
    from vramcast.untrusted import parse_json

    raw = parse_json(text, name or "the text", repeats=True)
    if not isinstance(raw, dict):
        return None
    if "weight_map" in raw:
        return Kind(what="a safetensors index", command=("models",), strength=CERTAIN, because="weight_map")
    if "log_history" in raw or "train_runtime" in raw:
        return Kind(what="a trainer's state", command=("utilization",), strength=CERTAIN, because="log_history")
    own = [key for key in _CONFIG_KEYS if key in raw]
    if len(own) >= 2 and "model_name_or_path" not in raw:
        return Kind(what="a model's config.json", command=("models",), strength=CERTAIN, because=", ".join(own[:3]))
    return None


def _memory(text: str, _name: str) -> Kind | None:
    """A log or a traceback with a message about memory."""
    from vramcast.reading.engine_messages import read_engine_messages
    from vramcast.reading.engine_messages.platforms import PLATFORMS
    from vramcast.reading.out_of_memory import read_out_of_memory

    if read_out_of_memory(text) is not None:
        return Kind(what="an out-of-memory message", command=("explain",), strength=CERTAIN, because="the allocator's own words")
    findings = read_engine_messages(text)
    if not findings:
        return None
    strength = CERTAIN if len(text.splitlines()) > 1 or _ERRORS.search(text) else LIKELY
    what = "an engine's log" if findings[0].engine not in PLATFORMS else "a message about memory"
    return Kind(what=what, command=("explain",), strength=strength, because=shorten(findings[0].what, 80, placeholder=" ..."))


def _topology(text: str, _name: str) -> Kind | None:
    from vramcast.hardware.topology import parse_topology

    parse_topology(text[:_HEAD])
    return Kind(what="the topology of a machine", command=("topology",), strength=CERTAIN, because="a matrix of cards")


def _report(text: str, _name: str) -> Kind | None:
    from vramcast.reading.environment_reports import read_environment

    told = read_environment(text[:_HEAD]).told_by
    return Kind(what=f"a report of {', '.join(told)}", command=("doctor",), strength=CERTAIN, because="its own lines")


def _training_log(text: str, _name: str) -> Kind | None:
    from vramcast.reading.training_logs import read_training_log

    program = read_training_log(text[:_HEAD]).program
    bar = program == "a progress bar"
    what = f"a training log ({program})"
    return Kind(what=what, command=("utilization",), strength=HINT if bar else LIKELY, because="lines with a throughput")


def _training(text: str, name: str, folder: Any = None) -> Kind | None:
    """A training configuration, a command line that trains, a program with TrainingArguments."""
    from vramcast.reading.beside import scripts_beside
    from vramcast.reading.python_texts import without_texts
    from vramcast.reading.training.scripts import as_script, is_script
    from vramcast.reading.training.starting import starts_alone, starts_training, tries_alone
    from vramcast.reading.training.xtuner import is_config as is_xtuner

    if name.lower().endswith((".rst", ".html", ".cfg")):
        return None
    if name.lower().endswith((".md", ".mdx", ".markdown")) or (is_markdown(text) and not name.endswith((".py", ".ipynb"))):
        from vramcast.reading.training.markdown import training_in

        because = training_in(text).because
        return Kind(what="Markdown", command=("train", "--from"), strength=LIKELY, because=because) if because else None
    if name.endswith(".py") or re.search(r"^[ \t]*(?:from|import) \w+", text, re.M):
        if name.endswith(".py") and is_xtuner(text):
            return Kind(what="a training program", command=("train", "--from"), strength=CERTAIN, because="XTuner's own names")
        if because := _arguments_made(without_texts(text)):
            return Kind(what="a training program", command=("train", "--from"), strength=CERTAIN, because=because)
        if name.endswith(".py"):
            return _loop(text, name)
    if name.endswith(".ipynb"):
        if because := _arguments_made(text):
            return Kind(what="a training notebook", command=("train", "--from"), strength=CERTAIN, because=because)
        return _of_notebook(text, name)
    script = as_script(text[:_HEAD], name)
    beside = scripts_beside(folder) if folder is not None else None
    if not name.endswith((".yaml", ".yml", ".json", ".toml")) and (found := starts_training(script, beside)):
        return Kind(what="a command that trains", command=("train", "--from"), strength=CERTAIN, because=found)
    if is_script(name) and (alone := starts_alone(script, beside)):
        because = f"it starts {alone[0].rsplit('/', 1)[-1]}"
        return Kind(what="a script that trains", command=("train", "--from"), strength=LIKELY, because=because)
    return None if is_script(name) and tries_alone(script) else _of_keys(text, name)


def _of_keys(text: str, name: str) -> Kind | None:
    """A training configuration by the keys of its format."""
    from vramcast.reading.training.files import format_of_text
    from vramcast.reading.training.formats import rules_of

    form, marks = format_of_text(text, name)
    title = rules_of(form).NAME
    if not marks:
        return None
    strength = CERTAIN if marks > 3 else LIKELY if marks > 1 else HINT
    because = f"{marks} keys of its own" if marks > 1 else "one key of its own"
    return Kind(what=f"a training configuration ({title})", command=("train", "--from"), strength=strength, because=because)


def _arguments_made(text: str) -> str:
    """The class of a trainer's arguments that a program makes; "" for none, and for a class of its own with such a name."""
    for match in _TRAINS.finditer(text):
        word = match[0].rstrip("( ")
        own = re.search(rf"^class {re.escape(word)}\(([^)]*)\)", text, re.M) if word.isidentifier() else None
        if own is None or re.search(r"Arguments|(?:SFT|DPO|GRPO|KTO|ORPO|Reward|PPO)Config", own[1]):
            return word
    return ""


def _of_notebook(text: str, name: str) -> Kind | None:
    """A notebook with a loop of its own, or whose shell commands train."""
    from vramcast.reading.notebooks import code_of, shell_of
    from vramcast.reading.training.starting import starts_training
    from vramcast.untrusted import parse_json

    raw = parse_json(text, name)
    if found := starts_training(shell_of(raw, name)):
        return Kind(what="a training notebook", command=("train", "--from"), strength=LIKELY, because=found)
    return _loop(code_of(raw, name), name)


def _loop(text: str, name: str) -> Kind | None:
    """A training loop of its own, by sizes and rates that its names hold and its backward pass."""
    from vramcast.reading.training import shared
    from vramcast.reading.training.program_loops import is_loop_of_a_model
    from vramcast.reading.training.programs import command_in, options_of_program

    steps = bool(re.search(r"\bbackward\(|\bL\.Fabric\(|\b\w{0,12}Trainer\(", text))
    runs = re.search(r"\.train\(|\btrain\(|get_peft_model\(", text) is not None
    steps = steps or (runs and "add_argument(" in text and "__main__" in text)
    what, command = "a training program", ("train", "--from")
    if steps or re.search(r"^class \w*(?:Config|Args|Arguments)\b", text, re.M):
        found = shared.marks(options_of_program(text, name))
        because = f"{found} names that training programs share"
        if found > shared.FEWEST or (found == shared.FEWEST and steps and "LoraConfig(" in text):
            return Kind(what=what, command=command, strength=LIKELY, because=because)
    if is_loop_of_a_model(text):
        return Kind(what=what, command=command, strength=LIKELY, because="a loop with its own backward pass")
    if _RUNS.search(text) and command_in(text, name):
        return Kind(what="a program that starts training", command=command, strength=LIKELY, because="the command that it runs")
    return None


def _serving(text: str, name: str, folder: Any) -> Kind | None:
    from vramcast.reading.serving.files import ServingFile, find_launches
    from vramcast.reading.serving.kustomize import NAME

    try:
        found = find_launches(text, name, folder=folder)
    except QuestionError:  # a base that is not at hand: the kind is plain all the same
        found = ServingFile(kind=NAME if name.lower() in ("kustomization.yaml", "kustomization.yml") else "")
    if not found.launches:
        because = "resources of its own" if found.kind == NAME else ""
        return Kind(what=_article(NAME), command=("serve", "--from"), strength=LIKELY, because=because) if because else None
    first = found.launches[0]
    trains = name.endswith((".py", ".ipynb")) and _TRAINS.search(text) is not None
    beside = trains and (name.endswith(".ipynb") or "the command in line" in first.where)
    told = found.kind not in _SETTINGS or any(launch.model for launch in found.launches) or first.engine == "ollama"
    because = f"it starts {first.engine}" if told else _NO_MODEL
    plain = plain_ending(name).endswith(_STRUCTURED) or text.startswith("#!")
    logged = not plain and len(text.splitlines()) > 30 and len(_ERRORS.findall(text[:_HEAD])) > 10
    return Kind(
        what=_article(found.kind),
        command=("serve", "--from"),
        strength=HINT
        if logged
        else LIKELY
        if beside or not told
        else CERTAIN,  # a program that trains may serve its model afterwards
        because=because,
    )


def _rows(text: str, name: str) -> Kind | None:
    """Measured runs, one JSON object a line."""
    first = text.lstrip().split("\n", 1)[0]
    if (
        name.endswith(".jsonl")
        and first.startswith("{")
        and ('"measured"' in first or '"case"' in first or '"workload"' in first)
    ):
        return Kind(what="measured runs", command=("evaluate",), strength=LIKELY, because="one object a line")
    return None


def _article(kind: str) -> str:
    plural = kind in ("Helm values", "Markdown", "settings of Ollama")
    return kind if plural else f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"
