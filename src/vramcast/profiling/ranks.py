"""A folder of traces, one per rank: which rank is slow, and how long the others wait for it.

Files are read in parallel, one process per core, or over a cluster with Ray (``cluster=True``; its workers must see the files).
No clock is shared between nodes, so waiting is told from durations: calls of one collective are matched by their order in their
group, the shortest among the ranks is its transfer, and what a rank spends beyond that is its wait for the last to arrive. The
rank that waits least is the one that others wait for.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from vramcast.errors import MissingError, QuestionError, VramcastError
from vramcast.hardware.accelerator import Accelerator
from vramcast.profiling.breakdown import GpuTime
from vramcast.profiling.events import SYNC, Trace
from vramcast.profiling.files import read_trace
from vramcast.profiling.report import Report, report_of

_MOST_CALLS = 200_000


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of one file: small, because there may be thousands. ``where`` is None when no GPU worked in it, and ``why``.

    ``collectives``: durations in ns as an int64 array, in their order, by group and name.
    """

    file: str
    why: str = ""
    rank: int | None = None
    gpu: str = ""
    where: GpuTime | None = None
    step_s: float | None = None
    damage: str = ""
    collectives: dict[str, Any] = {}


class RankRow(msgspec.Struct, frozen=True, kw_only=True):
    """One rank; ``wait_s`` is what it spends in collectives beyond their transfer, None when they cannot be matched."""

    rank: int
    file: str
    gpu: str
    where: GpuTime
    step_s: float | None
    wait_s: float | None
    damage: str


class Ranks(msgspec.Struct, frozen=True, kw_only=True):
    """All ranks in order, the one that others wait for, and the report of the rank in the middle.

    ``compute_spread``: longest over median compute time, less 1. ``unread``: files that are no trace of a GPU, with the reason.
    """

    folder: str
    ranks: tuple[RankRow, ...]
    slowest: int | None
    lost_s: float | None
    compute_spread: float
    typical: Report
    unread: tuple[tuple[str, str], ...]


def read_ranks(
    files: list[Path],
    *,
    folder: str,
    card: Accelerator | None = None,
    cluster: bool = False,
    done: Callable[[int], None] | None = None,
) -> Ranks:
    """Read every file and set the ranks side by side; the one in the middle is read again for its whole report.

    Raises QuestionError when no file holds work of a GPU; MissingError for ``cluster`` without Ray.
    """
    reads: list[Read] = []
    for found in (_over_cluster if cluster else _in_processes)(files, card):
        reads.append(found)
        if done:
            done(len(reads))
    good = [read for read in reads if read.where is not None]
    unread = tuple((read.file, read.why) for read in reads if read.where is None)
    if not good:
        first = f": {Path(unread[0][0]).name}: {unread[0][1]}" if unread else ""
        raise QuestionError(f"none of the {len(files)} files of {folder} holds work of a GPU{first}")
    return _beside(folder, good, unread, card)


def _read_one(file: str, card: Accelerator | None) -> Read:
    """One rank in a process of its own."""
    try:
        trace = read_trace(Path(file))
        report = report_of(trace, file=file, card=card)
    except VramcastError as error:
        return Read(file=file, why=str(error))
    if report is None:
        return Read(file=file, why="no work of a GPU in it")
    return Read(
        file=file,
        rank=report.origin.rank,
        gpu=report.gpu,
        where=report.where,
        step_s=median([step.host_s for step in report.steps]) if report.steps else None,
        damage=report.reading.damage,
        collectives=collectives_of(trace, report.device),
    )


def collectives_of(trace: Trace, device: int) -> dict[str, Any]:
    """The durations of one GPU's collectives in ns, in their order, by group and name."""
    import numpy as np

    mine = np.flatnonzero(trace.talks & (trace.device == device) & (trace.kind != SYNC))
    mine = mine[np.argsort(trace.start[mine], kind="stable")][:_MOST_CALLS]
    length = (trace.end - trace.start)[mine].tolist()
    calls: dict[str, list[int]] = {}
    for i, ns in zip(mine.tolist(), length, strict=True):
        told = trace.collectives.get(i)
        key = f"{told.group}|{told.ranks}|{told.name}" if told else trace.names[trace.name[i]]
        calls.setdefault(key, []).append(ns)
    return {key: np.array(ns, dtype=np.int64) for key, ns in calls.items()}


def _in_processes(files: list[Path], card: Accelerator | None) -> Iterator[Read]:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    workers = min(len(files), os.cpu_count() or 1)
    if workers < 2:
        yield from (_read_one(str(file), card) for file in files)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_read_one, map(str, files), [card] * len(files))


def _over_cluster(files: list[Path], card: Accelerator | None) -> Iterator[Read]:
    try:
        import ray
    except ImportError:
        raise MissingError.extra("cluster", "reading ranks over a cluster") from None
    ray.init(address=os.environ.get("RAY_ADDRESS"), ignore_reinit_error=True, log_to_driver=False)
    remote = ray.remote(_read_one)
    for reference in [remote.remote(str(file.resolve()), card) for file in files]:
        yield ray.get(reference)


def _beside(folder: str, good: list[Read], unread: tuple[tuple[str, str], ...], card: Accelerator | None) -> Ranks:
    rows = sorted(map(_row, good, _numbers(good), _waits(good)), key=lambda row: row.rank)
    computes = [row.where.compute_s for row in rows]
    waited = [row for row in rows if row.wait_s is not None]
    slowest = min(waited, key=lambda row: row.wait_s or 0.0) if len(waited) > 1 else None
    middle = median(computes)
    typical = min(rows, key=lambda row: abs(row.where.compute_s - middle))
    whole = report_of(read_trace(Path(typical.file)), file=typical.file, card=card)
    assert whole is not None
    return Ranks(
        folder=folder,
        ranks=tuple(rows),
        slowest=slowest.rank if slowest else None,
        lost_s=median([row.wait_s or 0.0 for row in waited]) if slowest else None,
        compute_spread=max(computes) / middle - 1 if middle else 0.0,
        typical=whole,
        unread=unread,
    )


def _numbers(reads: list[Read]) -> list[int]:
    """Each file's own rank where all have different ones, else the order of the files."""
    numbers = [read.rank for read in reads if read.rank is not None]
    return numbers if len(set(numbers)) == len(reads) else list(range(len(reads)))


def _row(read: Read, number: int, wait: float | None) -> RankRow:
    assert read.where is not None
    return RankRow(
        rank=number,
        file=read.file,
        gpu=read.gpu,
        where=read.where,
        step_s=read.step_s,
        wait_s=wait,
        damage=read.damage,
    )


def _waits(reads: list[Read]) -> list[float | None]:
    """Seconds each rank waits in collectives that at least two ranks have the same number of times."""
    import numpy as np

    holders: dict[str, list[int]] = {}
    for i, read in enumerate(reads):
        for key in read.collectives:
            holders.setdefault(key, []).append(i)
    waits: list[Any] = [None] * len(reads)
    for key, members in holders.items():
        counts = {len(reads[i].collectives[key]) for i in members}
        if len(members) < 2 or len(counts) > 1:
            continue
        durations = np.array([reads[i].collectives[key] for i in members])
        beyond = (durations - durations.min(axis=0)).sum(axis=1)
        for i, ns in zip(members, beyond.tolist(), strict=True):
            waits[i] = (waits[i] or 0.0) + ns / 1e9
    return waits
