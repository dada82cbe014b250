"""The launch of one program: its model, its flags, those of its environment and of the configuration it points to."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from vramcast.errors import QuestionError
from vramcast.reading.serving.environment import read_environment_file, variable_of, variables_of_engine
from vramcast.reading.serving.flags import Flag, ParsedFlags, parsed_flags, words_of_flags
from vramcast.reading.serving.launch import Launch, LaunchContext, visible_devices
from vramcast.reading.serving.programs import Program, engine_of_flags, image_engine
from vramcast.reading.shell.variables import open_names, resolved

_MODEL_FLAGS = ("model", "hf-repo", "model-path", "model-id", "model-tag", "checkpoint-path", "model-dir", "hf-file-model")
_CONFIGS = {
    "vllm": ("config",), "sglang": ("config",),
    "tensorrt_llm": ("extra-llm-api-options", "config", "extra-engine-args", "trtllm-config"),
}  # fmt: skip
_EXTRA = ("-e", "--env")
# Programs around llama.cpp's library that place layers themselves: --fit is a thing of its own tools (common/common.cpp).
_NO_FIT = ("llama-bench", "llamafile", "koboldcpp", "koboldcpp.py", "llama_cpp.server", "server", "main")
_NO_ENTRY = ("lmdeploy", "sglang", "ktransformers", "tensorrt_llm")  # engines whose images start no server by themselves


def launch_of(program: Program, held: LaunchContext, environment: Mapping[str, str], name: str = "") -> Launch | None:
    """One launch of a program; its model is "" where nothing names it."""
    import msgspec

    variables = variables_of_engine(program.engine, environment)
    apart = parsed_flags(program.engine, [resolved(word, environment) for word in program.words])
    typed = {flag.name for flag in apart.flags}
    extra = [flag for flag in parsed_flags(program.engine, variables.flags).flags if flag.name not in typed]
    read, files = _configuration(program.engine, apart, held, typed)
    flags = (*apart.flags, *read, *extra)
    model, flags = _model(program.engine, ParsedFlags(flags=flags, words=apart.words))
    if program.engine == "llama_cpp" and program.verb in _NO_FIT and not any(flag.name == "fit" for flag in flags):
        flags = (*flags, Flag(name="fit", values=("off",), typed=f"{program.verb} has no --fit"))
    said_by = {flag.name: f"environment {variable_of(program.engine, flag.name)}".strip() for flag in extra}
    places = {name: f"{held.where}: {place}" if held.where else place for name, place in said_by.items()} | files
    return msgspec.structs.replace(
        Launch(engine=_engine(program, flags), model=model, version=program.version, name=name, where=held.where),
        flags=words_of_flags(flags),
        gpus=len(shown := visible_devices(environment)),
        devices=shown,
        places=places,
        idle=tuple(variables.idle),
        speed=tuple(variables.speed),
        unread=tuple(variables.unread),
    )


def _engine(program: Program, flags: Sequence[Flag]) -> str:
    """ik_llama.cpp where a flag is its own."""
    own = {"mla", "attn-max-batch", "fused-moe", "run-time-repack"}
    return "ik_llama_cpp" if program.engine == "llama_cpp" and own & {flag.name for flag in flags} else program.engine


def _model(engine: str, apart: ParsedFlags) -> tuple[str, tuple[Flag, ...]]:
    """The model, and the flags without it: a flag's value, else the first word that belongs to no flag."""
    named = next((flag for flag in apart.flags if flag.name in _MODEL_FLAGS and flag.values and engine != "ollama"), None)
    repo = next((flag for flag in apart.flags if flag.name == "hf-repo" and flag.values), named)
    if (chosen := repo) is not None:
        kept = tuple(flag for flag in apart.flags if flag.name not in _MODEL_FLAGS)
        file = next((flag.value for flag in apart.flags if flag.name in ("-hff", "hf-file")), "")
        kept = tuple(flag for flag in kept if flag.name not in ("-hff", "hf-file"))
        return (file or chosen.values[0]) if engine in ("llama_cpp", "ik_llama_cpp") else chosen.values[0], kept
    word = next((word for word in apart.words if not word.startswith((";", "|", "&", ">"))), "")
    if not word:
        word, flags = _after_switch(apart.flags)
        return word, flags
    return word, apart.flags


def _after_switch(flags: tuple[Flag, ...]) -> tuple[str, tuple[Flag, ...]]:
    """A model that follows a switch no table knows: ``vllm serve --new-switch Qwen/Qwen3-8B``."""
    for place, flag in enumerate(flags):
        if len(flag.values) == 1 and re.fullmatch(r"[A-Za-z][\w.-]*/[\w.-]+", flag.values[0]) and "model" not in flag.name:
            if flag.name in (
                "tokenizer",
                "speculative-model",
                "hf-config-path",
                "model-draft",
                "mmproj",
                "speculative-draft-model-path",
            ):
                continue
            bare = Flag(name=flag.name, typed=flag.typed)
            return flag.values[0], (*flags[:place], bare, *flags[place + 1 :])
    return "", flags


def _configuration(engine: str, apart: ParsedFlags, held: LaunchContext, typed: set[str]) -> tuple[list[Flag], dict[str, str]]:
    """Flags of the YAML that ``--config`` or ``--extra_llm_api_options`` names, where it is at hand."""
    from vramcast.reading.serving.engine_yaml import flags_of_mapping
    from vramcast.untrusted import parse_yaml

    found: list[Flag] = []
    places: dict[str, str] = {}
    for flag in apart.flags:
        if flag.name not in _CONFIGS.get(engine, ()) or not flag.values:
            continue
        text = held.text_of(flag.values[0])
        if text is None:
            found.append(Flag(name=f"{flag.name} (the file {_leaf(flag.values[0])} is not at hand)", typed=flag.typed))
            continue
        try:
            mapping: Any = parse_yaml(text, _leaf(flag.values[0]))
        except QuestionError:
            found.append(Flag(name=f"{flag.name} (the file {_leaf(flag.values[0])} is no YAML)", typed=flag.typed))
            continue
        for more in parsed_flags(engine, flags_of_mapping(mapping if isinstance(mapping, dict) else {})).flags:
            if more.name not in typed:
                found.append(more)
                places[more.name] = _leaf(flag.values[0])
    return found, places


def _leaf(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1][:80]


def set_around(program: Program, held: LaunchContext) -> tuple[dict[str, str], int, tuple[str, ...]]:
    """Variables that a container's or a job starter's own words set, how many cards, and which where they say so."""
    before = program.before
    found: dict[str, str] = {}
    cards, devices = 0, tuple[str, ...]()
    for word, following in zip(before, (*before[1:], ""), strict=False):
        name, joined, value = word.partition("=")
        if not name.startswith("-"):
            if joined and re.fullmatch(r"[A-Z_a-z]\w*", name) and not _is_value(before, word):
                found.setdefault(name, value)
            continue
        given = value if joined else following
        if name in _EXTRA and "=" in given:
            variable, _, of_it = given.partition("=")
            found[variable] = of_it
        elif name == "--env-file" and (text := held.text_of(given)) is not None:
            found |= {key: entry for key, entry in read_environment_file(text).items() if key not in found}
        elif name in ("--gpus", "--gres", "--gpus-per-node", "--gpus-per-task", "--device", "-G"):
            cards, devices = cards_of(given) or cards, devices_of(given) or devices
    return found, cards, devices


def devices_of(text: str) -> tuple[str, ...]:
    """The ids in ``"device=0,1"`` and ``nvidia.com/gpu=1``; none where a number alone is asked for, or all."""
    name, _, ids = text.strip("\"'").partition("=")
    named = name in ("device", "nvidia.com/gpu") and ids not in ("", "all") and not open_names(ids)
    listed = (one.strip(" \"'") for one in ids.split(","))  # behind them may be capabilities=utility
    return tuple(one for one in listed if one and "=" not in one) if named else ()


def _is_value(before: Sequence[str], word: str) -> bool:
    """Whether NAME=VALUE belongs to a flag such as --label, rather than to the environment."""
    place = list(before).index(word)
    return place > 0 and before[place - 1].startswith("-") and before[place - 1] not in _EXTRA


def cards_of(text: str) -> int:
    """Cards in ``2``, ``gpu:h100:8``, ``"device=0,1"``, ``nvidia.com/gpu=all``; 0 where no number is told."""
    plain = text.strip("\"'")
    if "device" in plain or plain.startswith("nvidia.com/gpu"):
        ids = plain.partition("=")[2]
        return 0 if ids in ("", "all") else sum("=" not in one for one in ids.split(","))  # less capabilities=utility
    last = re.search(r"(\d{1,4})\s*(?:\(.*\))?$", plain)
    return int(last[1]) if last and (plain[: last.start()] == "" or plain[: last.start()].endswith(":")) else 0


def of_image(
    image: str, words: Sequence[str], environment: Mapping[str, str], held: LaunchContext, name: str
) -> tuple[Launch, ...]:
    """What a container starts whose image has an entry point of its own."""
    found = image_engine(image)
    untold = found is None or bool(open_names(image) and "/" not in image)
    if untold and (own := engine_of_flags(words)):
        found = own[0], None
    elif untold or found is None or not found[0]:
        return ()
    if found[0] in _NO_ENTRY and words and not words[0].startswith("-") and "/" not in words[0]:  # another program of its shell
        return ()
    launch = launch_of(Program(engine=found[0], version=found[1], words=tuple(words)), held, environment, name)
    return (launch,) if launch and (launch.model or launch.flags) else ()
