"""Flags of TRL and of the Trainer typed behind ``vramcast train``: read as the same settings in a file are."""

import shlex
from collections.abc import Iterable, Mapping, Sequence

_TRAINERS = ("sft", "dpo", "kto", "grpo", "reward", "orpo")  # TRL's commands


def set_apart(args: Sequence[str], own: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """The words of ours, and TRL's settings by name; a bare flag is ``true``, as its parsers have it."""
    from vramcast.cli import ELSEWHERE
    from vramcast.reading.training.huggingface import IDLE, RULES

    known, ours = {*RULES, *IDLE}, set(own)
    kept: list[str] = []
    theirs: dict[str, str] = {}
    waiting = list(args)
    while waiting:
        word = waiting.pop(0)
        flag, joined, value = word.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        if not flag.startswith("--") or flag in ours or name not in known or flag.replace("_", "-") in ELSEWHERE:
            kept.append(word)
            continue
        if not joined:
            value = waiting.pop(0) if waiting and not waiting[0].startswith("--") else "true"
        theirs[name] = value
    return kept, theirs


def as_line(theirs: Mapping[str, str], method: str | None) -> str:
    """The settings that were set apart, as the line of TRL's or of a Trainer's script.

    ``method``: what was typed of ours, which names the trainer.
    """
    from vramcast.reading.training.huggingface import TRL

    trainer = method if method in _TRAINERS else "sft"
    program = ["trl", trainer] if TRL.keys() & theirs.keys() else ["python", "train.py"]
    return shlex.join([*program, *(word for name, value in theirs.items() for word in (f"--{name}", value))])
