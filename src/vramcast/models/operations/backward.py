"""The backward pass of operations, for training: gradients of inputs and weights, of frozen layers, and recomputation.

Rules: a matrix product costs its FLOPs twice more, once for each gradient; a frozen one only the gradient of its input.
Attention kernels recompute the scores: 2.5 times the forward's FLOPs (FlashAttention-2, arXiv 2307.08691, section 3.2: five
products for two).
"""

from collections.abc import Iterable

import msgspec

from vramcast.models.operations.kinds import (
    Exchange,
    ExpertProducts,
    Indexing,
    LatentScores,
    Linear,
    Operation,
    Pointwise,
    Recurrence,
    Scores,
)  # fmt: skip

ATTENTION_BACKWARD = 2.5
RECURRENCE_BACKWARD = 2.0


def backward(forward: Iterable[Operation], *, frozen: bool = False) -> tuple[Operation, ...]:
    """What the backward pass of these operations runs, last first.

    ``frozen``: weights get no gradient (LoRA's base model, QLoRA), only inputs do.
    """
    found: list[Operation] = []
    for one in reversed(tuple(forward)):
        found += _backward(one, frozen=frozen)
    return tuple(found)


def recomputed(forward: Iterable[Operation], *, selective: bool = False) -> tuple[Operation, ...]:
    """What is run again before the backward pass under activation checkpointing.

    ``selective``: only attention's scores (Korthikanti et al., arXiv 2205.05198); otherwise the whole layers, head excluded.
    """
    if selective:
        return tuple(one for one in forward if isinstance(one, Scores | LatentScores))
    return tuple(one for one in forward if one.part != "head")


def _backward(one: Operation, *, frozen: bool) -> tuple[Operation, ...]:
    change = msgspec.structs.replace
    if isinstance(one, Linear):
        inputs = change(one, direction="input_gradient")
        return (inputs,) if frozen else (inputs, change(one, direction="weight_gradient"))
    if isinstance(one, ExpertProducts):
        return (change(one, passes=1.0 if frozen else 2.0),)
    if isinstance(one, Scores | LatentScores):
        return (change(one, passes=ATTENTION_BACKWARD),)
    if isinstance(one, Recurrence):
        return (change(one, passes=RECURRENCE_BACKWARD),)
    if isinstance(one, Pointwise):
        return (change(one, read=one.read + one.write, write=one.read),)
    return () if isinstance(one, Indexing) else (_other_way(one),)


def _other_way(one: Exchange) -> Exchange:
    ways = {"all_gather": "reduce_scatter", "reduce_scatter": "all_gather"}
    return msgspec.structs.replace(one, collective=ways.get(one.collective, one.collective))
