"""Which format a training file has, and the settings of one or several files read together."""

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

from vramcast.errors import QuestionError
from vramcast.reading.training.keys import apply, flat
from vramcast.reading.training.settings import Settings
from vramcast.reading.training.shell import Command, read_command
from vramcast.units import MiB

LARGEST_BYTES = MiB
FORMATS = (
    "axolotl", "llama_factory", "llama_factory_v1", "ms_swift", "torchtune", "torchtitan", "litgpt", "llm_foundry", "nemo",
    "megatron", "huggingface", "accelerate", "deepspeed", "peft_config",
)  # fmt: skip
# what stands beside a framework's own file and never names the framework first
BESIDE = ("accelerate", "deepspeed", "peft_config")


def rules_of(name: str) -> ModuleType:
    """The module of a format: its NAME, SIGNATURE, RULES, IDLE and finish."""
    return importlib.import_module(f"vramcast.reading.training.{name}")


def read_training_files(paths: tuple[str, ...]) -> Settings:
    """What these files say together. Raises QuestionError for a file that cannot be read or is none of the formats known."""
    settings, formats = Settings(), []
    for path in paths:
        formats += _read(Path(path), settings)
    for name in sorted(formats, key=lambda n: n in BESIDE):
        rules_of(name).finish(settings)
    return settings


def read_training_mapping(mapping: dict[str, Any], *, where: str) -> Settings:
    """What one configuration says, already parsed; ``where`` names it in the answer."""
    settings = Settings()
    name = _apply(mapping, settings, where=where)
    for found in (name, *_nested(settings, Path())):
        rules_of(found).finish(settings)
    return settings


def _read(path: Path, settings: Settings) -> list[str]:
    text = _text(path)
    if path.suffix in (".sh", ".bash", ".txt", "") or text.startswith("#!"):
        return _from_command(read_command(text), settings, path)
    name = _apply(_parsed(path, text), settings, where=path.name)
    return [name, *_nested(settings, path.parent)]


def _apply(mapping: dict[str, Any], settings: Settings, *, where: str) -> str:
    inline = mapping.get("deepspeed")
    if isinstance(inline, dict):
        settings.put("file.deepspeed", inline, f"{where}: deepspeed")
        mapping = {key: value for key, value in mapping.items() if key != "deepspeed"}
    keys = flat(mapping)
    name = format_of(keys, where=where)
    rules = rules_of(name)
    apply(settings, keys, rules.RULES, rules.IDLE, where=where)
    return name


def format_of(keys: dict[str, Any], *, where: str) -> str:
    """The format whose own keys a file has most of. Raises QuestionError when it has none of any."""
    names = {*keys, *(key.split(".", 1)[0] for key in keys)}
    scores = {name: len(rules_of(name).SIGNATURE & names) for name in FORMATS}
    best = max(FORMATS, key=lambda name: scores[name])
    if not scores[best]:
        known = ", ".join(rules_of(name).NAME for name in FORMATS)
        raise QuestionError(
            f"{where} is no training configuration known here: its keys are {', '.join(list(keys)[:6])}; known: {known}"
        )
    return best


def _from_command(command: Command, settings: Settings, path: Path) -> list[str]:
    """A script's flags, then the files that it names and that are at hand."""
    formats = []
    if command.flags or command.overrides:
        given = flat(command.flags) | command.overrides
        name = command.program or format_of(given, where=path.name)
        rules = rules_of(name)
        launch = (
            "nproc_per_node",
            "nnodes",
            "node_rank",
            "master_*",
            "num_processes",
            "num_gpus",
            "num_machines",
            "config_file",
            "config",
        )
        apply(settings, given, rules.RULES, (*rules.IDLE, *launch, "main_process_port", "standalone", "rdzv_*"), where=path.name)
        formats.append(name)
    settings.put("gpus", command.gpus, f"{path.name}: the launcher")
    if command.task in ("dpo", "kto", "orpo", "grpo", "reward", "sft"):
        settings.put("options.task", command.task, f"{path.name}: {command.task}")
    for file in command.files:
        found = path.parent / file
        if found.is_file():
            formats += _read(found, settings)
        else:
            settings.unread.append(f"{file} (not found beside {path.name})")
    return formats + _nested(settings, path.parent)


def _nested(settings: Settings, folder: Path) -> list[str]:
    """DeepSpeed's JSON, where another file points to it or holds it."""
    pointed = settings.get("file.deepspeed")
    settings.drop("file.deepspeed")
    if isinstance(pointed, dict):
        rules = rules_of("deepspeed")
        apply(settings, flat(pointed), rules.RULES, rules.IDLE, where="deepspeed")
        return ["deepspeed"]
    if not pointed or str(pointed) in ("False", "True"):
        return []
    file = Path(str(pointed))
    at = next((p for p in (folder / file, file, folder / file.name) if p.is_file()), None)
    if at is None:
        raise QuestionError(
            f"{pointed} cannot be read: the configuration points to it; put it beside, or give it with --from too"
        )
    rules = rules_of("deepspeed")
    apply(settings, flat(_parsed(at, _text(at))), rules.RULES, rules.IDLE, where=at.name)
    return ["deepspeed"]


def _text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            data = stream.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise QuestionError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(data) > LARGEST_BYTES:
        raise QuestionError(f"{path} is larger than 1 MiB: a training configuration is not; is this the right file?")
    return data.decode("utf-8", "replace")


def _parsed(path: Path, text: str) -> dict[str, Any]:
    """The mapping in a YAML, JSON or TOML file. Raises QuestionError saying where it is malformed."""
    import tomllib

    import yaml

    try:
        if path.suffix == ".toml":
            found: Any = tomllib.loads(text)
        elif path.suffix == ".json":
            found = json.loads(text)
        else:
            found = yaml.safe_load(text)
    except (yaml.YAMLError, tomllib.TOMLDecodeError, json.JSONDecodeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:120]
        raise QuestionError(f"{path} is not {path.suffix.removeprefix('.') or 'YAML'}: {reason}") from None
    if not isinstance(found, dict):
        raise QuestionError(f"{path} holds {type(found).__name__} where keys and values were expected")
    return found
