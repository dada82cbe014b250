"""However a parent ends, its worker, what the worker started, and its folder go with it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return True
    return state == "Z"


def until(condition, seconds: float = 300.0) -> bool:
    for _ in range(int(seconds / 0.05)):
        if condition():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "terminated"])
def test_a_traced_script_and_its_children_end_with_the_parent(tmp_path, number) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text(
        "import subprocess, sys, pathlib, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'])\n"
        f"pathlib.Path(r'{tmp_path / 'pid'}').write_text(str(child.pid))\n"
        "time.sleep(3600)\n"
    )
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    env = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "vramcast", "trace", "--write-through", "--", "python", str(script)]
    parent = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pid_file = tmp_path / "pid"
    assert until(lambda: pid_file.exists() and pid_file.read_text().isdigit()), "the script did not start"
    grandchild = int(pid_file.read_text())
    parent.send_signal(number)
    parent.wait(300)
    assert until(lambda: gone(grandchild)), "what the script started outlives the trace"
    assert until(lambda: not list(temporary.glob("vramcast-*"))), f"left behind: {list(temporary.iterdir())}"


def test_a_worker_that_waits_removes_its_folder_when_the_parent_goes(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    folder = tmp_path / "vramcast-measure-x"
    folder.mkdir()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-P", "-m", "vramcast.measuring.worker", str(folder)]
    worker = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, start_new_session=True)
    assert worker.stdin is not None
    worker.stdin.close()
    assert worker.wait(300) != 0
    assert until(lambda: not folder.exists()), "the folder of a worker that was never asked stays"
