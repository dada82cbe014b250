"""A measuring process: started ahead so that its imports cost the device nothing, asked once, and never outliving its parent."""

import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from vramcast.children import end_group, environment
from vramcast.measuring.request import Measurement, MeasureRequest, worst_rank

_WORKER = "vramcast.measuring.worker"


class Worker:
    """A process (under torchrun: one per rank) that imports its libraries and waits to be asked.

    The request lies in a file; a byte per rank on standard input says that it is complete. Standard input closing says that the
    parent is gone, however it went, and ends the worker: nothing keeps a card after a kill.
    """

    def __init__(self, ranks: int = 1) -> None:
        self._ranks = ranks
        self._folder = tempfile.TemporaryDirectory(prefix="vramcast-measure-")
        self._errors = self._path("stderr").open("wb")
        self._process = subprocess.Popen(
            [*launcher(ranks), "-m", _WORKER, self._folder.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            env=environment(),
            start_new_session=True,
        )

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: Any) -> None:
        end_group(self._process)
        self._errors.close()
        self._folder.cleanup()

    def ask(self, request: MeasureRequest, timeout_s: float) -> Measurement:
        """The request's result. A process that dies (a killed driver, host memory) or takes too long is an outcome too."""
        self._path("request").write_bytes(msgspec.msgpack.encode(request))
        assert self._process.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(b"." * self._ranks)
                self._process.stdin.flush()
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return Measurement(
                outcome="failed", message=f"stopped after {timeout_s:.0f} s: fewer --repeats, or a longer --timeout"
            )
        found = [
            msgspec.msgpack.decode(path.read_bytes(), type=Measurement)
            for path in sorted(Path(self._folder.name).glob("result.*"), key=lambda p: int(p.suffix[1:]))
        ]
        return worst_rank(found) if found else Measurement(outcome="failed", message=self._last_words(code))

    def _last_words(self, code: int) -> str:
        lines = self._path("stderr").read_text(errors="replace").splitlines()
        last = next((line for line in reversed(lines) if line.strip()), "no message")
        return f"the process ended with code {code}: {last[:300]}"

    def _path(self, name: str) -> Path:
        return Path(self._folder.name, name)


def launcher(ranks: int) -> list[str]:
    """The start of a command line for this Python: itself, or under torchrun as that many ranks.

    ``-P`` keeps the current folder off the path: code of a model's folder is never imported.
    """
    python = [sys.executable, "-P"]
    if ranks == 1:
        return python
    return [*python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "--no-python", *python]
