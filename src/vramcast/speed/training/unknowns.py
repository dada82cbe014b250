"""What of a training step's time its words do not tell, each with how much of it there is.

A bar widens by them (``truth/step_bars.py``), and an answer names them.
"""

from typing import Literal

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.models.inventory import Model
from vramcast.models.layers import Experts
from vramcast.speed.kernels.machine import card_class
from vramcast.speed.training.step import StepTime
from vramcast.speed.training.sustained import kind_of, sources_of

What = Literal["experts", "launches", "few_runs"]
FEWEST_SOURCES = 2
"""Sources of runs from which the factors of a framework's kernels on a class of cards count as known."""
# Of the step's time, what the host takes to launch it: below the first share the card hides it, from the second on a host or a
# framework that is slower than most decides the step.
_HIDDEN, _DECISIVE = 0.2, 0.6


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not known. ``share``: how much of it there is, above 0 and at most 1. ``because``: what it is.

    ``of_step``: of launches, their part of the step's time.
    """

    what: What
    share: float
    because: str
    of_step: float = 0.0


def unknowns(speed: StepTime, model: Model, card: Accelerator) -> tuple[Unknown, ...]:
    """What is not known of this step, in no order that means anything; nothing for a dense model whose kind was measured."""
    found = []
    if any(isinstance(block.feedforward, Experts) for block in model.blocks):
        found.append(Unknown(what="experts", share=1.0, because="how evenly tokens choose experts, and how they are sent there"))
    waiting = min(1.0, (speed.launch_share - _HIDDEN) / (_DECISIVE - _HIDDEN))
    if waiting > 0:
        told = f"the host launches for {speed.launch_share:.0%} of the step: its processor is not known"
        found.append(Unknown(what="launches", share=waiting, because=told, of_step=speed.launch_share))
    kind = kind_of(speed.job.framework, compiled=speed.job.compiled)
    if sources_of(kind, card_class(card)) < FEWEST_SOURCES:
        told = f"fewer than {FEWEST_SOURCES} sources timed such kernels ({kind}) on cards of this class"
        found.append(Unknown(what="few_runs", share=1.0, because=told))
    return tuple(found)
