"""However a script ends, its trace is told: the steps until then, the line, and what it wrote last to its error output."""

from pathlib import Path

import pytest

from vramcast.tracing.request import ScriptRequest, TraceResult
from vramcast.tracing.run import trace_script

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

LOOP = """
import ctypes, os, sys, torch
model = torch.nn.Linear(512, 512, bias=False).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    model(torch.randn(8, 512, device="cuda")).sum().backward()
    optimizer.step()
"""


def _traced(folder: Path, ending: str, *, timeout_s: float = 60, steps: int = 2) -> TraceResult:
    script = folder / "train.py"
    script.write_text(LOOP + ending)
    return trace_script(ScriptRequest(argv=(str(script),), steps=steps), timeout_s=timeout_s)


ENDINGS = {
    "step(); print('no space left', file=sys.stderr); os._exit(7)": (
        "the script ended its process, os._exit(7) at {script}:8",
        ("no space left",),
    ),
    "step(); os.kill(os.getpid(), 9)": ("the script's process was killed: SIGKILL", ()),
    "step(); lock = ctypes.CDLL(None).pthread_mutex_lock; mutex = bytes(64); lock(mutex); lock(mutex)": (
        "stopped after 4 s at {script}:8",
        (),
    ),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_script_that_takes_its_process_along_is_told_with_its_steps(ending: str, tmp_path: Path) -> None:
    error, told = ENDINGS[ending]
    result = _traced(tmp_path, ending, timeout_s=4 if "mutex" in ending else 60)
    assert result.error == error.format(script=tmp_path / "train.py")
    assert result.told[-1:] == told
    assert result.steps == 1
    assert max(a.size for a in result.log.allocations if a.category == "weights") == 4 * 512 * 512


SWALLOWED = """
while True:
    try:
        step()
    except BaseException:
        kept = torch.zeros(10**6, device="cuda")
"""


def test_a_script_that_swallows_the_end_of_its_steps_is_ended_with_what_was_traced(tmp_path: Path) -> None:
    result = _traced(tmp_path, SWALLOWED)
    assert (result.error, result.steps, result.partial) == ("", 2, False)
    assert 4 * 10**6 not in {a.size for a in result.log.allocations}  # what came after is not in it


def test_a_host_allocation_that_the_machine_cannot_hold_fails_in_the_script(tmp_path: Path) -> None:
    result = _traced(tmp_path, "step(); import numpy; numpy.ones(1 << 45, dtype=numpy.uint8)")
    assert result.error.startswith(("MemoryError", "numpy._core._exceptions._ArrayMemoryError", "_ArrayMemoryError"))
    assert result.steps == 1
