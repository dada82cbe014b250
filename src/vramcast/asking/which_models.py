"""The other way round: not which cards hold a model, but which of today's models the cards at hand run or train.

Each model is asked for the way that loses least (``ways.best_way``): most bits first, or the whole model before its adapters.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from vramcast.asking.asked import count_of
from vramcast.asking.ways import CONTEXT, SEQ, Way, best_way
from vramcast.errors import QuestionError
from vramcast.models.inventory import Model

_LEAST_BITS = 2.5  # a weight: no file that is offered has fewer, so a model whose weights alone are more is not asked


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A model with its parameters, and the way that loses least on the cards."""

    model: str
    parameters: int
    active_parameters: int
    way: Way


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """The models that fit, largest first, of ``asked`` ones, with ``context`` and ``users``, or trained on ``seq`` tokens.

    ``left_out``: ids of the others, smallest first: too large, or not taken by an engine of this card. ``task``: run or train.
    ``gpu`` is the card's name, ``gpu_flag`` what to type, ``capacity_bytes`` what one card shows.
    """

    task: str
    gpu: str
    gpu_flag: str
    gpus: int
    capacity_bytes: int
    context: int
    users: int
    seq: int
    asked: int
    models: tuple[Choice, ...]
    left_out: tuple[str, ...]


def models_for(
    gpu: str, *, task: str = "run", context: int | str | None = None, users: int | str | None = None,
    seq: int | str | None = None, watch: Callable[[int, int], None] | None = None,
) -> Choices:  # fmt: skip
    """Today's models that these cards run (or train), with ``context`` and ``users`` (or ``seq``).

    ``watch`` is told how many models of how many are done. Raises QuestionError for names and numbers that cannot be.
    """
    from vramcast.asking.serving import serving_question
    from vramcast.hardware.cards import least_card
    from vramcast.models.reading import read_model
    from vramcast.models.reading.known import CURRENT
    from vramcast.planning.changes import cards_flag

    if task not in ("run", "train"):
        raise QuestionError(f"the task is {task!r}: expected run or train")
    question = serving_question(CURRENT[0], gpu=gpu).question
    lengths = {
        "context": count_of(CONTEXT if context is None else context, "context"),
        "users": count_of(1 if users is None else users, "users"),
        "seq": count_of(SEQ if seq is None else seq, "seq"),
    }
    card, gpus = least_card(question.gpu or gpu), question.gpus
    listed = sorted((read_model(one) for one in CURRENT), key=lambda model: -model.parameters)
    choices = []
    for done, model in enumerate(listed, 1):
        choices.append(_choice(model, task, gpus * card.visible_bytes, gpu=gpu, **lengths))
        if watch is not None:
            watch(done, len(listed))
    return Choices(
        task=task,
        gpu=card.name,
        gpu_flag=cards_flag(question.gpu or gpu, gpus).removesuffix("x1"),
        gpus=gpus,
        capacity_bytes=card.visible_bytes,
        **lengths,
        asked=len(listed),
        models=tuple(choice for choice in choices if choice is not None),
        left_out=tuple(model.id for model, choice in reversed([*zip(listed, choices, strict=True)]) if choice is None),
    )


def _choice(model: Model, task: str, room_bytes: int, **asked: Any) -> Choice | None:
    """The model in the way that loses least; None where none fits, without asking where its weights alone cannot."""
    if model.parameters * _LEAST_BITS / 8 >= room_bytes or (way := best_way(model.id, task, **asked)) is None:
        return None
    return Choice(model=model.id, parameters=model.parameters, active_parameters=model.active_parameters, way=way)
