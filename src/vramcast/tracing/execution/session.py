"""A tracing session: backend, recorder, mode and patches put together, with what is a weight, a gradient or optimizer state."""

import gc
import logging
import traceback
from collections import Counter
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from vramcast.tracing.execution.advice import without_network
from vramcast.tracing.execution.backends import Backend, open_backend
from vramcast.tracing.execution.handling import is_cleaning_up
from vramcast.tracing.execution.kernels import attention
from vramcast.tracing.execution.mode import TracingMode
from vramcast.tracing.execution.packages import without_package
from vramcast.tracing.execution.places import Places, is_library
from vramcast.tracing.execution.recorder import Recorder
from vramcast.tracing.execution.stand_ins import gpu_api, patches
from vramcast.tracing.policies import DeviceModel, attention_order
from vramcast.tracing.request import SEVERAL_CARDS, TraceResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_OWN = str(Path(__file__).parents[2])
_HANDED_ON = "Original Traceback (most recent call last)"


class EnoughStepsError(BaseException):
    """Raised in the optimizer's step hook once enough steps were traced; not an Exception, so that no program catches it."""


class OutOfTimeError(BaseException):
    """Raised where a program stands when its time is up; not an Exception, so that no program catches it."""


class Session:
    """One traced run in this process; there is only ever one, because the patches stay."""

    def __init__(
        self,
        *,
        backend: str = "cuda",
        device: DeviceModel,
        order: tuple[str, ...] = (),
        lines: bool = False,
        limit: int = 5_000_000,
    ) -> None:
        self.backend: Backend = open_backend(backend)
        self.device = device
        self.places = Places(lines=lines)
        self.recorder = Recorder(self.places)
        self.attention = attention.Attention(order or attention_order(torch_version(), device.capability))
        self.mode = TracingMode(self.backend, self.recorder, self.attention, device, limit=limit)
        self.wanted_steps = 0
        self.lingers = False
        self.notes: dict[str, None] = {}
        self._steps: Counter[int] = Counter()
        self.parameters = self.trainable = 0
        self.mesh: Any = None
        self.on_step: list[Callable[[bool], None]] = []
        self._outside: list[torch.Tensor] = []
        self._homes: dict[int, str] = {}
        self.places.on_module.append(self._label_module)
        self.places.on_step.append(self._label_state)
        logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)  # failures are raised as well
        attention.install(self.attention, self.backend.attention_keys)
        patches.install(self.mode)
        if backend == "cuda":
            gpu_api.install(device, self.recorder)

    @contextmanager
    def recording(self) -> "Iterator[Session]":
        """Record everything that runs inside."""
        self.places.watch()
        try:
            with self.mode:
                yield self
        finally:
            self.places.unwatch()

    @contextmanager
    def unrecorded(self) -> "Iterator[None]":
        """What runs inside is made of the backend's tensors and leaves nothing in the log."""
        with self.mode.quiet(), getattr(self.backend, "mode", nullcontext()):
            yield

    def restart(self, order: tuple[str, ...] = ()) -> None:
        """Begin another log in the same process, after the last model is gone."""
        gc.collect()
        self.recorder.restart()
        self.mode.restart()
        self.places.restart()
        self.attention.counts.clear()
        self.attention.order = order or attention_order(torch_version(), self.device.capability)
        self.notes.clear()
        self._steps.clear()
        self._outside.clear()
        self._homes.clear()
        self.parameters = self.trainable = 0

    @property
    def steps(self) -> int:
        """Steps that every optimizer of the program has made; where each parameter has its own, all of them make one step."""
        return min(self._steps.values(), default=0)

    @property
    def made_steps(self) -> int:
        """Steps of all optimizers together."""
        return self._steps.total()

    def trace(self, program: "Callable[[], object]", *, steps: int) -> str:
        """Record a program until it ends or has made ``steps`` optimizer steps; what it raised in a line, "" for nothing."""
        self.wanted_steps = steps
        try:
            with self.recording():
                program()
                self.recorder.closed = True
        except EnoughStepsError:
            self.recorder.closed = True
        except SystemExit as done:
            if done.code:
                return f"the script ended itself with exit code {done.code}{place_of(done)}"
            self.notes[f"the script ended itself{place_of(done)}"] = None
        except (Exception, OutOfTimeError) as failure:  # whatever the program raised is the finding
            return describe(failure)
        finally:
            self.wanted_steps = 0
        return ""

    def count(self, model: torch.nn.Module) -> None:
        """Note the parameters of the whole model, before its ranks divide it."""
        self.parameters = sum(p.numel() for p in model.parameters())
        self.trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)

    def collect(self) -> None:
        """Free what only reference cycles keep, as a long-running program would sooner or later."""
        gc.collect()

    def keep_outside(self, tensor: torch.Tensor) -> None:
        """A tensor in managed memory: counted, but not in the log."""
        self.recorder.ignore(tensor)
        self._outside.append(tensor)

    def result(self, *, seconds: float, notes: tuple[str, ...], error: str) -> TraceResult:
        """What was found so far."""
        return TraceResult(
            log=self.recorder.log,
            backend=self.backend.device_type,
            steps=self.steps,
            parameters=self.parameters,
            trainable=self.trainable,
            operators=self.mode.operators,
            seconds=seconds,
            attention=dict(self.attention.counts),
            guessed=dict(self.mode.guessed),
            notes=(*notes, *self.notes, *self._of_several_cards()),
            outside_bytes=sum(t.untyped_storage().nbytes() for t in self._outside),
            error=error,
        )

    def _of_several_cards(self) -> tuple[str, ...]:
        count = len(self.recorder.cards)
        return (f"{SEVERAL_CARDS} {count} cards: the peak is of all of them together, more than any holds",) if count > 1 else ()

    def start_loaded(self, model: torch.nn.Module) -> None:
        """Begin the log with a model's tensors as ``from_pretrained`` leaves them: no random ones before, no tied head."""
        self.recorder.restart()
        for tensor in (*model.parameters(), *model.buffers()):
            if self.backend.is_device(tensor):
                self.recorder.see(tensor, "from_pretrained")

    def label_inputs(self, batch: dict[str, Any]) -> None:
        """Mark a batch's tensors as inputs."""
        for tensor in batch.values():
            self.label(tensor, "inputs")

    def label_model(self, model: torch.nn.Module) -> None:
        """Mark weights, buffers and (as they appear) gradients of a whole model."""
        self.places.know(model)
        for module in model.modules():
            self._label_module(module)

    def _label_module(self, module: torch.nn.Module) -> None:
        home = self.places.name_of(module)
        for parameter in module._parameters.values():
            if parameter is None:
                continue
            self._homes[id(parameter)] = home
            self.label(parameter, "weights", home)
            if parameter.grad is not None:
                self.label(parameter.grad, "gradients", home)
            followed = getattr(parameter, "_vramcast_followed", not parameter.is_leaf)  # FSDP1 puts views of its flat parameter
            if parameter.requires_grad and not followed:
                parameter.register_post_accumulate_grad_hook(lambda p: self.label(p.grad, "gradients", home))
                parameter._vramcast_followed = True
        for buffer in module._buffers.values():
            self.label(buffer, "weights", home)

    def _label_state(self, optimizer: torch.optim.Optimizer) -> None:
        self._steps[id(optimizer)] += 1
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:  # sharded gradients are put there by no autograd node
                    self.label(parameter.grad, "gradients", self._homes.get(id(parameter), ""))
        for parameter, state in optimizer.state.items():
            for value in state.values() if isinstance(state, dict) else ():
                self.label(value, "optimizer", self._homes.get(id(parameter), ""))
        enough = bool(self.wanted_steps) and self.steps >= self.wanted_steps
        self._followed(enough and not self.lingers)

    def _followed(self, enough: bool) -> None:
        """Tell of a step; after enough of them the program ends here."""
        for follow in self.on_step:
            follow(enough)
        if enough:
            self.recorder.closed = True
            raise EnoughStepsError(f"{self.steps} optimizer steps traced")

    def live(self) -> None:
        """Mark the stages of a job's life, and go on after its steps until the next one would begin."""
        self.lingers = True
        self.places.on_stage = self.stage
        self.places.before_step = lambda: self._followed(bool(self.wanted_steps) and self.steps >= self.wanted_steps)
        self.stage("start")

    def stage(self, name: str) -> None:
        """A stage of the job's life begins, where those are asked for."""
        if self.lingers and not self.recorder.closed:
            self.recorder.log.stage(name)

    @contextmanager
    def within(self, name: str) -> "Iterator[None]":
        """A stage that has an end; what follows belongs to none until the next forward pass."""
        self.stage(name)
        yield
        self.stage("between")

    def label(self, tensor: Any, category: str, module: str = "") -> None:
        """Say what a tensor of the traced device is; its parts where it is made of others: of one rank's, packed and scales."""
        if hasattr(tensor, "__tensor_flatten__"):
            for name in tensor.__tensor_flatten__()[0]:
                self.label(getattr(tensor, name), category, module)
        elif isinstance(tensor, torch.Tensor) and self.backend.is_device(tensor):
            self.recorder.label(tensor, category, module)


def describe(failure: BaseException) -> str:
    """The failure in one line, its place, and what would help where a network or a package is missing.

    A name that is not defined in a ``finally``, which uses what was never made, is not the cause; one in an ``except`` is.
    """
    before = failure.__context__
    if isinstance(failure, NameError) and isinstance(before, Exception) and not failure.__suppress_context__:
        frames = traceback.extract_tb(failure.__traceback__)
        failure = before if any(is_cleaning_up(frame.filename, frame.lineno or 0) for frame in frames) else failure
    advice = without_package(failure) or without_network(failure)
    return f"{type(failure).__name__}: {' '.join(_message(failure).split())[:400]}{place_of(failure)}{advice}"


def _message(failure: BaseException) -> str:
    """What a failure says; of one that a loader's worker handed on, its last lines: where it was raised, and why."""
    said = str(failure)
    if _HANDED_ON not in said:
        return said
    *lines, why = [line.strip() for line in said.strip().splitlines()]
    why = why.removeprefix(f"{type(failure).__name__}: ")
    places = [line for line in lines if line.startswith('File "') and not is_library(line.split('"')[1])]
    return f"{why} in a loader's worker, {places[-1]}" if places else f"{why} in a loader's worker"


def place_of(failure: BaseException) -> str:
    """The innermost line of code that is not the tracer's, and the line of no library above it."""
    return _place(traceback.extract_tb(failure.__traceback__))


def place_of_frame(frame: "FrameType") -> str:
    """The same of a thread that still runs."""
    return _place(traceback.extract_stack(frame))


def _place(stack: traceback.StackSummary) -> str:
    frames = [f for f in stack if not f.filename.startswith(_OWN)]
    own = [f for f in frames if not is_library(f.filename)]
    where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    if own and own[-1] is not frames[-1]:
        where += f", called from {own[-1].filename}:{own[-1].lineno}"
    return where


def raised_here(failure: BaseException) -> bool:
    """Whether the tracer's own code asked for what is not there."""
    frames = traceback.extract_tb(failure.__traceback__)
    return bool(frames) and Path(frames[-1].filename).parent == Path(__file__).parent


def torch_version() -> tuple[int, int]:
    """Major and minor of the running torch."""
    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)
