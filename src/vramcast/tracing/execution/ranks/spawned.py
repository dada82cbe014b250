"""Programs that start their ranks themselves: they go on as the first of them, in this process."""

import multiprocessing
import sys
from math import prod
from multiprocessing import connection, process, queues, synchronize
from types import SimpleNamespace
from typing import Any

import torch.multiprocessing  # noqa: F401 - what is patched

from vramcast.tracing.execution.places import is_library
from vramcast.tracing.execution.ranks import sharding
from vramcast.tracing.execution.session import Session
from vramcast.tracing.request import ScriptRequest


def pretend_to_spawn(session: Session, request: ScriptRequest) -> None:
    """``torch.multiprocessing.spawn`` and what stands on it: the function is called as rank 0 of as many as were asked for."""

    def start(function: Any, args: tuple[Any, ...] = (), nprocs: int = 1, *_: Any, **__: Any) -> None:
        join_as_first(session, request, nprocs)
        function(0, *args)

    for name in ("torch.multiprocessing", "torch.multiprocessing.spawn"):
        module: Any = sys.modules[name]
        module.spawn = module.start_processes = start
    _run_the_first(session)


_SHARED = (connection.Connection, queues.Queue, queues.SimpleQueue, synchronize.SemLock, synchronize.Event)


def _run_the_first(session: Session) -> None:
    """``Process(target=main, args=(rank, ...)).start()``: the first of a function runs here, the others are ranks of no interest.

    A process that has used the card cannot fork one that does: so what is spawned, or forked before any use of it, is code of the
    script and is handed nothing to answer by, is a rank. Any other process is started as it is.
    """
    original, begun = process.BaseProcess.start, set[object]()

    def start(started: Any) -> None:
        function = started._target
        file = getattr(getattr(function, "__code__", None), "co_filename", "<unknown>")
        handed = (*started._args, *started._kwargs.values())
        alone = not any(isinstance(value, _SHARED) for value in handed)
        forked = (getattr(started, "_start_method", None) or multiprocessing.get_start_method()) == "fork"
        if function not in begun and (is_library(file) or not alone or (forked and session.recorder.log.allocations)):
            original(started)
            return
        started._popen = SimpleNamespace(
            wait=lambda *_: 0, poll=lambda: 0, returncode=0, pid=started._parent_pid, close=lambda: None
        )
        if function not in begun:
            begun.add(function)
            session.notes[f"{function.__name__} runs here, as the first of the processes that the script starts for it"] = None
            started.run()

    process.BaseProcess.start = start  # type: ignore[method-assign, assignment]


def processes_asked(asked: Any) -> int:
    """How many processes torchrun's own arguments start; what is no number ("gpu") counts once."""
    return prod(int(count) for count in (asked.nproc_per_node, asked.nnodes) if str(count).isdigit())


def join_as_first(session: Session, request: ScriptRequest, processes: int) -> None:
    """Become rank 0 of so many, unless a launcher has said so already."""
    if not request.launched and request.ranks == 1 and processes > 1:
        sharding.pretend_for_scripts(session, processes)
