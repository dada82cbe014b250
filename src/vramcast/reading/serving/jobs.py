"""Job files that hold a shell script in YAML: dstack's services and tasks, SkyPilot's tasks, recipes with ``{placeholders}``.

Sources: dstack, core/models/configurations.py (``commands``, ``env``, ``resources.gpu``, replica groups); SkyPilot,
sky/task.py and utils/schemas.py (``setup``, ``run``, ``envs``, ``resources.accelerators``); eugr/spark-vllm-docker, recipes.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from vramcast.reading.serving.containers import environment_of
from vramcast.reading.serving.launch import Launch, LaunchContext
from vramcast.reading.serving.programs import image_engine
from vramcast.reading.serving.scripts import read_script

NAME = "job file"
_HOLDER = re.compile(r"\{(\w{1,60})\}")
# What the job starter sets itself: the cards of the node that runs the script.
_CARDS = ("DSTACK_GPUS_NUM", "DSTACK_GPUS_PER_NODE", "SKYPILOT_NUM_GPUS_PER_NODE")


def read(document: Any, held: LaunchContext) -> tuple[Launch, ...]:
    """The engines that a job file's script starts; () for any other mapping."""
    if not isinstance(document, dict):
        return ()
    if isinstance(document.get("command"), str) and isinstance(document.get("defaults"), dict):
        return _recipe(document, held)
    found: list[Launch] = []
    for group, place in _groups(document):
        found += _scripts({**document, **group}, held.at(place))
    return tuple(launch for at, launch in enumerate(found) if launch not in found[:at])


def _groups(document: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The document itself, and dstack's groups of replicas with commands of their own."""
    if isinstance(document.get("run"), str) and {"resources", "setup", "envs", "num_nodes", "service"} & document.keys():
        yield document, "run"
    if isinstance(document.get("commands"), list) and "type" in document:
        yield document, "commands"
    replicas = document.get("replicas")
    for number, group in enumerate(replicas[:50] if isinstance(replicas, list) else ()):
        if isinstance(group, dict) and isinstance(group.get("commands"), list):
            yield group, f"replicas[{number}].commands"


def _scripts(job: Mapping[str, Any], held: LaunchContext) -> tuple[Launch, ...]:
    commands = job.get("commands")
    script = "\n".join(str(line) for line in commands) if isinstance(commands, list) else str(job.get("run") or "")
    card, cards = card_of(job.get("resources"))
    shown = environment_of(job.get("env")) | environment_of(job.get("envs"))
    shown = {name: value for name, value in shown.items() if value != f"${{{name}}}"}
    if cards:
        shown |= dict.fromkeys(_CARDS, str(cards))
    told = image_engine(str(job.get("image") or "")) or ("", None)
    return tuple(
        msgspec.structs.replace(
            launch,
            card=launch.card or card,
            gpus=launch.gpus or cards,
            version=launch.version or (told[1] if told[0] == launch.engine else None),
        )
        for launch in read_script(script, held, environment=shown)
    )


def card_of(resources: Any) -> tuple[str, int]:
    """The card and how many: ``gpu: H200:8``, ``gpu: 24GB``, ``accelerators: {L4: 1}``; a size names no card."""
    asked = (
        resources.get("gpu") or resources.get("accelerators") or resources.get("accelerator")
        if isinstance(resources, dict)
        else None
    )
    if isinstance(asked, dict):
        name, count = asked.get("name"), asked.get("count")
        first = next(((key, value) for key, value in asked.items() if value is not None), ("", ""))
        asked = f"{name}:{count or 1}" if name else f"{first[0]}:{first[1]}"
    elif isinstance(asked, list):
        asked = asked[0] if asked else ""
    parts = [part for part in str(asked or "").split(":") if part]
    card = next((part for part in parts if re.fullmatch(r"[A-Za-z][\w-]{1,20}", part)), "")
    count = next((part for part in parts if part.isdigit()), "1" if card else "0")
    return (card if card.lower() not in ("gpu", "nvidia", "amd") else ""), int(count)


def _recipe(document: Mapping[str, Any], held: LaunchContext) -> tuple[Launch, ...]:
    """A command with ``{placeholders}`` over ``defaults``; ``model`` fills {model}."""
    values = {**document["defaults"], "model": document.get("model", "")}
    plain = {str(key): str(value) for key, value in values.items() if not isinstance(value, dict | list)}
    script = _HOLDER.sub(lambda name: plain.get(name[1], name[0]), document["command"])
    return read_script(script, held.at("command"), environment=environment_of(document.get("env")))
