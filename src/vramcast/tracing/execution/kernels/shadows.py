"""Shadow values: the real contents of small integer tensors, kept beside the fake ones.

Training code asks tensors for values now and then (a mask that is all ones, the lengths of packed sequences, which expert a token
goes to). Fake tensors have none, so each small integer or boolean tensor carries a CPU twin, made by running the same operator on
the CPU. What no twin can know is answered by a policy: routing is balanced, a generated token is 1, a float is 1.0.
"""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_unflatten

_WHOLE = frozenset({torch.bool, torch.int64, torch.int32, torch.uint8, torch.int16, torch.int8})
_LARGEST = 1 << 22  # elements; larger index tensors are never asked for their values
aten = torch.ops.aten


class CpuTwins:
    """CPU twins of device tensors, by identity; a twin dies with its tensor."""

    def __init__(self, is_device: Callable[[Any], bool]) -> None:
        self._is_device = is_device
        self._twins: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}

    def of(self, value: Any) -> Any:
        """The twin of a device tensor (None without one); any other value as it is."""
        if not self._is_device(value):
            return value
        entry = self._twins.get(id(value))
        return entry[1] if entry is not None and entry[0]() is value else None

    def put(self, tensor: torch.Tensor, twin: torch.Tensor) -> None:
        """Give a device tensor its twin."""
        key = id(tensor)
        self._twins[key] = (weakref.ref(tensor, lambda _: self._twins.pop(key, None)), twin)

    def on_cpu(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The operator's result on twins, or None when an argument has none or the CPU refuses."""
        flat, spec = tree_flatten((args, kwargs))
        twins = [torch.device("cpu") if isinstance(x, torch.device) else self.of(x) for x in flat]
        if any(t is None and x is not None for t, x in zip(twins, flat, strict=True)):
            return None
        twin_args, twin_kwargs = tree_unflatten(twins, spec)
        try:
            with _disable_current_modes():
                return func(*twin_args, **twin_kwargs)
        except (RuntimeError, IndexError, ValueError, NotImplementedError, TypeError):
            return None

    def follow(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Give the small whole-number tensors among an operator's results their twins."""
        results = [out] if isinstance(out, torch.Tensor) else tree_flatten(out)[0]
        wanted = [self._is_device(r) and r.dtype in _WHOLE and r.numel() <= _LARGEST for r in results]
        if not any(wanted):
            return
        real = self.on_cpu(func, args, kwargs)
        if real is None:
            return
        for result, twin, want in zip(results, tree_flatten(real)[0], wanted, strict=False):
            if want and isinstance(twin, torch.Tensor) and twin.shape == result.shape:
                self.put(result, twin)

    def presume(self, func: Any, args: Any, kwargs: Any, out: torch.Tensor) -> None:
        """Judgement policy: a comparison of single values holds or not as it does for 1.0; ``all`` holds, ``any`` does not."""
        if out.dim() or out.dtype != torch.bool:
            return
        flat, spec = tree_flatten((args, kwargs))
        if max((x.numel() for x in flat if isinstance(x, torch.Tensor)), default=0) > 1:
            if func in (aten.all.default, aten.any.default):
                with _disable_current_modes():
                    self.put(out, torch.tensor(func is aten.all.default))
            return
        with _disable_current_modes():
            known = [
                torch.ones(x.shape, dtype=x.dtype) if self._is_device(x) and self.of(x) is None else self.of(x) for x in flat
            ]
            self.put(out, func(*tree_unflatten(known, spec)[0], **tree_unflatten(known, spec)[1]))

    def change(self, func: Any, args: Any, kwargs: Any) -> None:
        """Do to a twin what an operator does to its tensor in place; a change by unknown values leaves nothing known."""
        target = args[0]
        if self._is_device(target) and self.of(target) is not None and self.on_cpu(func, args, kwargs) is None:
            self._twins.pop(id(target), None)

    def exchanged(self, received: torch.Tensor, sent: torch.Tensor) -> None:
        """All-to-all policy: every rank sends what this one sends to the first."""
        twin = self.of(sent)
        if twin is None or received.shape != sent.shape:
            return
        with _disable_current_modes():
            self.put(received, twin[:1].expand_as(twin).contiguous())

    def balanced(self, indices: torch.Tensor, choices: int) -> None:
        """Routing policy: indices 1, 2, ... 0 so that every choice is taken equally often; first no 0, which some divide by."""
        with _disable_current_modes():
            self.put(indices, (torch.arange(1, indices.numel() + 1) % choices).reshape(tuple(indices.shape)))

    def ones(self, tensor: torch.Tensor) -> None:
        """Sampling policy: every drawn token is number 1."""
        with _disable_current_modes():
            self.put(tensor, torch.ones(tuple(tensor.shape), dtype=tensor.dtype))
