"""The report of a profiler trace, its kernels held against a card: for the command line and the page."""

import re
from typing import Any

from vramcast.errors import QuestionError
from vramcast.hardware.accelerator import Accelerator
from vramcast.units import GiB

_LONGEST_NAME = 80


def report_on(trace: Any, *, file: str, gpu: str | None) -> tuple[Any, Accelerator | None]:
    """The report and the card, which ``gpu`` names or the trace. Raises QuestionError when no GPU worked in it."""
    from vramcast.planning.attainable import with_attainable
    from vramcast.profiling.report import report_of

    card = _card(gpu, trace)
    report = report_of(trace, file=file, card=card)
    if report is None:
        raise QuestionError(
            f"{file} holds no work of a GPU ({trace.reading.events:,} events): was the profiler given ProfilerActivity.CUDA?"
        )
    return with_attainable(report, card), card


def _card(gpu: str | None, trace: Any) -> Accelerator | None:
    """The card that the question names, else the one that the trace names, else None."""
    from vramcast.hardware.cards import least_card, match_accelerator

    if gpu:
        return least_card(gpu)
    for name in _names(trace.origin):
        try:
            return match_accelerator(name)[0]
        except QuestionError:
            continue
    return None


def _names(origin: Any) -> list[str]:
    """The trace's own name of its GPU, then without its board (A100-PG509-200) and with its memory instead."""
    name = next((n for n in origin.gpu_names if n), "")[:_LONGEST_NAME]
    board = re.match(r"(?:NVIDIA )?([A-Z]+[0-9]+[A-Z]*)-PG[0-9]+", name)
    size = next(iter(origin.gpu_bytes), 0)
    return [name, *([f"{board[1]} {round(size / GiB)}GB"] if board and size else [])] if name else []
