"""What a Markdown page shows of a training run: commands, a program in pieces, a configuration; each from its fenced blocks."""

import re
from contextlib import suppress
from typing import Any

import msgspec

from vramcast.errors import QuestionError, VramcastError
from vramcast.reading.serving.markdown import Block, blocks_of
from vramcast.reading.training import shared
from vramcast.reading.training.keys import flat

_PROGRAMS, _SETTINGS = ("python", "py", "python3", ""), ("yaml", "yml", "json", "toml", "")
_ARGUMENTS = re.compile(r"\b(?:\w*TrainingArguments|(?:SFT|DPO|GRPO|KTO|ORPO|Reward)Config)\s*\(")
_OWN_KEYS = 3  # that settings of a page must have to be a training configuration


class TrainingPage(msgspec.Struct, frozen=True, kw_only=True):
    """``commands``: blocks that train; ``program``: its Python; ``configuration``: its settings; ``because``: "" for none."""

    commands: tuple[str, ...] = ()
    program: str = ""
    configuration: dict[str, Any] = {}
    because: str = ""


def training_in(text: str) -> TrainingPage:
    """What a page shows of training."""
    from vramcast.reading.training.starting import starts_training

    blocks = blocks_of(text)
    commands = tuple(block.text for block in blocks if starts_training(block.text))
    program = "" if commands else _program(blocks)
    configuration = _configuration(blocks)
    if commands:
        because = f"{len(commands)} of its blocks train{'s' if len(commands) == 1 else ''}"
    elif program:
        because = "the arguments of a trainer in its Python"
    else:
        because = "a configuration in one of its blocks" if configuration else ""
    return TrainingPage(commands=commands, program=program, configuration=configuration, because=because)


def _program(blocks: tuple[Block, ...]) -> str:
    """Its blocks of Python as one program, where they make a trainer's arguments; "" for none."""
    from vramcast.reading.python_values import parse_python

    kept = []
    for block in blocks:
        if block.language in _PROGRAMS:
            with suppress(QuestionError):
                parse_python(block.text, "a block")
                kept.append(block.text)
    whole = "\n".join(kept)
    return whole if _ARGUMENTS.search(whole) else ""


def _configuration(blocks: tuple[Block, ...]) -> dict[str, Any]:
    """The block of settings that says most of training; {} for none."""
    from vramcast.untrusted import parse_json, parse_toml, parse_yaml

    best: tuple[int, dict[str, Any]] = (0, {})
    for block in blocks:
        if block.language not in _SETTINGS:
            continue
        text = _outdented(block.text)
        with suppress(VramcastError):
            if block.language in ("toml", "json"):
                found = parse_toml(text, "a block") if block.language == "toml" else parse_json(text, "a block", repeats=True)
            else:
                found = parse_yaml(text, "a block")
            if isinstance(found, dict) and (said := shared.marks(flat(found))) >= max(_OWN_KEYS, best[0] + 1):
                best = said, found
    return best[1]


def _outdented(text: str) -> str:
    """A block of a list's entry without the room before its lines."""
    lines = [line for line in text.splitlines() if line.strip()]
    room = min((len(line) - len(line.lstrip()) for line in lines), default=0)
    return "\n".join(line[room:] for line in text.splitlines())
