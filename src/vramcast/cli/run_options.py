"""The options that describe a training run well enough to forecast its step, for commands that set one beside a measurement."""

from collections.abc import Callable
from typing import Any

import click

_OPTIONS = (
    click.option("--framework", metavar="F", help="Of the run; this and what follows set a forecast of it beside the figure."),
    click.option("--micro-batch", type=int, metavar="N", help="Sequences of a micro-batch on one card."),
    click.option("--accumulate", type=int, metavar="N", help="Micro-batches of a step."),
    click.option("--zero", type=click.IntRange(0, 3), help="DeepSpeed's stage."),
    click.option("--fsdp", type=click.IntRange(1, 2), help="FSDP's version."),
    click.option("--tp", type=int, metavar="N", help="Tensor-parallel cards."),
    click.option("--pp", type=int, metavar="N", help="Pipeline stages."),
)


RUN_NAMES = ("framework", "micro_batch", "accumulate", "zero", "fsdp", "tp", "pp")


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options on a command's function."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
