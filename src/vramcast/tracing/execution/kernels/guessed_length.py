"""Tensors as long as the most that a mask can hold, where its values are not known: a shape that the program gives says how many.

``x[mask].view(rows, 8)`` and ``masked_select(...).reshape(...)`` name the length; the rest is cut off, above autograd, so that
gradients have the lengths that they come from. ``Tensor.view`` is left alone until the first length was guessed.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch

_MARK = "_vramcast_guessed_length"


def mark(tensor: Any) -> Any:
    """A tensor whose first dimension is guessed; given back."""
    setattr(tensor, _MARK, True)
    _follow_shapes()
    return tensor


def mark_like(sources: Iterable[Any], made: Any) -> Any:
    """A tensor, or several, made with tensors of guessed lengths: marked as those are, and given back."""
    if any(getattr(source, _MARK, False) for source in sources):
        for each in made if isinstance(made, tuple | list) else (made,):
            mark(each)
    return made


@functools.cache
def _follow_shapes() -> None:
    for name in ("view", "reshape"):
        setattr(torch.Tensor, name, _fitting(getattr(torch.Tensor, name)))


def _fitting(original: Any) -> Any:
    @functools.wraps(original)
    def shaped(tensor: torch.Tensor, *shape: Any, **named: Any) -> Any:
        asked = shape or (named.get("size", named.get("shape")),)  # as ``view`` and ``reshape`` call it
        if getattr(tensor, _MARK, False):
            tensor = _cut(tensor, asked[0] if isinstance(asked[0], Sequence) else asked)
        return original(tensor, *shape, **named)

    return shaped


def _cut(tensor: torch.Tensor, shape: Sequence[Any]) -> torch.Tensor:
    """The part of a tensor that a shape has room for; all of it where the shape names no number."""
    if not all(isinstance(size, int) for size in shape):
        return tensor
    known = math.prod(size for size in shape if size >= 0)
    wanted = known if -1 not in shape else tensor.numel() // max(known, 1) * known
    return torch.flatten(tensor)[:wanted] if 0 < wanted < tensor.numel() else tensor
