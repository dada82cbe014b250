"""The kept tracing process: the libraries imported once, a fork of it for every question (see ``tracing/kept.py``)."""

import contextlib
import gc
import os
import shutil
import signal
import socket
import struct
import sys
import time
from pathlib import Path

from vramcast.tracing.kept import SOCKET

_LOOK_S = 0.5


def serve(folder: Path, shell: int, idle_s: float) -> None:
    """Answer until nobody has asked for ``idle_s`` seconds or the process ``shell`` is gone; then remove ``folder``."""
    gc.disable()
    for end in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(end, lambda *_: sys.exit(0))
    gate = folder / SOCKET
    gate.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(gate))
    gate.chmod(0o600)
    listener.listen()
    listener.settimeout(_LOOK_S)
    try:
        _import_libraries()
        _answer_all(listener, shell, idle_s)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _import_libraries() -> None:
    from vramcast.tracing.execution.lean import import_little
    from vramcast.tracing.execution.stand_ins import other_builds

    import_little(alone=False)
    other_builds.install()
    import torch  # noqa: F401 - for the forks
    import transformers.modeling_utils  # noqa: F401 - for the forks

    from vramcast.tracing.execution import worker  # noqa: F401 - for the forks


def _answer_all(listener: socket.socket, shell: int, idle_s: float) -> None:
    busy, asked = set[int](), time.monotonic()
    while _alive(shell) and (busy or time.monotonic() - asked < idle_s):
        busy = {child for child in busy if os.waitpid(child, os.WNOHANG) == (0, 0)}
        try:
            line, _ = listener.accept()
        except TimeoutError:
            continue
        asked = time.monotonic()
        with line:
            if not _own(line):
                continue
            child = os.fork()
            if not child:
                for end in (signal.SIGTERM, signal.SIGHUP):
                    signal.signal(end, signal.SIG_DFL)
                listener.close()
                _answer(line)
            busy.add(child)
    for child in busy:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def _answer(line: socket.socket) -> None:
    """In a fork: trace what one line asks, say how it went, end. A question that takes too long ends it too."""
    from vramcast.tracing.execution.worker import Worker

    line.settimeout(_LOOK_S)
    try:
        with line.makefile() as told:
            kind, asked, answered, seconds = told.readline().rstrip("\n").split("\t")
        signal.alarm(max(1, round(float(seconds))))
        line.sendall(f"{Worker().answer(kind, asked, answered)}\n".encode())
    except (ValueError, OSError):
        os._exit(1)  # it only looked whether somebody is here
    os._exit(0)


def _own(line: socket.socket) -> bool:
    """Whether the other end is of this user."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the folder is closed to others
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(user == os.getuid())


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
