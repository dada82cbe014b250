"""Mappings of platforms that have no reader of their own: commands and containers wherever they stand in the tree.

Truss (``docker_server.start_command``, ``resources.accelerator``), ECS task definitions and the like. A text counts
where it begins with an engine's program and has flags; a mapping where it names an image beside a command or arguments.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from vramcast.reading.serving.any_engine import engines_of, walk
from vramcast.reading.serving.commands import launch_of
from vramcast.reading.serving.containers import Container, environment_of
from vramcast.reading.serving.jobs import card_of
from vramcast.reading.serving.launch import Launch, LaunchContext
from vramcast.reading.serving.programs import Program, image_engine, program_of
from vramcast.reading.serving.scripts import read_script
from vramcast.reading.serving.words import words_of

NAME = "configuration with a command"
_MOST = 5_000
_HOLDER = re.compile(r"(?<![$\w])\{(\w{1,60})\}")
_BY_ITSELF = ("ollama",)  # engines whose server starts without a model
_LINES = 3  # of a text whose first may set variables


def read(document: Any, held: LaunchContext) -> tuple[Launch, ...]:
    """The engines that commands and containers anywhere in a mapping start; () where none does."""
    if not isinstance(document, dict | list):
        return ()
    found: list[Launch] = []
    manifest = (
        isinstance(document, dict) and "apiVersion" in document
    )  # its pods were read; what stands elsewhere is an operator's
    for place, inner, _ in () if manifest else walk(document):
        found += [launch for launch in _of(inner, held.at(place)) if launch.model]  # the head of a command starts nothing
    found = found or list(engines_of(document, held))
    card, cards = card_of(document.get("resources")) if isinstance(document, dict) else ("", 0)
    image = document.get("base_image") if isinstance(document, dict) else None
    told = image_engine(str(image.get("image") or "")) if isinstance(image, dict) else None
    return tuple(
        msgspec.structs.replace(
            launch,
            card=launch.card or card,
            gpus=launch.gpus or cards,
            version=launch.version or (told[1] if told and told[0] == launch.engine else None),
        )
        for at, launch in enumerate(found)
        if launch not in found[:at]
    )


def bare_servers(documents: Sequence[Any], held: LaunchContext) -> tuple[Launch, ...]:
    """Containers of an engine's own image of which nothing is said but variables: a server that waits for its model's name."""
    found: list[Launch] = []
    for document in documents:
        for place, inner, _ in walk(document):
            image = inner.get("image")
            image = f"{image.get('repository', '')}:{image.get('tag', '')}" if isinstance(image, dict) else image
            told = image_engine(image) if isinstance(image, str) else None
            if told is None or told[0] not in _BY_ITSELF or inner.get("command") or inner.get("args"):
                continue
            environment = environment_of(inner.get("environment") or inner.get("env"))
            launch = launch_of(
                Program(engine=told[0], version=told[1]), held.at(place), environment, str(inner.get("name") or "")
            )
            found += [launch] if launch else []
    return tuple(found)


def _of(mapping: dict[str, Any], held: LaunchContext) -> tuple[Launch, ...]:
    """A container that the mapping describes, else the commands among its values."""
    image = mapping.get("image") or mapping.get("Image")
    words = words_of(mapping.get("command") or mapping.get("Command")), words_of(mapping.get("args") or mapping.get("arguments"))
    if isinstance(image, str) and any(words):
        environment = environment_of(mapping.get("environment") or mapping.get("env"))
        both = (*words[0], *words[1])
        flags = both[0].startswith("-")  # what follows an image's own entry point; else it replaces that
        return Container(
            image=image, entry=() if flags else both, arguments=both if flags else (), environment=environment
        ).launches(held)
    found: list[Launch] = []
    for key, value in mapping.items():
        for text in value[:_MOST] if isinstance(value, list) else (value,):
            if isinstance(text, str) and _is_command(text):
                found += read_script(_HOLDER.sub(r"${\1}", text), held.at(str(key)))
    return tuple(found)


def _is_command(text: str) -> bool:
    """Whether one of a text's first commands is an engine's program, variables set before it aside, and has flags."""
    if " -" not in text and "\n-" not in text:
        return False
    lines = re.split(r"\n|&&|;", re.sub(r"\\\s*\n", " ", text).strip())
    for line in lines[:_LINES]:
        words = [word.strip("\"'") for word in line.split()]
        while words and re.fullmatch(r"(?:export|[A-Za-z_]\w*=\S*)", words[0]):
            words.pop(0)
        if program_of(words) is not None:
            return True
    return False
