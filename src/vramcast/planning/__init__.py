"""From ledgers to decisions: verdict, limits, advice, cards; and the three levels of evidence behind one form of answer."""

from os import PathLike
from typing import TYPE_CHECKING

from vramcast.workload import Serving, Training

if TYPE_CHECKING:
    from vramcast.planning.tracing.answer import Traced
    from vramcast.tracing.snapshots.report import SnapshotReport
    from vramcast.truth.case import Case


def trace(question: Serving | Training) -> "Traced":
    """Run the question's real code on fake tensors, without a GPU; ``.answer`` has a forecast's form, ``.forecast`` is beside.

    A Serving question is traced as transformers' own generation. Needs the [torch] extra; seconds. Raises as ``forecast``.
    """
    from vramcast.planning.tracing.answer import trace_training
    from vramcast.planning.tracing.generation import trace_generation

    return trace_training(question) if isinstance(question, Training) else trace_generation(question)


def measure(question: Serving | Training, *, device: str = "cuda") -> "Case":
    """Run the question on this machine's device with random weights and read its counters, as a case to keep or compare.

    Needs the [torch] extra and, for cuda, a GPU. Out of memory is a case too. Raises MissingError when there is no such device.
    """
    from vramcast.measuring.campaign import case_of
    from vramcast.measuring.run import measure as run
    from vramcast.models.reading import read_model
    from vramcast.planning.measuring import RunSettings, point_of

    point = point_of(question, read_model(question.model), how=RunSettings(device=device))
    return case_of(point, run(point.request))


def explain(snapshot: str | PathLike[str]) -> "SnapshotReport":
    """Read a torch.cuda.memory snapshot without executing anything in it: peak, categories, fragmentation, stacks.

    Raises UnsafeFileError for a file that is no plain snapshot and QuestionError for one that cannot be read.
    """
    from pathlib import Path

    from vramcast.tracing.snapshots.file import read_snapshot
    from vramcast.tracing.snapshots.report import explain_snapshot

    return explain_snapshot(read_snapshot(Path(snapshot)))
