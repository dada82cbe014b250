"""A run's counters beside its forecast, whatever the loop: read at its start and end, told in a few lines, kept as a case.

Nothing here may end a training: what cannot be forecast is said in one line.
"""

import sys
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec

from vramcast.asking.asked import Asked
from vramcast.errors import QuestionError
from vramcast.ledger import RankMemory
from vramcast.models.inventory import Model
from vramcast.truth.case import Case, encode_case
from vramcast.units import GiB, gib
from vramcast.workload import Training

_COUNTERS = ("allocated", "reserved", "device")


class PeakComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Peaks of this process's card in bytes by counter, measured and forecast. ``measured`` is empty where there is no GPU."""

    question: Training
    gpu: str
    measured: dict[str, float]
    forecast: dict[str, int]
    instant: str

    def __str__(self) -> str:
        lines = [f"vramcast: the peak of this run on {self.gpu or 'no GPU'}, beside the forecast ({self.instant})"]
        for name in _COUNTERS:
            if name in self.measured:
                own, said = self.measured[name], self.forecast[name]
                lines.append(f"  {name:<9} {gib(own):>10} measured  {gib(said):>10} forecast  {said / max(1, own) - 1:+.1%}")
            elif not self.measured:
                lines.append(f"  {name:<9} {gib(self.forecast[name]):>10} forecast")
        return "\n".join(lines)


class Watched:
    """A run that is watched. ``cases``: a file that a case is appended to; ``gpu``: the card's name, where it is known better."""

    def __init__(self, *, cases: str | PathLike[str] | None = None, gpu: str | None = None) -> None:
        if cases is not None and not Path(cases).expanduser().parent.is_dir():
            raise QuestionError(f"cases={str(cases)!r}: there is no folder {Path(cases).parent}")
        self.cases, self.gpu = cases, gpu
        self.rows = self.length = 0
        self._counters: Any = None

    def begin(self) -> None:
        """Count peaks from here on; nothing is freed."""
        import torch

        if not torch.cuda.is_initialized():
            return
        from vramcast.measuring.counters import Counters

        self._counters = Counters(torch, "cuda", torch.cuda.current_device(), untouched=False)
        torch.cuda.reset_peak_memory_stats()

    def saw(self, inputs: Any) -> None:
        """Note the shape of a batch: the most sequences and the longest that a step had."""
        ids = inputs.get("input_ids") if hasattr(inputs, "get") else inputs
        shape = tuple(getattr(ids, "shape", ()))
        if len(shape) == 2:
            self.rows, self.length = max(self.rows, int(shape[0])), max(self.length, int(shape[1]))

    def card(self) -> str:
        """The card as questions name it: its catalogue name, else its memory."""
        if self.gpu or self._counters is None:
            return self.gpu or ""
        import torch

        from vramcast.hardware.cards import find_accelerator

        own = torch.cuda.get_device_properties(torch.cuda.current_device())
        try:
            return find_accelerator(own.name).id
        except QuestionError:
            return f"{own.total_memory / GiB:.2f}GiB"

    def end(self, asked: Callable[[], tuple[Asked[Training], Model]]) -> PeakComparison | None:
        """Read the peaks, ask the same run, tell both, keep a case; None where nothing could be forecast."""
        try:
            measured = {k: v for k, v in (self._counters.peaks() if self._counters else {}).items() if k in _COUNTERS}
            found = _compared(*asked(), gpu=self.card(), measured=measured)
            if self.cases is not None and measured:
                with Path(self.cases).expanduser().open("ab") as file:
                    file.write(encode_case(_case(found)))
        except Exception as error:
            sys.stderr.write(f"vramcast: no forecast of this run: {' '.join(str(error).split()) or type(error).__name__}\n")
            return None
        sys.stderr.write(f"{found}\n")
        return found


def _compared(asked: Asked[Training], model: Model, *, gpu: str, measured: dict[str, float]) -> PeakComparison:
    from vramcast.planning.core import core_of

    worst: RankMemory = core_of(asked.question, model=model)[0]
    said = {"allocated": worst.allocated_bytes, "reserved": worst.reserved_bytes, "device": worst.device_bytes}
    return PeakComparison(question=asked.question, gpu=gpu, measured=measured, forecast=said, instant=worst.peak.name)


def _case(found: PeakComparison) -> Case:
    from vramcast.measuring.counters import library_versions

    own = found.question
    return Case(
        id=f"{own.model} {own.method} {own.micro_batch}x{own.seq} {own.framework}", level="measured", figures=found.measured,
        training=own, gpu=found.gpu, versions=library_versions("cpu"), source="own",
    )  # fmt: skip
