"""The process beside the server that does what takes seconds or reads what strangers wrote: plans, traces, snapshots, files.

It is asked over a pipe, one job at a time, within a bound of memory and of time; where it goes beyond either it is ended, the
visitor is told, and the next job starts another. The server itself keeps answering meanwhile.
"""

import atexit
import subprocess
import sys
import threading
from typing import IO, Any

import msgspec

from vramcast.children import end_group, environment
from vramcast.units import GiB
from vramcast.web.problems import Problem

MOST_SECONDS = 60.0
MOST_BYTES = GiB * 7 // 10
MOST_WAITING = 8
_HEAD = 8  # bytes that tell the length of what follows


class Refused(Exception):  # noqa: N818
    """A problem that the worker found, or the end of its bounds."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


class Worker:
    """``ask(job, **values)`` is the worker's answer. Jobs wait for each other; a queue that is too long is refused."""

    def __init__(self) -> None:
        self._turn, self._count = threading.Lock(), threading.Lock()
        self._waiting = 0
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, job: str, **values: Any) -> dict[str, Any]:
        """The answer. Raises Refused for a problem of the question, a full queue, or a job beyond its bounds."""
        with self._count:
            if self._waiting >= MOST_WAITING:
                raise Refused(busy("other visitors' plans and files are being read: ask again in a few seconds"))
            self._waiting += 1
        try:
            with self._turn:
                answer = self._asked(msgspec.msgpack.encode({"job": job, **values}))
        finally:
            with self._count:
                self._waiting -= 1
        if "problem" in answer:
            raise Refused(msgspec.convert(answer["problem"], Problem))
        return answer

    def close(self) -> None:
        """End the process; the next job starts another."""
        if self._process is not None:
            end_group(self._process)
            self._process = None

    def _asked(self, message: bytes) -> dict[str, Any]:
        process = self._started()
        late = threading.Timer(MOST_SECONDS, process.kill)
        late.start()
        try:
            assert process.stdin is not None and process.stdout is not None
            put(process.stdin, message)
            found: dict[str, Any] = msgspec.msgpack.decode(taken(process.stdout))
            return found
        except (OSError, EOFError):
            self.close()
            detail = f"this takes more than {MOST_SECONDS:.0f} s or {MOST_BYTES / GiB:.1f} GiB here: use the command line for it"
            raise Refused(
                Problem(type="about:blank#TooLarge", title="too large for the page", status=422, detail=detail)
            ) from None
        finally:
            late.cancel()

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "vramcast.web.jobs"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**environment(), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
                start_new_session=True,
            )
        return self._process


def busy(detail: str) -> Problem:
    """The problem of a server that has enough to do."""
    return Problem(type="about:blank#Busy", title="busy", status=503, detail=detail)


WORKER = Worker()
atexit.register(WORKER.close)


def put(stream: IO[bytes], message: bytes) -> None:
    """Write a message after its length."""
    stream.write(len(message).to_bytes(_HEAD, "big") + message)
    stream.flush()


def taken(stream: IO[bytes]) -> bytes:
    """The next message. Raises EOFError where there is none."""
    head = stream.read(_HEAD)
    if len(head) < _HEAD:
        raise EOFError
    return stream.read(int.from_bytes(head, "big"))
