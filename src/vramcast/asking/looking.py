"""What notebooks ask beside single questions: grids, explanations of logs and snapshots, names of models, scores."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vramcast.errors import QuestionError, unknown_name
from vramcast.ledger import shown_in

if TYPE_CHECKING:
    from vramcast.asking.grid import Cell
    from vramcast.asking.logged_run import LoggedRun
    from vramcast.reading.engine_messages import Finding
    from vramcast.reading.out_of_memory import OutOfMemory
    from vramcast.tracing.snapshots.report import SnapshotReport
    from vramcast.truth.evaluation import Evaluation

_PICKLE = b"\x80"  # every pickle of protocol 2 and above begins so
_MOST_BYTES = 4 * 2**20
_LONGEST_PATH = 4_000


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """A log explained: engines' messages, PyTorch's last out-of-memory message, the run asked again where it is told."""

    findings: "tuple[Finding, ...]" = ()
    memory: "OutOfMemory | None" = None
    again: "LoggedRun | None" = None

    def to_dict(self) -> dict[str, Any]:
        """The findings, the message's numbers and the run asked again, as one object."""
        again = self.again
        return {
            "schema": "vramcast/1",
            "findings": [msgspec.to_builtins(finding) for finding in self.findings],
            "out_of_memory": msgspec.to_builtins(self.memory, enc_hook=str) if self.memory else None,
            "again": {"corrected": again.corrected, "answer": again.forecast.to_dict()} if again else None,
        }

    def __str__(self) -> str:
        return "".join(page.text() for page in shown_in("explain").pages_of(self))


def sweep(
    command: str, model: str | None, axes: Mapping[str, Sequence[Any]], *, files: Sequence[str] = (), **words: Any
) -> "tuple[Cell, ...]":
    """What ``serve`` or ``train`` answer with --sweep: ``sweep("serve", "Qwen/Qwen3-8B", {"context": (4096, 8192)})``.

    Each cell holds its point, its worst rank and verdict, or why it was refused. Raises QuestionError for a word that is none.
    """
    from vramcast.asking.grid import answer_grid, axes_of
    from vramcast.asking.serving import ServingWords, serving_question
    from vramcast.asking.training import TrainingWords, training_question

    if command == "serve" and model is not None:
        return tuple(answer_grid(partial(serving_question, model), words, axes_of(axes, ServingWords.__annotations__)))
    if command == "train":
        ask = partial(training_question, model, files=files)
        return tuple(answer_grid(ask, words, axes_of(axes, TrainingWords.__annotations__)))
    raise unknown_name("sweep of", command, ("serve", "train"))


def explain(what: str | PathLike[str], *, gpu: str | None = None) -> "SnapshotReport | Explained":
    """What ``vramcast explain`` reads: a memory snapshot's path, a log's path, or the text of a log or traceback itself.

    ``gpu``: the card of a log that does not tell it. Raises UnsafeFileError for a file that is no plain snapshot, and
    QuestionError for text that holds nothing to explain.
    """
    path = Path(what) if not isinstance(what, str) or ("\n" not in what and len(what) < _LONGEST_PATH) else None
    if path is None or not path.is_file():
        return explain_text(str(what), gpu=gpu)
    with path.open("rb") as file:
        start = file.read(1)
    if start == _PICKLE:
        from vramcast.planning import explain as explain_snapshot

        return explain_snapshot(path)
    return explain_text(path.read_bytes()[-_MOST_BYTES:].decode("utf-8", "replace"), gpu=gpu)


def explain_text(text: str, *, gpu: str | None = None) -> Explained:
    """A log or traceback explained. Raises QuestionError where it holds none of the messages known."""
    from vramcast.asking.logged_run import asked_again
    from vramcast.reading.engine_messages import read_engine_messages
    from vramcast.reading.out_of_memory import read_out_of_memory

    findings, memory = read_engine_messages(text), read_out_of_memory(text)
    if not findings and memory is None:
        raise QuestionError(
            f"{text[:40]!r} holds nothing that can be explained: expected a memory snapshot, or a log with an out-of-memory "
            "message of CUDA, HIP, MPS or an engine"
        )
    told = [f.value for finding in findings for f in finding.figures if f.name == "of"]
    size = memory.capacity_bytes if memory is not None and memory.capacity_bytes else int(told[-1]) if told else None
    return Explained(findings=findings, memory=memory, again=asked_again(text, gpu=gpu, card_bytes=size, findings=findings))


def find_models(text: str = "") -> tuple[str, ...]:
    """Ids of the bundled catalogue that contain the text, what is known best today first."""
    from vramcast.models.reading import known_ids
    from vramcast.models.reading.known import best_known_first

    return tuple(best_known_first(name for name in known_ids() if text.lower() in name.lower()))


def evaluate(files: Iterable[str | PathLike[str]]) -> "Evaluation":
    """Forecasts held against measured rows, as ``vramcast evaluate FILE.jsonl``. Raises QuestionError for unreadable files."""
    from vramcast.truth.evaluation import evaluate as scored

    return scored([Path(file) for file in files])
