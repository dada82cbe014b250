"""Flags of TRL and of the Trainer typed behind ``vramcast train``: read as the same settings in a file are."""

import shlex
from collections.abc import Iterable, Sequence

import click

from vramcast.cli.grouped import GroupedCommand

_META = "vramcast.foreign"
_TRAINERS = ("sft", "dpo", "kto", "grpo", "reward", "orpo")  # TRL's commands


class TrainCommand(GroupedCommand):
    """A command that sets apart the settings of other programs before its own flags are read."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments less those of other programs, which ``foreign_text`` gives back."""
        own = {flag for option in self.params for flag in (*option.opts, *option.secondary_opts)}
        if any(word.startswith("--") and word.partition("=")[0] not in own for word in args):
            kept, ctx.meta[_META] = set_apart(args, own)
            return super().parse_args(ctx, kept)
        return super().parse_args(ctx, args)


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


def foreign_text(method: str | None) -> str | None:
    """The settings that were set apart, as the line of TRL's or of a Trainer's script; None where there were none.

    ``method``: what was typed of ours, which names the trainer.
    """
    from vramcast.reading.training.huggingface import TRL

    found: dict[str, str] = click.get_current_context().meta.get(_META) or {}
    if not found:
        return None
    trainer = method if method in _TRAINERS else "sft"
    program = ["trl", trainer] if TRL.keys() & found.keys() else ["python", "train.py"]
    return shlex.join([*program, *(word for name, value in found.items() for word in (f"--{name}", value))])
