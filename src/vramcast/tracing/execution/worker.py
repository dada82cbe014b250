"""The tracing process: reads a request from a file, traces, writes the result to another; nothing of it touches its parent."""

import resource
import sys
import warnings
from functools import partial
from pathlib import Path

import msgspec

from vramcast.errors import VramcastError
from vramcast.tracing.execution import models, steps
from vramcast.tracing.execution.deep import trace_deep
from vramcast.tracing.execution.garbage import settle
from vramcast.tracing.execution.lean import import_little
from vramcast.tracing.execution.script import run_script
from vramcast.tracing.execution.session import Session, describe, raised_here
from vramcast.tracing.execution.stand_ins import four_bit, other_builds, patches
from vramcast.tracing.execution.stand_ins.fake_cuda import FakeCudaError
from vramcast.tracing.libraries import installed, lacking
from vramcast.tracing.request import ScriptRequest, TraceRequest, TraceResult

_LIBRARIES = ("torch", "transformers", "peft", "bitsandbytes", "accelerate", "trl", "lightning", "deepspeed", "torchtitan")


class Worker:
    """Answers requests of one process, all on the backend of the first."""

    def __init__(self) -> None:
        warnings.simplefilter("ignore")
        other_builds.install()
        self._session: Session | None = None
        self._four_bit = False

    def answer(self, kind: str, request_path: str, result_path: str) -> str:
        """Trace the request of a file and write the result to another; "", or in a line the error that refuses it."""
        data = Path(request_path).read_bytes()
        try:
            if kind == "script":
                run_script(msgspec.msgpack.decode(data, type=ScriptRequest), Path(result_path), _completed)
            else:
                result = self.trace_model(msgspec.msgpack.decode(data, type=TraceRequest))
                Path(result_path).write_bytes(msgspec.msgpack.encode(_completed(result)))
        except VramcastError as refusal:
            return f"{type(refusal).__name__}\t{' '.join(str(refusal).split())}"
        return ""

    def trace_model(self, request: TraceRequest) -> TraceResult:
        """The request traced in this process, on the backend it names or the first that works."""
        session = self._prepare(request)
        if request.depths and request.layers:
            shallow = partial(msgspec.structs.replace, request)
            found = trace_deep(lambda n: _trace_once(shallow(layers=n), session), request.depths, request.layers)
            if found is not None:
                return found
        return _trace_once(request, session)

    def _prepare(self, request: TraceRequest) -> Session:
        if self._session is None:
            import_little(alone=request.distribution.world == 1)
            self._session = open_session(request)
            patches.transformers()
        steps.check(request, self._session.backend.device_type)
        if request.needs_bitsandbytes and not self._four_bit:
            four_bit.install(self._session)
            self._four_bit = True
        models.import_classes(request)
        settle()
        return self._session


def _completed(result: TraceResult) -> TraceResult:
    """The result with what only the process knows: its libraries and its own memory."""
    result.versions = versions()
    result.resident_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return result


def _trace_once(request: TraceRequest, session: Session) -> TraceResult:
    """One run in a session that may have had others."""
    session.restart(request.attention_kernels)
    error = ""
    with steps.timed() as spent:
        try:
            steps.run(request, session)
        except VramcastError:
            raise
        except Exception as failure:  # whatever the model's code raised is the finding
            if isinstance(failure, AttributeError | ImportError) and raised_here(failure):
                raise lacking(failure) from None
            error = describe(failure)
    return session.result(seconds=spent[0], notes=(), error=error)


def open_session(request: TraceRequest) -> Session:
    """A session on the request's likely backend. Raises UntraceableError for what this torch does not have."""
    try:
        return Session(
            backend=request.likely_backend,
            device=request.device,
            order=request.attention_kernels,
            limit=request.operator_limit,
        )
    except (FakeCudaError, ImportError, AttributeError) as lack:
        raise lacking(lack) from None


def versions() -> dict[str, str]:
    """The libraries whose code was traced."""
    return {"python": sys.version.split()[0], **installed(_LIBRARIES)}
