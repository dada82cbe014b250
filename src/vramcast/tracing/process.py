"""The tracing process: started once, asked several times, ended by force when it takes too long.

Importing the libraries costs more than a small trace, so the process stays for further requests. Request and result cross as
files; a line on its standard input names them, a line on its standard output says that the result is there.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import msgspec

from vramcast import errors
from vramcast.children import end_group, environment
from vramcast.errors import MissingError, QuestionError
from vramcast.tracing.request import BEGINS, TraceResult

_BEGIN = "vramcast.tracing.execution.start"
_SHOWN = 300
_TOLD = 15  # lines
_LONGEST_TAIL = 1 << 16  # bytes


class CrashedError(Exception):
    """The tracing process ended without a result."""


class TracingProcess:
    """A process that traces one request after the other; closed with the ``with`` block that it opens."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="vramcast-trace-")
        self._errors = Path(self._folder.name, "errors")
        self._asked = 0
        with self._errors.open("wb") as told:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _BEGIN, self._folder.name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=told,
                env=environment(),
                text=True,
                start_new_session=True,
            )

    def __enter__(self) -> "TracingProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        end_group(self._process)
        self._folder.cleanup()

    def ask(self, kind: str, request: msgspec.Struct, *, timeout_s: float) -> TraceResult:
        """The result of a request of that kind ("model" or "script").

        Raises the error by which the process refuses a request; QuestionError when the time runs out, CrashedError when the
        process ends, after which it answers no more.
        """
        self._asked += 1
        asked, answered = (Path(self._folder.name, f"{name}-{self._asked}") for name in ("request", "result"))
        asked.write_bytes(msgspec.msgpack.encode(request))
        late = threading.Event()
        watch = threading.Timer(timeout_s, self._stop, [late])
        watch.start()
        try:
            done = self._exchange(f"{kind}\t{asked}\t{answered}\n")
        finally:
            watch.cancel()
        if done.strip():
            name, _, message = done.strip().partition("\t")
            raise getattr(errors, name)(message)
        if not done and not answered.exists():
            raise self._lost(timeout_s if late.is_set() else 0)
        result = msgspec.msgpack.decode(answered.read_bytes(), type=TraceResult)
        answered.unlink()
        if not done:
            code = self._process.wait()
            reason = f"stopped after {timeout_s:g} s, in code that does not answer" if late.is_set() else _ended(code)
            result.error = result.error or (reason if result.partial else "")
        if result.error:
            result.told = self._last_lines(_TOLD)
        return result

    def _stop(self, late: threading.Event) -> None:
        late.set()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    @property
    def answers(self) -> bool:
        """Whether the process can be asked again."""
        return self._process.poll() is None

    def _exchange(self, line: str) -> str:
        """Send a line and wait for the answering one; "" when the process ended instead."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except BrokenPipeError:
            return ""
        return self._process.stdout.readline()

    def _last_lines(self, count: int) -> tuple[str, ...]:
        """What the process wrote last to its error output, without the lines that a progress bar wrote over."""
        with self._errors.open("rb") as told:
            told.seek(max(0, self._errors.stat().st_size - _LONGEST_TAIL))
            text = told.read().decode(errors="replace").rpartition(BEGINS)[2]
        lines = [line.rpartition("\r")[2].rstrip() for line in text.split("\n")]
        return tuple(line[:_SHOWN] for line in lines if line.strip())[-count:]

    def _lost(self, stopped_after_s: float) -> Exception:
        code = self._process.wait()
        if stopped_after_s:
            return QuestionError(f"the trace was stopped after {stopped_after_s:.0f} s: give it a smaller model or --timeout")
        last = (self._last_lines(1) or ("no message",))[0]
        last = re.sub(r"^\[rank\d+\]: ", "", last)  # torch says so once a process group exists
        if missing := re.fullmatch(r"ModuleNotFoundError: No module named '([\w.-]+)'", last):
            return MissingError(f"tracing this needs {missing[1]}: pip install {missing[1]}")
        return CrashedError(f"the tracing process ended with code {code}: {last[:_SHOWN]}")


def _ended(code: int) -> str:
    """Why a process ended that wrote no reason."""
    if code < 0:
        return f"the script's process was killed: {signal.Signals(-code).name}"
    return f"the script ended its process with code {code}"
