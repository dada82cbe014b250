"""One input after another: what it cost, whether it was answered or refused, and what must not happen."""

import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from fuzzing.targets import TARGETS

MOST_S, MOST_BYTES, HANG_S = 2.0, 300 * 2**20, 10.0


class Hang(BaseException):
    """Raised in a reader that has had ten seconds of processor time."""


class Failure(msgspec.Struct, frozen=True):
    """What must not happen: a traceback, an error of several lines, too much time or memory; ``place`` tells two causes apart."""

    target: str
    what: str
    place: str
    made: Any


class Tally(msgspec.Struct):
    """Of one target: how many inputs, how many were answered rather than refused, and the slowest."""

    runs: int = 0
    answered: int = 0
    slowest_s: float = 0.0


def fuzz(name: str, runs: int, seed: int, tally: Tally) -> Iterator[Failure]:
    """Runs the target's inputs ``seed:0`` to ``seed:runs``; each failure as it is found."""
    target = TARGETS[name]
    _asked(target.ask, target.make(random.Random(0)))  # what a first question imports is not its input's cost
    for number in range(runs):
        made = target.make(random.Random(f"{name}:{seed}:{number}"))
        before_s, before_kib = time.process_time(), _most_kib()
        error = _asked(target.ask, made)
        took_s, grown = time.process_time() - before_s, (_most_kib() - before_kib) * 1024
        tally.runs += 1
        tally.answered += error is None
        tally.slowest_s = max(tally.slowest_s, took_s)
        found = _wrong(error) or _dear(took_s, grown)
        if found:
            yield Failure(name, *found, made)


def _asked(ask: Any, made: Any) -> BaseException | None:
    try:
        with _watched():
            ask(made)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        return error
    return None


@contextmanager
def _watched() -> Iterator[None]:
    def stop(_number: int, frame: FrameType | None) -> None:
        raise Hang(f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "")

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, HANG_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _wrong(error: BaseException | None) -> tuple[str, str] | None:
    """What is wrong with an error, and where it arose; None for an answer or a refusal in one line."""
    from vramcast.errors import VramcastError

    if error is None:
        return None
    if isinstance(error, VramcastError):
        text = str(error)
        if "internal error" in text:
            return f"hidden behind a refusal: {text[:160]}", _place(error)
        return ("a refusal of several lines or none", _place(error)) if not text.strip() or "\n" in text.strip() else None
    return f"{type(error).__name__}: {str(error)[:120]}", _place(error)


def _dear(took_s: float, grown: int) -> tuple[str, str] | None:
    if took_s > MOST_S:
        return "too slow", f"{took_s:.1f} s"
    return ("too much memory", f"{grown >> 20} MiB") if grown > MOST_BYTES else None


def _place(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "vramcast" in f.filename and "fuzzing" not in f.filename]
    return f"{'/'.join(Path(frames[-1].filename).parts[-3:])}:{frames[-1].lineno}" if frames else "outside"


def _most_kib() -> int:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most // 1024 if sys.platform == "darwin" else most
