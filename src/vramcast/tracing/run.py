"""Running traces: in processes of their own, with time and operator limits, their results read back as values."""

import importlib.util
from pathlib import Path

import msgspec

from vramcast.errors import MissingError, QuestionError, UntraceableError, VramcastError
from vramcast.tracing.kept import KeptProcess
from vramcast.tracing.process import CrashedError, TracingProcess
from vramcast.tracing.request import ScriptRequest, TraceRequest, TraceResult

_DEFAULT_TIMEOUT_S = 600.0


class Tracer:
    """Traces models one after the other, each kind of backend and layout in one process that stays until the ``with`` ends.

    ``timeout_s`` holds for every single trace. ``keep``: ask the process that this terminal keeps, and start it if there is none.
    """

    def __init__(self, *, timeout_s: float = _DEFAULT_TIMEOUT_S, keep: bool = False) -> None:
        self._timeout_s = timeout_s
        self._kind: type[TracingProcess | KeptProcess] = KeptProcess if keep else TracingProcess
        self._processes: dict[object, TracingProcess | KeptProcess] = {}

    def __enter__(self) -> "Tracer":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.close()
        self._processes.clear()

    def trace(self, request: TraceRequest) -> TraceResult:
        """Trace a model. Where this torch cannot fake CUDA, or falls over it, the trace is made again on meta tensors.

        Raises MissingError without the [torch] extra, UntraceableError where the installed libraries have no place for a tracer,
        QuestionError when the request cannot be traced or the time runs out.
        """
        _need_torch()
        try:
            result = self._ask(request)
        except CrashedError as crash:
            if request.backend != "auto":
                raise QuestionError(str(crash)) from None
            return self._on_meta(request, QuestionError(str(crash)))
        except UntraceableError as lack:
            if request.likely_backend == "meta" or request.backend != "auto":
                raise
            return self._on_meta(request, lack)
        if result.error and request.backend == "auto" and result.backend == "meta":
            return self.trace(msgspec.structs.replace(request, backend="cuda"))
        return result

    def _on_meta(self, request: TraceRequest, because: VramcastError) -> TraceResult:
        """The same trace on meta tensors, with a note of why; the reason itself where they do not do either."""
        try:
            result = self._ask(msgspec.structs.replace(request, backend="meta"))
        except (CrashedError, VramcastError):
            raise because from None
        if result.error:
            raise because
        result.notes = (*result.notes, f"traced on meta tensors: {because}")
        return result

    def _ask(self, request: TraceRequest) -> TraceResult:
        settled = request.process_key
        process = self._processes.get(settled)
        if process is None:
            process = self._processes[settled] = self._kind()
        try:
            return process.ask("model", request, timeout_s=self._timeout_s)
        except UntraceableError:
            self._processes.pop(settled).close()  # half patched
            raise
        finally:
            if not process.answers:
                self._processes.pop(settled, process).close()


def trace(request: TraceRequest, *, timeout_s: float = _DEFAULT_TIMEOUT_S) -> TraceResult:
    """Trace one model; see ``Tracer.trace``."""
    return trace_all([request], timeout_s=timeout_s)[0]


def trace_all(requests: list[TraceRequest], *, timeout_s: float = _DEFAULT_TIMEOUT_S) -> list[TraceResult]:
    """Several models in as few processes as they allow; see ``Tracer.trace``."""
    with Tracer(timeout_s=timeout_s) as tracer:
        return [tracer.trace(request) for request in requests]


_GRACE_S = 30  # after its time is up a script's process still unwinds and writes what it found


def trace_script(request: ScriptRequest, *, timeout_s: float = _DEFAULT_TIMEOUT_S) -> TraceResult:
    """Trace a user's own script. Raises as ``trace`` does; a script that fails is a result with an ``error``."""
    _need_torch()
    target = request.argv[0] if request.argv else ""
    if not target:
        raise QuestionError("no script to trace: write vramcast trace -- python train.py ...")
    if target != "-m" and not Path(target).is_file():
        raise QuestionError(f"there is no script {target!r} to trace")
    try:
        with TracingProcess() as process:
            limited = msgspec.structs.replace(request, seconds=timeout_s)
            return process.ask("script", limited, timeout_s=timeout_s + _GRACE_S)
    except CrashedError as crash:
        raise QuestionError(str(crash)) from None


def _need_torch() -> None:
    missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingError.extra("torch", "tracing")
