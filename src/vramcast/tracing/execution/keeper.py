"""What a script's trace has found is written at every step and every few seconds: however the script ends, nothing is lost.

A script may end its process (``os._exit``), swallow what should stop it, hang in C or be killed. The file that holds the result
is there all along; the process that asked reads it, whole or partial.
"""

import os
import resource
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from vramcast.tracing.execution.session import Session, place_of_frame
from vramcast.tracing.request import BEGINS, TraceResult

_EVERY_S = 10.0
_SHARE = 20.0  # a write may take a twentieth of the time
_UNWINDING_S = 3.0  # what a script may still do after its time is up
_LEAST_ROOM = 4 << 30  # of host memory
_LEAVING_S = 15.0  # and after its steps are traced: its own ``finally``, its files


class Keeper:
    """Writes the result of a session's script to ``path``; ``complete`` fills in what the session does not know."""

    def __init__(self, session: Session, path: Path, complete: Callable[[TraceResult], TraceResult]) -> None:
        self._session, self._path, self._complete = session, path, complete
        self._begun = self._written = time.monotonic()
        self._cost = 0.0
        self._lock = threading.Lock()
        self._over = self._back = False
        self._main = threading.main_thread()
        self._process = os.getpid()
        self._leave: Callable[[int], Any] = os._exit

    def begin(self, seconds: float) -> None:
        """Write the first, empty result, and go on writing; end the process when it outlives its ``seconds``."""
        self.write()
        os.write(2, BEGINS.encode())
        self._session.on_step.append(self._stepped)
        os._exit = self._exit  # type: ignore[assignment]
        threading.Thread(target=self._watch, args=(seconds,), daemon=True).start()

    def write(self, error: str = "", *, final: bool = False) -> None:
        """Put what is known now into the file; after a final result nothing is written any more."""
        with self._lock:
            if self._over:
                return
            started = time.monotonic()
            result = self._complete(self._session.result(seconds=started - self._begun, notes=self._notes(), error=error))
            result.partial = not final
            fresh = self._path.with_suffix(".new")
            fresh.write_bytes(msgspec.msgpack.encode(result))
            fresh.replace(self._path)
            self._written, self._over = time.monotonic(), final
            self._cost = self._written - started

    def end(self, error: str) -> None:
        """The script is back; what it told last is written, unless its result was final before."""
        os._exit = self._leave  # type: ignore[assignment]
        self.write(error, final=True)
        self._back = True

    def _stepped(self, enough: bool) -> None:
        if self._over:
            self._leave(0)  # it swallowed the end of its steps
        self.write(final=enough)

    def _notes(self) -> tuple[str, ...]:
        return () if self._session.steps else ("the script made no optimizer step: the peak is of what ran before",)

    def _exit(self, code: int) -> None:
        if os.getpid() == self._process:
            self.write(f"the script ended its process, os._exit({code}){place_of_frame(sys._getframe(1))}", final=True)
        self._leave(code)

    def _watch(self, seconds: float) -> None:
        left = _LEAVING_S
        while not self._back:
            time.sleep(1.0)
            if self._over:
                left -= 1.0
                if left < 0:
                    self._leave(0)
                continue
            if seconds and time.monotonic() - self._begun > seconds + _UNWINDING_S:
                self.write(f"stopped after {seconds:g} s{self._place()}", final=True)
                self._leave(1)
            if time.monotonic() - self._written > max(_EVERY_S, _SHARE * self._cost):
                self.write()

    def _place(self) -> str:
        """Where the script hangs: its own innermost line, and the call below it."""
        frame = sys._current_frames().get(self._main.ident or 0)
        return place_of_frame(frame) if frame is not None else ""


def limit_host_memory() -> None:
    """Let an allocation fail that this machine cannot hold, instead of bringing the machine down. Linux; elsewhere no limit."""
    try:
        held = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in Path("/proc/meminfo").read_text().splitlines()}
        room = max(held["MemAvailable"] + held["SwapFree"], _LEAST_ROOM)
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (room if hard == resource.RLIM_INFINITY else min(room, hard), hard))
    except (OSError, KeyError, ValueError, IndexError):
        return
