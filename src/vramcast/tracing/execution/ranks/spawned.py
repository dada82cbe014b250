"""Programs that start their ranks themselves: they go on as the first of them, in this process."""

import sys
from math import prod
from typing import Any

import torch.multiprocessing  # noqa: F401 - what is patched

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


def processes_asked(asked: Any) -> int:
    """How many processes torchrun's own arguments start; what is no number ("gpu") counts once."""
    return prod(int(count) for count in (asked.nproc_per_node, asked.nnodes) if str(count).isdigit())


def join_as_first(session: Session, request: ScriptRequest, processes: int) -> None:
    """Become rank 0 of so many, unless a launcher has said so already."""
    if not request.launched and request.ranks == 1 and processes > 1:
        sharding.pretend_for_scripts(session, processes)
