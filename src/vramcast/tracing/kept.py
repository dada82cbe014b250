"""A tracing process that stays for the next question: importing the libraries takes most of a small trace.

It is started by the first question of a terminal and asked over a socket in a folder that only its user can open. Each question
is answered by a fork of it, which ends with its answer; it ends itself when the terminal's shell is gone or nobody has asked for
a while. A change of this package's files, of the interpreter or of the user is another process.
"""

import contextlib
import hashlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from vramcast import errors
from vramcast.children import environment
from vramcast.errors import MissingError, QuestionError
from vramcast.tracing.process import CrashedError
from vramcast.tracing.request import TraceRequest, TraceResult

IDLE_S = 600.0
SOCKET = "socket"
_STARTING_S = 60.0
_GRACE_S = 5.0
_LONGEST_PATH = 103  # bytes; macOS has room for 104 with the ending zero, Linux for 108
_BEGIN = "vramcast.tracing.execution.keeping"


class KeptProcess:
    """The kept process of this terminal, started if there is none."""

    answers = True

    def __init__(self) -> None:
        self._folder = folder()
        if not self._reachable():
            _start(self._folder)

    def close(self) -> None:
        """It stays."""

    def ask(self, kind: str, request: TraceRequest, *, timeout_s: float) -> TraceResult:
        """As ``TracingProcess.ask``: the result, or the error by which the process refuses the question."""
        with tempfile.TemporaryDirectory(prefix="vramcast-trace-") as scratch, self._connected() as line:
            asked, answered = Path(scratch, "request"), Path(scratch, "result")
            asked.write_bytes(msgspec.msgpack.encode(request))
            line.settimeout(timeout_s + _GRACE_S)
            line.sendall(f"{kind}\t{asked}\t{answered}\t{timeout_s:g}\n".encode())
            try:
                with line.makefile() as told:
                    done = told.readline()
            except TimeoutError:
                done = ""
            if done.strip():
                name, _, message = done.strip().partition("\t")
                raise getattr(errors, name)(message)
            if not answered.exists():
                raise CrashedError("the kept process gave no answer: ask again without --keep, or raise --timeout")
            return msgspec.msgpack.decode(answered.read_bytes(), type=TraceResult)

    def _reachable(self) -> bool:
        with contextlib.suppress(OSError), self._connected(wait_s=0):
            return True
        return False

    def _connected(self, *, wait_s: float = _STARTING_S) -> socket.socket:
        until = time.monotonic() + wait_s
        while True:
            line = socket.socket(socket.AF_UNIX)
            try:
                line.connect(str(self._folder / SOCKET))
                return line
            except OSError:
                line.close()
                if time.monotonic() >= until:
                    raise
                time.sleep(0.05)


def folder() -> Path:
    """Where the socket of this terminal's process stands, made for this user alone.

    Raises QuestionError where somebody else could open it.
    """
    if not hasattr(os, "fork"):
        raise QuestionError("--keep needs a system that forks: leave it out")
    root = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir(), f"vramcast-kept-{os.getuid()}")
    found = root / hashlib.sha256(repr(_key()).encode()).hexdigest()[:16]
    for made in (root, found):
        made.mkdir(mode=0o700, exist_ok=True)
        state = made.lstat()
        if state.st_uid != os.getuid() or state.st_mode & 0o077 or made.is_symlink():
            raise QuestionError(f"{made} is not of this user alone: remove it, or leave --keep out")
    if len(os.fsencode(found / SOCKET)) > _LONGEST_PATH:
        raise QuestionError(f"{found} is too long a path for a socket: set XDG_RUNTIME_DIR to a shorter one, or leave --keep out")
    return found


def _key() -> tuple[object, ...]:
    """What must agree for a kept process to answer: interpreter, this package's files, the terminal."""
    package = Path(__file__).parents[1]
    newest = max(file.stat().st_mtime_ns for file in package.rglob("*.py"))
    return sys.executable, str(package), newest, terminal()


def terminal() -> int:
    """The process whose end is that of this terminal: the leader of the session, or the parent where that one is gone."""
    leader = os.getsid(0)
    try:
        os.kill(leader, 0)
    except OSError:
        return os.getppid()
    return leader


def _start(place: Path) -> None:
    if _missing():
        raise MissingError.extra("torch", "tracing")
    with (place / "errors").open("wb") as told:
        begun = subprocess.Popen(
            [sys.executable, "-P", "-m", _BEGIN, str(place), str(terminal()), f"{IDLE_S:g}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=told,
            env=environment(),
            start_new_session=True,
        )
    begun.returncode = 0  # it is not waited for: it outlives this process


def _missing() -> bool:
    from importlib.util import find_spec

    return find_spec("torch") is None or find_spec("transformers") is None
