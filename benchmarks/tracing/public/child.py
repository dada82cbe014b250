"""The tracing process: runs the cases of one set of libraries one after the other and writes each outcome when it is there.

Each run is a fork of it: what a program leaves in its libraries (patches, singletons, process groups) goes with the fork.

    python -m public.child CASES.jsonl OUTCOMES.jsonl
"""

import importlib
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from public.case import Case, Outcome
from vramcast.tracing.allocator.replay import Usage, replay
from vramcast.tracing.allocator.settings import AllocatorSettings, parse_alloc_conf
from vramcast.tracing.eventlog import EventLog
from vramcast.tracing.execution.deep import trace_deep
from vramcast.tracing.execution.garbage import settle
from vramcast.tracing.execution.script import prepare_libraries
from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.worker import versions
from vramcast.tracing.request import TraceResult

_LONGEST_ERROR = 240


def main(asked: str, answered: str) -> None:
    """Trace every case of the file."""
    cases = [msgspec.json.decode(line, type=Case) for line in Path(asked).read_bytes().splitlines()]
    session = open_session(cases[0])
    with Path(answered).open("ab", buffering=0) as out:
        for case in cases:
            out.write(msgspec.json.encode(outcome(case, session)) + b"\n")


def open_session(case: Case) -> Session:
    """The one session of this process, with the libraries put right."""
    session = Session(backend="cuda", device=msgspec.structs.replace(case.device, count=case.ranks))
    prepare_libraries(session, case.ranks)
    importlib.import_module(f"public.programs.{case.program}")
    settle()
    return session


def outcome(case: Case, session: Session) -> Outcome:
    """A case traced, at three depths where they tell the whole."""
    result = deep(case, session) or whole(case, session, case.layers)
    found = Outcome(id=case.id, program=case.program, libraries=case.libraries, versions=versions())
    found.depths, found.attention, found.error = result.depths, result.attention, _told(result.error)
    if not result.error:
        start = next((m.place for m in result.log.marks if m.name == "forward"), 0)
        usage = on_card(case, result.log, parse_alloc_conf(case.environment.get("PYTORCH_CUDA_ALLOC_CONF", "")), start)
        found.allocated_bytes, found.reserved_bytes = usage.peak_allocated_bytes, usage.peak_reserved_bytes
        found.expandable_bytes = on_card(case, result.log, AllocatorSettings(expandable_segments=True), start).peak_reserved_bytes
    return found


def on_card(case: Case, log: EventLog, settings: AllocatorSettings, since: int) -> Usage:
    """The log's peaks on the case's card, or on one without an end where a request finds no room on it."""
    usage = replay(log, settings, since=since, capacity_bytes=case.capacity_bytes or None)
    return usage if usage.fits else replay(log, settings, since=since)


def _told(error: str) -> str:
    """The error without this machine's folders, in two lines at the most."""
    return re.sub(r"(?<!\S)/\S*/", "", error)[:_LONGEST_ERROR]


def deep(case: Case, session: Session) -> TraceResult | None:
    """The case from three small depths; None where they do not determine it."""
    if case.depths is None:
        return None
    return trace_deep(lambda layers: whole(case, session, layers), case.depths, case.layers)


def whole(case: Case, session: Session, layers: int) -> TraceResult:
    """The program run with that many layers."""
    program: Any = importlib.import_module(f"public.programs.{case.program}")

    def run() -> TraceResult:
        error = session.trace(lambda: program.main(layers=layers, **case.arguments), steps=case.steps)
        return session.result(seconds=0.0, notes=(), error=error)

    return forked(run)


def forked(run: Callable[[], TraceResult]) -> TraceResult:
    """The result of a run in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        with os.fdopen(writing, "wb") as out:
            out.write(msgspec.msgpack.encode(run()))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        data = answer.read()
    _, status = os.waitpid(child, 0)
    if data:
        return msgspec.msgpack.decode(data, type=TraceResult)
    return TraceResult(log=EventLog(), backend="cuda", error=f"the process ended with status {status}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
