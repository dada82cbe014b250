"""The measuring process: waits to be asked, runs the real step, writes what the counters say; nothing of it outlives it."""

import os
import shutil
import statistics
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from vramcast.children import end_with_parent
from vramcast.measuring import counters
from vramcast.measuring.repetitions import prepare
from vramcast.measuring.request import Measurement, MeasureRequest


def main(folder: str) -> int:
    """Import, wait, measure the folder's request and write this rank's result. Code 1 unless it ran: torchrun then ends all."""
    warnings.simplefilter("ignore")
    end_with_parent(0, folder)  # first: a worker that waits to be asked has a folder to remove, too
    import vramcast.tracing.execution.models  # noqa: F401  (torch and transformers, before the device's time begins)

    if not os.read(0, 1):
        shutil.rmtree(folder, ignore_errors=True)
        return 1
    request = msgspec.msgpack.decode(Path(folder, "request").read_bytes(), type=MeasureRequest)
    rank = int(os.environ["RANK"]) if request.ranks > 1 else 0
    found = measure_model(request, rank=rank)
    name = f"result.{rank}"
    Path(folder, f"{name}.part").write_bytes(msgspec.msgpack.encode(found))
    Path(folder, f"{name}.part").rename(Path(folder, name))
    return int(found.outcome != "ran")


def join_ranks(torch: Any, device: str, rank: int) -> None:
    """Join the group that torchrun has set up on this machine: NCCL between cards, gloo between processors."""
    if device == "cuda":
        torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl" if device == "cuda" else "gloo")


def measure_model(request: MeasureRequest, *, rank: int = 0) -> Measurement:
    """The request run in this process, as one rank of it; out of memory and failures are outcomes, not exceptions."""
    import torch

    watched = counters.Counters(torch, request.device, rank)
    figures: dict[str, float] = {}
    repeated: list[dict[str, float]] = []
    parameters, outcome, message = 0, "ran", ""
    try:
        if request.ranks > 1:
            join_ranks(torch, request.device, rank)
        with recorded(torch, request.snapshot if rank == 0 else ""):
            parameters, repeat = prepare(request, watched.clock)
            watched.reset_peaks()
            for _ in range(request.warmup):
                repeat()
            figures = watched.peaks()
        repeated = [repeat() for _ in range(request.repeats)]
    except Exception as error:  # whatever the run raised is the finding
        outcome, message = _outcome(torch, error)
        figures = watched.peaks()
    samples = {name: [times[name] for times in repeated] for name in (repeated[0] if repeated else ())}
    return Measurement(
        outcome=outcome,
        message=message,
        figures=figures | {name: statistics.median(values) for name, values in samples.items()},
        samples=samples,
        parameters=parameters,
        gpu=torch.cuda.get_device_name() if request.device == "cuda" else counters.device_name("cpu"),
        versions=counters.library_versions(request.device),
    )


@contextmanager
def recorded(torch: Any, file: str) -> Iterator[None]:
    """Record the allocator's history into a file, as memory_viz and ``vramcast explain`` read it; "" records nothing."""
    if not file:
        yield
        return
    torch.cuda.memory._record_memory_history(max_entries=1_000_000)
    try:
        yield
    finally:
        torch.cuda.memory._dump_snapshot(file)
        torch.cuda.memory._record_memory_history(enabled=None)


def _outcome(torch: Any, error: Exception) -> tuple[str, str]:
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return "oom", " ".join(str(error).split())[:600]
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return "failed", f"{type(error).__name__}: {' '.join(str(error).split())[:400]}{where}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
