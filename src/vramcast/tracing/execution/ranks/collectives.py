"""What the other ranks answer in a group that only pretends: what this one says, which is the first of equals.

Memory is what the calls of torch.distributed make of it. Values matter where a program goes by them: a count of batches summed
over the ranks, lengths gathered from them, objects.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from vramcast.tracing.execution.session import Session


def install(session: Session) -> None:
    """Let sums, gathered tensors and objects have the values that equal ranks give them."""
    import torch.distributed as dist

    def summed(original: Any, tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None, **options: Any) -> Any:
        work = original(tensor, op, group, **options)
        known = _value(session, tensor) is not None
        if known and op == dist.ReduceOp.SUM and (ranks := dist.get_world_size(group)) > 1:
            _valued(session, tensor, lambda value: value * ranks)
        return work

    def gathered(original: Any, tensors: list[torch.Tensor], tensor: torch.Tensor, *args: Any, **options: Any) -> Any:
        work = original(tensors, tensor, *args, **options)
        value = _value(session, tensor)
        for each in tensors if value is not None else ():
            _valued(session, each, lambda _: value)
        return work

    def gathered_objects(_: Any, objects: list[Any], given: Any, group: Any = None) -> None:
        objects[: dist.get_world_size(group)] = [given] * dist.get_world_size(group)

    def collected_objects(original: Any, given: Any, objects: list[Any] | None = None, dst: int = 0, group: Any = None) -> None:
        del dst
        if objects is not None:
            gathered_objects(original, objects, given, group)

    def scattered_objects(_: Any, received: list[Any], given: list[Any] | None = None, *__: Any, **___: Any) -> None:
        received[0] = given[0] if given else None

    _replace("all_reduce", summed)
    _replace("all_gather", gathered)
    _replace("all_gather_object", gathered_objects)
    _replace("gather_object", collected_objects)
    _replace("scatter_object_list", scattered_objects)
    _replace("broadcast_object_list", lambda *_, **__: None)


def _replace(name: str, function: Callable[..., Any]) -> None:
    """Put ``function``, which gets the original first, in its place wherever torch.distributed holds it."""
    original = getattr(sys.modules["torch.distributed"], name)
    replaced = functools.wraps(original)(functools.partial(function, original))
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("torch.distributed") and getattr(module, name, None) is original:
            setattr(module, name, replaced)


def _value(session: Session, tensor: torch.Tensor) -> torch.Tensor | None:
    """A tensor's value: its twin where it is on the card, itself on the host; None where nobody knows it."""
    if session.backend.is_device(tensor):
        twin: torch.Tensor | None = session.mode.shadows.of(tensor)
        return twin
    return None if isinstance(tensor, FakeTensor) or tensor.is_meta else tensor


def _valued(session: Session, tensor: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Give a tensor another value."""
    with _disable_current_modes(), torch.no_grad():
        if session.backend.is_device(tensor):
            before = session.mode.shadows.of(tensor)
            after = change(torch.zeros(tuple(tensor.shape), dtype=tensor.dtype) if before is None else before)
            session.mode.shadows.put(tensor, after.to(tensor.dtype).reshape(tuple(tensor.shape)).clone())
        elif not isinstance(tensor, FakeTensor) and not tensor.is_meta:
            tensor.copy_(change(tensor))
