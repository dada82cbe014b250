"""llama-swap's configuration: one command a model, with macros; the models take turns on the cards."""

import re
from typing import Any

import msgspec

from vramcast.reading.serving.launch import Launch, LaunchContext
from vramcast.reading.serving.scripts import read_script

NAME = "llama-swap configuration"
_DEEPEST, _LONGEST = 4, 20_000


def read(document: Any, held: LaunchContext) -> tuple[Launch, ...]:
    """The commands of the models; () for any other mapping."""
    models = document.get("models") if isinstance(document, dict) else None
    if not isinstance(models, dict) or not any(isinstance(entry, dict) and "cmd" in entry for entry in models.values()):
        return ()
    found: list[Launch] = []
    for name, entry in models.items():
        if isinstance(entry, dict) and isinstance(entry.get("cmd"), str):
            macros = {"PORT": "8080", "MODEL_ID": str(name), **_macros(document), **_macros(entry)}
            place = msgspec.structs.replace(held.at(f"models.{name}.cmd"), variables={**macros, **held.variables})
            environment = dict(pair.split("=", 1) for pair in entry.get("env") or () if isinstance(pair, str) and "=" in pair)
            command = _filled(" ".join(_uncommented(entry["cmd"]).split("\n")), macros)
            found += read_script(command, place, environment=environment, name=str(name))
    return tuple(found)


def _filled(command: str, macros: dict[str, str]) -> str:
    """The command with macros whose names no shell's variable could have: ``${latest-llama}``."""
    for _ in range(_DEEPEST):
        for name, value in macros.items():
            if "-" in name or "." in name:
                command = command.replace(f"${{{name}}}", value)[:_LONGEST]
    return command


def _uncommented(text: str) -> str:
    """The command less its comment lines, which llama-swap drops, and the marks that join lines."""
    lines = (line.rstrip().removesuffix("\\") for line in text.splitlines() if not line.lstrip().startswith("#"))
    return _plain_paths("\n".join(lines))


def _plain_paths(text: str) -> str:
    """Windows' paths with slashes: a shell would drop their backslashes."""
    return re.sub(r"(?<![\w])[A-Za-z]:\\[^\s\"']*", lambda path: path[0].replace("\\", "/"), text)


def _macros(mapping: Any) -> dict[str, str]:
    macros = mapping.get("macros")
    if isinstance(macros, list):
        macros = {key: value for one in macros if isinstance(one, dict) for key, value in one.items()}
    return (
        {str(key): _plain_paths(" ".join(str(value).split())) for key, value in macros.items()}
        if isinstance(macros, dict)
        else {}
    )
