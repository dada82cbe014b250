"""Running a trace: in a process of its own, with time and operator limits, its result read back as values."""

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from vramcast.errors import MissingError, QuestionError
from vramcast.tracing.request import ScriptRequest, TraceRequest, TraceResult

_WORKER = "vramcast.tracing.execution.start"


def trace(request: TraceRequest, *, timeout_s: float = 600) -> TraceResult:
    """Trace a model. If fake CUDA brings the process down on this build of torch, the trace is made again on meta tensors.

    Raises MissingError without the [torch] extra, QuestionError when the request cannot be traced or the time runs out.
    """
    return trace_all([request], timeout_s=timeout_s)[0]


def trace_all(requests: list[TraceRequest], *, timeout_s: float = 600) -> list[TraceResult]:
    """Several requests of one backend in one process: loading the libraries costs more than a small trace. As ``trace``."""
    _need_torch()
    wanted = requests[0].backend
    try:
        results = _in_process("model", msgspec.msgpack.encode(requests), timeout_s)
        if wanted == "auto" and any(result.error and result.backend == "meta" for result in results):
            return trace_all(_on(requests, "cuda"), timeout_s=timeout_s)
    except _CrashedError as crash:
        if wanted != "auto":
            raise QuestionError(str(crash)) from None
        results = _in_process("model", msgspec.msgpack.encode(_on(requests, "meta")), timeout_s)
        for result in results:
            result.notes = (*result.notes, f"traced on meta tensors: {crash}")
    return results


def _on(requests: list[TraceRequest], backend: str) -> list[TraceRequest]:
    return [msgspec.structs.replace(request, backend=backend) for request in requests]


def trace_script(request: ScriptRequest, *, timeout_s: float = 600) -> TraceResult:
    """Trace a user's own script. Raises as ``trace`` does; a script that fails is a result with an ``error``."""
    _need_torch()
    target = request.argv[0] if request.argv else ""
    if not target:
        raise QuestionError("no script to trace: write vramcast trace -- python train.py ...")
    if target != "-m" and not Path(target).is_file():
        raise QuestionError(f"there is no script {target!r} to trace")
    try:
        return _in_process("script", msgspec.msgpack.encode(request), timeout_s)[0]
    except _CrashedError as crash:
        raise QuestionError(str(crash)) from None


class _CrashedError(Exception):
    """The tracing process ended without a result."""


def _in_process(kind: str, request: bytes, timeout_s: float) -> list[TraceResult]:
    with tempfile.TemporaryDirectory(prefix="vramcast-trace-") as folder:
        asked, answered = Path(folder, "request"), Path(folder, "result")
        asked.write_bytes(request)
        command = [sys.executable, "-m", _WORKER, kind, str(asked), str(answered)]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False, env=_environment()
            )
        except subprocess.TimeoutExpired:
            raise QuestionError(f"the trace was stopped after {timeout_s:.0f} s: give it a smaller model or --timeout") from None
        if answered.exists():
            return msgspec.msgpack.decode(answered.read_bytes(), type=list[TraceResult])
        raise _failure(done.stderr.decode(errors="replace"), done.returncode)


def _environment() -> dict[str, str]:
    """This environment, with this very package first on the path of the child."""
    root = str(Path(__file__).parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _failure(errors: str, code: int) -> Exception:
    last = next((line for line in reversed(errors.splitlines()) if line.strip()), "no message")
    if last.startswith("vramcast.errors."):
        return QuestionError(last.partition(": ")[2])
    return _CrashedError(f"the tracing process ended with code {code}: {last[:300]}")


def _need_torch() -> None:
    missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingError.extra("torch", "tracing")
