"""Processes that this program starts: their environment, their end with everything they started, and their end without a parent.

A worker leads a process group of its own and watches its standard input: when that hangs up, however the parent went (a kill, a
closed terminal), it removes its folder and ends the whole group. Nothing keeps a card or a folder after a kill.
"""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import threading
from pathlib import Path


def environment() -> dict[str, str]:
    """This environment, with this very package first on the path of the child, and no entry that means the current folder."""
    root = str(Path(__file__).parents[1])
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def end_group(process: "subprocess.Popen[bytes] | subprocess.Popen[str]") -> None:
    """End a process that leads its own group, with everything it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError, ValueError):
                pipe.close()


def end_with_parent(inlet: int, folder: str) -> None:
    """In a worker: when the pipe ``inlet`` hangs up, remove ``folder`` and end this process's group. Returns at once."""
    threading.Thread(target=_watch, args=(inlet, folder), daemon=True).start()


def _watch(inlet: int, folder: str) -> None:
    """Nothing is read: what waits in the pipe is for the worker, or for the other ranks."""
    hung = select.poll()
    hung.register(inlet, 0)
    hung.poll()
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(os.getpgid(0), signal.SIGKILL)
    os._exit(1)
