"""Measuring a command as its user types it: run unchanged, its output shown, every Python process in it watched."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from vramcast.children import end_group
from vramcast.errors import QuestionError
from vramcast.measuring.request import Measurement, worst_rank

_WATCH = Path(__file__).parent / "watch"


def measure_command(argv: tuple[str, ...], *, timeout_s: float = 86_400) -> Measurement:
    """Run a command to its end and return what its processes counted, of the rank that held most.

    The command's standard output goes to standard error, so that ours stays an answer. A command that fails is a result.
    Raises QuestionError when there is no such program.
    """
    command = _program(argv)
    with tempfile.TemporaryDirectory(prefix="vramcast-measure-") as folder:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(), env=_environment(folder), start_new_session=True
        )
        try:
            ended = f"the command ended with code {process.wait(timeout_s)}"
        except subprocess.TimeoutExpired:
            ended = f"the command was stopped after {timeout_s:.0f} s: give it a longer --timeout"
        finally:
            end_group(process)
        return _result(Path(folder), ended, ran=process.returncode == 0, run_s=time.perf_counter() - start)


def _program(argv: tuple[str, ...]) -> list[str]:
    if not argv:
        raise QuestionError("there is no command after --: write vramcast measure -- python train.py ...")
    if shutil.which(argv[0]):
        return list(argv)
    if argv[0] in {"python", "python3"}:
        return [sys.executable, *argv[1:]]
    if argv[0].endswith(".py") and Path(argv[0]).is_file():
        return [sys.executable, *argv]
    raise QuestionError(f"there is no program {argv[0]!r} to measure: write vramcast measure -- python train.py ...")


def _environment(folder: str) -> dict[str, str]:
    paths = [str(_WATCH), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "VRAMCAST_WATCH": folder}


def _result(folder: Path, ended: str, *, ran: bool, run_s: float) -> Measurement:
    left = [json.loads(path.read_bytes()) for path in folder.glob("result.*") if path.suffix != ".part"]
    left.sort(key=lambda process: process["rank"])
    found = [msgspec.convert({k: v for k, v in process.items() if k != "rank"}, type=Measurement) for process in left]
    if ran:
        found = [msgspec.structs.replace(m, outcome="ran", message="") for m in found]
        nothing = Measurement(outcome="ran", message="no process of the command used torch: there is nothing to count")
    else:
        nothing = Measurement(outcome="failed", message=ended)
    # A launcher imports torch too, but neither holds memory nor steps.
    telling = [m for m in found if m.outcome != "ran" or m.figures.get("allocated") or m.figures.get("optimizer_steps")] or found
    if not telling or (not ran and all(m.outcome == "ran" for m in telling)):
        telling.append(nothing)
    return worst_rank([msgspec.structs.replace(m, figures={**m.figures, "run_s": run_s}) for m in telling])
