"""The tracing mode: sees every operator below autograd, runs it on fake tensors, and tells the recorder what it allocated.

A few operators behave differently under a Python mode than on a GPU; each is put right here and says why.
"""

import functools
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten

from vramcast.hardware.runtime import workspace_of_capability
from vramcast.tracing import policies
from vramcast.tracing.execution.backends import Backend, FakeCuda
from vramcast.tracing.execution.kernels import ctc, guessed_length, workspaces
from vramcast.tracing.execution.kernels.attention import Attention
from vramcast.tracing.execution.kernels.operators import (
    ACCUMULATE,
    CPU_FACTORIES,
    INDEXED,
    JUDGEMENTS,
    MATRIX_PRODUCTS,
    SCATTERS,
    VALUES,
    ZEROS,
    Kind,
    is_weight_sized,
    kind_of,
    least_squares,
    onto_cpu,
)
from vramcast.tracing.execution.kernels.shadows import CpuTwins
from vramcast.tracing.execution.recorder import Recorder

aten = torch.ops.aten
_DEVICE_OF = torch.ops.prim.device.default
_COPY = aten._to_copy.default
_WAIT = torch.ops._c10d_functional.wait_tensor.default
_GROUPED = aten._grouped_mm.default if hasattr(aten, "_grouped_mm") else None
_PINS = (aten.pin_memory.default, aten._pin_memory.default)
_LEAST_SQUARES = aten.linalg_lstsq.default
_FILLS = (aten.index_put_.default, aten.index_put.default)
_WRITES = (aten.fill_.Tensor, aten.copy_.default)
_INDEX = aten.index.Tensor
_IS_PINNED = aten.is_pinned.default
_ENGINE_FILES = ("_tensor.py", "autograd/__init__.py", "autograd/graph.py")


class OperatorLimitError(RuntimeError):
    """The program ran more operators than the tracer was allowed to follow."""


class TracingMode(TorchDispatchMode):  # type: ignore[misc]
    """Runs operators on a backend and records their device memory.

    ``guessed`` counts values that were made up because no twin knew them, by operator and module; ``operators`` counts all.
    """

    def __init__(
        self, backend: Backend, recorder: Recorder, attention: Attention, device: policies.DeviceModel, *, limit: int = 5_000_000
    ) -> None:
        super().__init__()
        self.backend = backend
        self.recorder = recorder
        self.attention = attention
        self.device = device
        self.shadows = CpuTwins(backend.is_device)
        self.guessed: Counter[str] = Counter()
        self.operators = 0
        self.limit = limit
        self.paused = 0
        self._kinds: dict[Any, Kind] = {}
        self._names: dict[Any, str] = {}
        self._workspaces = workspaces.rules()
        self._cublas_handles: set[tuple[bool, int]] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here: without a wrapper around every operator that tells Dynamo so."""
        return False

    def restart(self) -> None:
        """Forget what belongs to one log: values guessed, operators counted, library handles."""
        self.guessed.clear()
        self.operators = 0
        self._cublas_handles.clear()

    def reload_workspaces(self) -> None:
        """Take in the rules of a library that was loaded after the mode was made."""
        self._workspaces = workspaces.rules()

    def __enter__(self) -> "TracingMode":
        self._lifted = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(True)
        return super().__enter__()  # type: ignore[no-any-return]

    def __exit__(self, *exception: Any) -> None:
        torch._C._set_only_lift_cpu_tensors(self._lifted)
        super().__exit__(*exception)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is _DEVICE_OF:
            return getattr(args[0], "fake_device", None) or func(*args)
        if self.paused:
            return func(*args, **kwargs)
        if any(map(_runs_itself, types)):
            return NotImplemented
        if func is _WAIT:
            return args[0]
        if func is _LEAST_SQUARES:
            with self:
                return least_squares(*args)
        if not self._touches_device(args, kwargs):
            return self._on_cpu(func, args, kwargs)
        self.operators += 1
        if self.operators > self.limit:
            raise OperatorLimitError(f"stopped after {self.limit:,} operators")
        return self._run(func, args, kwargs)

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func in INDEXED:
            filled = self._filled(func, args, kwargs)
            if filled is not None:
                return filled
            args = (args[0], self._places(args[1]), *args[2:])
        kind = self._kinds.get(func)
        if kind is None:
            kind = self._kinds[func] = kind_of(func)
            self._names[func] = str(func)
        if kind is Kind.COMPOSITE:
            with self:
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
            kind = self._kinds[func] = Kind.ALLOCATES
        if kind is Kind.ATTENTION:
            return self.attention(*args, **kwargs)
        if kind is Kind.VALUE or kind is Kind.CTC:
            return self._ctc(func, args) if kind is Kind.CTC else self._value(func, args, kwargs)
        known = self._known(func, kind, args, kwargs)
        if known is not None:
            return known
        in_place = self._as_engine_does(func, args, kwargs)
        if in_place is not None:
            return in_place
        if func in MATRIX_PRODUCTS:
            self._take_cublas_workspace()
        out = self._grouped(func, args, kwargs) if func is _GROUPED else self.backend.call(func, args, kwargs)
        if torch._C._current_autograd_node() is None:
            self.recorder.places.note_sequence()
        self._record(func, kind, args, kwargs, out)
        return guessed_length.mark_like(args[1], out) if func is _INDEX else out

    def _record(self, func: Any, kind: Kind, args: Any, kwargs: Any, out: Any) -> None:
        if kind in {Kind.VIEW, Kind.IN_PLACE}:
            if kind is Kind.VIEW:
                self.shadows.follow(func, args, kwargs, out)
            else:
                self.shadows.change(func, args, kwargs)
            return
        name, see, is_device = self._names[func], self.recorder.see, self.backend.is_device
        if isinstance(out, torch.Tensor):
            if is_device(out):
                see(out, name)
        elif isinstance(out, tuple | list):
            for result in tree_flatten(out)[0]:
                if is_device(result):
                    see(result, name)
        self._give_values(func, kind, args, kwargs, out)
        rule = self._workspaces.get(func)
        if rule is not None:
            self.recorder.transient(rule(args, out, self.device), name)

    def _give_values(self, func: Any, kind: Kind, args: Any, kwargs: Any, out: Any) -> None:
        if kind is Kind.TOP_K:
            axis = args[2] if len(args) > 2 else -1
            self.shadows.balanced(out[1], args[0].shape[axis])
        elif kind is Kind.SAMPLE:
            self.shadows.ones(out)
        elif kind is Kind.EXCHANGE:
            self.shadows.exchanged(*args[:2])
        else:
            self.shadows.follow(func, args, kwargs, out)
            if func in JUDGEMENTS and isinstance(out, torch.Tensor) and self.shadows.of(out) is None:
                self.shadows.presume(func, args, kwargs, out)

    def _touches_device(self, args: Any, kwargs: Any) -> bool:
        is_device = self.backend.is_device
        for value in (*args, *kwargs.values()):
            if is_device(value) or (isinstance(value, list | tuple) and any(is_device(v) for v in value)):
                return True
        named = kwargs.get("device")
        return named is not None and torch.device(named).type == self.backend.device_type

    def _on_cpu(self, func: Any, args: Any, kwargs: Any) -> Any:
        """CPU work stays real, but for page-locked memory, which needs a driver, and weights, which would fill the host."""
        if func in VALUES and isinstance(args[0], FakeTensor):
            return self._made_up(func, args[0])
        if func in _WRITES and isinstance(args[1], FakeTensor) and not isinstance(args[0], FakeTensor):
            return args[0].fill_(self._made_up(func, args[1]))  # else what stood in the memory before would be read as values
        if func in _PINS:
            return args[0]
        if func is _IS_PINNED:
            return True
        if func in CPU_FACTORIES and isinstance(self.backend, FakeCuda) and is_weight_sized(args, kwargs):
            return self.backend.call(func, args, kwargs)
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        return func(*args, **kwargs)

    def _take_cublas_workspace(self) -> None:
        """The first matrix product of a thread on a stream takes that handle's workspace for good."""
        handle = (torch._C._current_autograd_node() is not None, self.recorder.stream)
        if handle not in self._cublas_handles:
            self._cublas_handles.add(handle)
            self.recorder.permanent(workspace_of_capability(self.device.capability), "cublas workspace")

    def _ctc(self, func: Any, args: Any) -> Any:
        """The CTC loss, of which no shape function knows."""
        with self:
            out, held = ctc.run(func, args, self.shadows)
        self.recorder.transient(held, self._names[func])
        if torch._C._current_autograd_node() is None:
            self.recorder.places.note_sequence()
        return out

    def _grouped(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Grouped products: the shape function takes bf16 alone, the CUDA operator falls back to other types."""
        kind = args[0].dtype
        if kind == torch.bfloat16:
            return self.backend.call(func, args, kwargs)
        with self.quiet():
            halves = [a.to(torch.bfloat16) for a in args[:2]]
            return self.backend.call(func, (*halves, *args[2:]), kwargs).to(kind)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """What runs inside is not recorded: helpers that no GPU would run."""
        self.paused += 1
        try:
            yield
        finally:
            self.paused -= 1

    def _as_engine_does(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Under a mode the autograd engine adds gradients, and some formulas scatter, out of place; on a GPU in place."""
        if func is not ACCUMULATE and func not in SCATTERS:
            return None
        places = self.recorder.places
        by_engine = torch._C._current_autograd_node() is not None and not torch.is_grad_enabled()
        if kwargs or places.stack or not by_engine or _called_from_python():
            return None
        target = args[0]
        if func is ACCUMULATE:
            return aten.add_.Tensor(*args[:2]) if self._same_layout(target, args[1]) else None
        origin = self.recorder.origin(target) if self.backend.is_device(target) else None
        fresh = origin is not None and origin.op in ZEROS and len(self.recorder.log.order) - origin.start <= 4
        return SCATTERS[func](*args) if fresh else None

    def _same_layout(self, left: Any, right: Any) -> bool:
        is_device = self.backend.is_device
        return bool(is_device(left) and is_device(right) and left.shape == right.shape and left.dtype == right.dtype)

    def _value(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The program asks a tensor for its value: the twin's, or a made-up one that is counted."""
        real = self.shadows.on_cpu(func, args, kwargs)
        return self._made_up(func, args[0]) if real is None else real

    def _made_up(self, func: Any, tensor: torch.Tensor) -> Any:
        """A value that nobody knows: 1.0, 1 or False; it is counted, with its place."""
        self._guess(func)
        if tensor.dtype.is_floating_point and func is not aten.is_nonzero.default:
            return 1.0
        return False if func in (aten.is_nonzero.default, aten.equal.default) or tensor.dtype == torch.bool else 1

    def _guess(self, func: Any) -> None:
        where = self.recorder.places.here()[0]
        self.guessed[f"{self._names.setdefault(func, str(func))} in {where or 'the program'}"] += 1

    def _filled(self, func: Any, args: Any, kwargs: Any) -> Any:
        """``x[mask] = value`` with one value fills in place, without places (at::native, canDispatchToMaskedFill); else None."""
        target, indices, *more = args
        filling = func in _FILLS and len(indices) == 1 and not any(more[1:]) and not kwargs
        mask = indices[0] if filling else None
        if mask is None or mask.dtype != torch.bool or more[0].numel() != 1 or not self.backend.is_device(mask):
            return None
        with self:
            wide = mask.reshape(*mask.shape, *([1] * (target.dim() - mask.dim())))
            fill = target.masked_fill_ if func is aten.index_put_.default else target.masked_fill
            return fill(wide, more[0].reshape(()).to(target.dtype))

    def _places(self, indices: Any) -> list[torch.Tensor | None]:
        """Indices of places: a mask is turned into the places where it holds, as on a GPU."""
        places: list[torch.Tensor | None] = []
        for index in indices:
            if index is not None and self.backend.is_device(index) and index.dtype == torch.bool:
                with self:
                    found = index.nonzero()
                    places += guessed_length.mark_like([found], found.unbind(1))
            elif index is not None and index.dtype == torch.bool and not isinstance(index, FakeTensor):  # a mask on the host
                with self:
                    places += index.nonzero().to(self.backend.device_type).unbind(1)
            else:
                places.append(index)
        return places

    def _known(self, func: Any, kind: Kind, args: Any, kwargs: Any) -> Any:
        """The result where the twins alone make it: shapes that depend on values, and values brought back to the CPU."""
        if kind is Kind.DATA_SHAPED:
            return self._data_shaped(func, args, kwargs)
        if func in _WRITES and not isinstance(args[0], FakeTensor) and not self.backend.is_device(args[0]):
            return self._written(func, args, kwargs)
        return self.shadows.on_cpu(func, args, kwargs) if func is _COPY and onto_cpu(kwargs) else None

    def _written(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A host tensor into which a device's is copied: the twin's values or, where nobody knows them, one made-up value."""
        real = self.shadows.on_cpu(func, args, kwargs)
        return args[0].fill_(self._made_up(func, args[1])) if real is None else real

    def _data_shaped(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Operators whose result's shape depends on values: shaped by the twins, when all are known."""
        real = self.shadows.on_cpu(func, args, kwargs)
        if real is None:
            return self._most(func, args[0])
        made = []
        for twin in real if isinstance(real, tuple) else (real,):
            with _disable_current_modes():
                result = self.backend.empty_like_real(twin)
            self.recorder.see(result, self._names[func])
            self.shadows.put(result, twin)
            made.append(result)
        return tuple(made) if isinstance(real, tuple) else made[0]

    def _most(self, func: Any, tensor: torch.Tensor) -> Any:
        """Every element, where nobody knows which ones hold or differ: the most that can be found; counted as a guess."""
        if func in (aten._unique2.default, aten.unique_consecutive.default):
            return self._all_differ(func, tensor)
        if func not in (aten.nonzero.default, aten.masked_select.default):
            return None
        self._guess(func)
        shape = [tensor.numel(), tensor.dim()] if func is aten.nonzero.default else [tensor.numel()]
        kind = torch.int64 if func is aten.nonzero.default else tensor.dtype
        made = self.backend.call(
            aten.empty.memory_format, (shape,), {"dtype": kind, "device": torch.device(self.backend.device_type)}
        )
        self.recorder.see(made, self._names[func])
        return guessed_length.mark(made)

    def _all_differ(self, func: Any, tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Values, the place of each element among them, and how often each stands there: all as long as if none were equal."""
        self._guess(func)
        card = torch.device(self.backend.device_type)
        made = []
        for shape, kind in (
            ((tensor.numel(),), tensor.dtype),
            (tuple(tensor.shape), torch.int64),
            ((tensor.numel(),), torch.int64),
        ):
            made.append(self.backend.call(aten.empty.memory_format, (shape,), {"dtype": kind, "device": card}))
            self.recorder.see(made[-1], self._names[func])
        return tuple(made)


@functools.cache
def _runs_itself(kind: Any) -> bool:
    """A class of tensors made of others (DTensor, NF4Tensor) runs its operators on its parts, and those are seen."""
    own = kind.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl
    return own and not issubclass(kind, FakeTensor)


def _called_from_python() -> bool:
    """True when Python code below the engine (a custom autograd function, a recomputed block) made the call."""
    frame: Any = sys._getframe(3)
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_engine_run_backward":
            return False
        if code.co_name == "backward" and not code.co_filename.endswith(_ENGINE_FILES):
            return True
        frame = frame.f_back
    return False
