"""NixOS modules: ``services.llama-cpp``, ``services.ollama``, llama-swap's settings, units and containers, by their options.

Sources: nixpkgs, nixos/modules/services/misc/llama-cpp.nix (model, extraFlags, host, port) and ollama.nix (loadModels,
environmentVariables); virtualisation/oci-containers.nix (image, cmd, environment); the options of modules made after them.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from vramcast.reading.nix import ConditionalText, Unknown, parse_nix
from vramcast.reading.serving import any_mapping, llama_swap
from vramcast.reading.serving.any_engine import walk
from vramcast.reading.serving.commands import launch_of
from vramcast.reading.serving.containers import Container, environment_of
from vramcast.reading.serving.launch import Launch, LaunchContext
from vramcast.reading.serving.programs import Program
from vramcast.reading.serving.words import words_of

NAME = "Nix module"
# Options of llama.cpp's modules by the flag that each becomes.
_LLAMA = {
    "contextSize": "--ctx-size", "ctxSize": "--ctx-size", "nGpuLayers": "--n-gpu-layers", "gpuLayers": "--n-gpu-layers",
    "batchSize": "--batch-size", "ubatchSize": "--ubatch-size", "parallel": "--parallel", "threads": "--threads",
    "flashAttention": "--flash-attn", "flashAttn": "--flash-attn", "cacheTypeK": "--cache-type-k", "cacheTypeV": "--cache-type-v",
    "hfRepo": "--hf-repo", "hfFile": "--hf-file", "model": "--model", "port": "--port", "host": "--host",
    "splitMode": "--split-mode", "nCpuMoe": "--n-cpu-moe",
}  # fmt: skip
_THREE_STATES = ("--flash-attn",)  # on, off, auto: off is said
_LISTS = ("extraFlags", "extraArgs", "flags", "args")
_IDLE = ("enable", "package", "openFirewall", "environment", "settings", "user", "group", "instances", "enableMetrics", "dataDir")
_SERVERS = ("llama-cpp", "llama-server", "llama-cpp-server", "llamacpp")


def read(text: str, held: LaunchContext) -> tuple[Launch, ...]:
    """The engines that a module starts; () where it starts none. Raises QuestionError for what is no Nix."""
    whole = _plain(parse_nix(text, held.where or "the file")) or {}
    found: list[Launch] = []
    for place, one, above in walk(whole):
        name = place.rsplit(".", 1)[-1]
        if name in _SERVERS:
            found += _llama_cpp(one, held.at(place))
        elif name == "ollama":
            found += _ollama(one, held.at(place))
        elif isinstance(one.get("image"), str) and any(key == "containers" for key, _ in above[:2]):
            found += _container(one, held.at(place), name)
        found += llama_swap.read(one, held.at(place)) if "models" in one else ()
    told = {(one.engine, one.model) for one in found}
    return (*found, *(one for one in any_mapping.read(whole, held) if (one.engine, one.model) not in told))


def _plain(value: Any, option: str = "") -> Any:
    """The values, without sections that are off; what only Nix would tell is open among words and in options of a server.

    A command of a set of arguments is its words.
    """
    if isinstance(value, dict):
        if value.get("enable") is False:
            return None
        inside = {key: _plain(inner, key) for key, inner in value.items()}
        command = inside.get("cmd")
        if isinstance(command, dict) and isinstance(command.get("args"), dict):
            inside["cmd"] = " ".join(("llama-server", *_words(command["args"])))
        return {key: inner for key, inner in inside.items() if inner is not None}
    if isinstance(value, list):
        return [
            one for one in (inner.word if isinstance(inner, Unknown) else _plain(inner) for inner in value) if one is not None
        ]
    if isinstance(value, Unknown):
        return value.word if option in _LLAMA else None
    return value if isinstance(value, str | int | float | bool) else None


def _words(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Arguments by their names; a fetched file is the last part of its address."""
    for key, value in arguments.items():
        fetched = str(value.get("url") or "").rsplit("/", 1)[-1] or value.get("name") if isinstance(value, dict) else value
        if fetched is not None and fetched is not False:
            flag = re.sub(r"(?<=[a-z0-9])([A-Z])", r"-\1", str(key)).lower().replace("_", "-")
            yield f"--{flag}" if fetched is True else f"--{flag} {fetched}"


def _llama_cpp(one: Mapping[str, Any], held: LaunchContext) -> list[Launch]:
    instances = one.get("instances")
    if isinstance(instances, dict):
        return [x for name, inner in instances.items() if isinstance(inner, dict) for x in _server(inner, held.at(name), name)]
    return _server(one, held, "")


def _server(one: Mapping[str, Any], held: LaunchContext, name: str) -> list[Launch]:
    words: list[str] = []
    conditions: dict[str, list[str]] = {}
    for key, flag in _LLAMA.items():
        value = one.get(key)
        value = value.get("url") if isinstance(value, dict) else value
        if isinstance(value, str | int | float) and (value is not False or flag in _THREE_STATES):
            said = [flag, {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)]
            words += said
            _note(conditions, value, said)
    for key in _LISTS:
        value = one.get(key)
        words += words_of(value)
        for word in value if isinstance(value, list) else (value,):
            _note(conditions, word, [str(word)])
    words += [word for pair in _words(_mapping(one.get("settings"))) for word in pair.split(" ", 1)]
    environment = environment_of(one.get("environment"))
    launch = launch_of(Program(engine="llama_cpp", words=tuple(words)), held, environment, name)
    if not launch or not launch.model:
        return []
    other = [key for key in one if key not in _LLAMA and key not in _LISTS and key not in _IDLE]
    return [msgspec.structs.replace(launch, unread=(*launch.unread, *_told(conditions), *other))]


def _note(conditions: dict[str, list[str]], value: Any, said: list[str]) -> None:
    if isinstance(value, ConditionalText):
        conditions.setdefault(value.condition, []).extend(said)


def _told(conditions: Mapping[str, list[str]]) -> list[str]:
    return [f"{' '.join(said)} (counted, though under a condition: {condition[:60]})" for condition, said in conditions.items()]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _ollama(one: Mapping[str, Any], held: LaunchContext) -> list[Launch]:
    models = [model for model in one.get("loadModels") or [] if isinstance(model, str)]
    environment = environment_of(one.get("environmentVariables"))
    made = (launch_of(Program(engine="ollama", words=(model,)), held, environment, model) for model in models)
    return [launch for launch in made if launch]


def _container(one: Mapping[str, Any], held: LaunchContext, name: str) -> tuple[Launch, ...]:
    entry, arguments = words_of(one.get("entrypoint")), words_of(one.get("cmd"))
    shown = environment_of(one.get("environment"))
    what = Container(image=str(one["image"]), entry=entry, arguments=arguments, environment=shown, name=name)
    conditions: dict[str, list[str]] = {}
    for word in one["cmd"] if isinstance(one.get("cmd"), list) else ():
        _note(conditions, word, [str(word)])
    return tuple(msgspec.structs.replace(x, unread=(*x.unread, *_told(conditions))) for x in what.launches(held))
