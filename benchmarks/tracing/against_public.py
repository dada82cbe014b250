"""Traced against published: every visible row that can be executed, run again on fake tensors with its own program.

    python benchmarks/tracing/against_public.py [WORD ...]      (needs the [torch] extra)

Outcomes are kept in truth/traced/public.jsonl, one line per row. What is there without an error is not traced again unless a
WORD of its id is given. ``python benchmarks/tracing/public_page.py`` writes the table of docs/tracing.md from them.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from public.case import Case, Outcome
from public.cases import RefusedError, case_of, rows
from public.libraries import folder
from public.outcomes import ROOT, keep, outcomes

SECONDS_PER_CASE = 900


def main(words: list[str]) -> None:
    """Trace what is missing, one process at a time."""
    kept = outcomes()
    waiting = defaultdict[object, list[Case]](list)
    for case in cases():
        if any(word in case.id for word in words) if words else case.id not in kept or kept[case.id].error:
            waiting[case.process].append(case)
    for batch in waiting.values():
        for outcome in traced(batch):
            kept[outcome.id] = outcome
            keep(kept.values())
            print(outcome.id, f"{outcome.allocated_bytes / 2**30:.3f} GiB {outcome.error}", flush=True)


def cases() -> Iterable[Case]:
    """The rows that have a program."""
    for row in rows(ROOT / "truth"):
        try:
            yield case_of(row)
        except RefusedError:
            continue


def traced(batch: list[Case]) -> Iterator[Outcome]:
    """The outcomes of cases of one process; a case at which the process dies is an outcome, the rest go to another process."""
    while batch:
        found = 0
        with Child(batch) as child:
            for outcome in child.outcomes():
                found += 1
                yield outcome
            why = child.failure()
        if found < len(batch):
            case = batch[found]
            yield Outcome(id=case.id, program=case.program, libraries=case.libraries, error=why)
        batch = batch[found + 1 :]


class Child:
    """One tracing process and the file that it writes its outcomes to."""

    def __init__(self, batch: list[Case]) -> None:
        self.place = tempfile.TemporaryDirectory()
        self.answered, self.said = Path(self.place.name, "outcomes"), Path(self.place.name, "said")
        asked = Path(self.place.name, "cases")
        asked.write_bytes(b"\n".join(map(msgspec.json.encode, batch)))
        command = [sys.executable, "-m", "public.child", str(asked), str(self.answered)]
        with self.said.open("wb") as said:
            self.process = subprocess.Popen(command, env=_environment(batch[0]), stdout=said, stderr=said)

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.place.cleanup()

    def outcomes(self) -> Iterator[Outcome]:
        """Each outcome when it is there, until the process ends or takes too long over one."""
        read, since = 0, time.monotonic()
        while time.monotonic() - since < SECONDS_PER_CASE:
            ended = self.process.poll() is not None
            lines = self.answered.read_bytes().split(b"\n")[read:-1] if self.answered.exists() else []
            for line in lines:
                read, since = read + 1, time.monotonic()
                yield msgspec.json.decode(line, type=Outcome)
            if ended:
                return
            time.sleep(0.2)

    def failure(self) -> str:
        """Why there is no further outcome."""
        if self.process.poll() is None:
            return f"more than {SECONDS_PER_CASE} s"
        return self.said.read_text(errors="replace").strip().rpartition("\n")[2][:300]


def _environment(case: Case) -> dict[str, str]:
    """The libraries of the case before those installed, and the traced programs beside them."""
    first = [str(place) for place in (folder(case.libraries), Path(__file__).parent, ROOT / "src") if place]
    return {**os.environ, **case.environment, "PYTHONPATH": os.pathsep.join(first), "OMP_NUM_THREADS": "1"}


if __name__ == "__main__":
    main(sys.argv[1:])
