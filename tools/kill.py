"""Kill traces and measurements at random moments, and look what is left.

    python tools/kill.py --kills 100

A trace of a model, a trace of a script with children of its own and a sweep of measurements (on the CPU, into one store) are
started in turn; after a random wait the parent, or one of the processes below it, gets SIGKILL, SIGTERM or SIGINT. Afterwards no
process of the run may live, no folder may be left, and the store must hold every case that it held before. Linux, with [torch].
"""

import argparse
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import closing, suppress
from pathlib import Path

MARK = "VRAMCAST_KILL_RUN"
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
SHAPE = ("--layers", "2", "--hidden", "64", "--heads", "4", "--ffn", "128", "--vocab", "512", "--seq", "32")
SCRIPT = """
import subprocess, sys, torch
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
model = torch.nn.Linear(64, 64, device="cuda")
optimizer = torch.optim.AdamW(model.parameters())
while True:
    model(torch.randn(8, 64, device="cuda")).sum().backward()
    optimizer.step()
"""


def main() -> int:
    """Runs the kills; 1 where one left something."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--longest-s", type=float, default=12.0, help="the longest wait before a kill")
    asked = parser.parse_args()
    chance, faults = random.Random(asked.seed), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(SCRIPT)
        for number in range(asked.kills):
            told, fault = _killed(folder, number, chance, asked.longest_s)
            faults += bool(fault)
            print(f"{number + 1:4} {told}: {fault or 'nothing left'}; {_cases(folder / 'runs.sqlite')} cases kept", flush=True)
    print(f"{asked.kills} kills, {faults} that left something")
    return int(faults > 0)


def _commands(folder: Path) -> dict[str, list[str]]:
    sweep = "micro_batch=" + ",".join(map(str, range(1, 33)))
    return {
        "trace of a model": ["trace", *SHAPE],
        "trace of a script": ["trace", "--", "python", str(folder / "train.py")],
        "sweep": ["measure", *SHAPE, "--device", "cpu", "--sweep", sweep, "--store", str(folder / "runs.sqlite")],
    }


def _killed(folder: Path, number: int, chance: random.Random, longest_s: float) -> tuple[str, str]:
    """What was killed and how, and what it left behind."""
    commands = _commands(folder)
    name = list(commands)[number % len(commands)]
    scratch, mark, before = folder / f"tmp{number}", uuid.uuid4().hex, _cases(folder / "runs.sqlite")
    scratch.mkdir()
    env = {**os.environ, "TMPDIR": str(scratch), MARK: mark}
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    parent = subprocess.Popen([sys.executable, "-m", "vramcast", *commands[name]], env=env, cwd=folder, **silent)
    time.sleep(chance.uniform(0.1, longest_s))
    below = [pid for pid in _marked(mark) if pid != parent.pid]
    victim = chance.choice(below) if below and chance.random() < 0.3 else parent.pid
    sent = chance.choice(SIGNALS)
    with suppress(ProcessLookupError):
        os.kill(victim, sent)
    whom = "its parent" if victim == parent.pid else "a child"
    if victim != parent.pid:  # a parent may go on after a child's end: it is asked to end as a person would
        time.sleep(1)
        parent.send_signal(signal.SIGINT)
    return f"{name}, {whom} gets {sent.name}", _left(parent, mark, scratch, folder / "runs.sqlite", before)


def _left(parent: "subprocess.Popen[bytes]", mark: str, scratch: Path, store: Path, before: int) -> str:
    end = time.monotonic() + 30
    while time.monotonic() < end and (parent.poll() is None or _marked(mark) or any(scratch.glob("vramcast-*"))):
        time.sleep(0.1)
    if alive := _marked(mark):
        for pid in alive:
            os.kill(pid, signal.SIGKILL)
        return f"{len(alive)} processes live on"
    if folders := [path.name for path in scratch.glob("vramcast-*")]:
        return f"left {', '.join(folders)}"
    return f"{before} cases were kept before, {_cases(store)} now" if _cases(store) < before else ""


def _cases(store: Path) -> int:
    """Cases in the store. Raises sqlite3.DatabaseError where it is damaged."""
    if not store.exists():
        return 0
    with closing(sqlite3.connect(store)) as base:
        tables = [row[0] for row in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        if base.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError(f"{store} is damaged")
        return int(base.execute("SELECT count(*) FROM cases").fetchone()[0]) if "cases" in tables else 0


def _marked(mark: str) -> list[int]:
    """Living processes whose environment holds the mark, whoever their parent is by now."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


if __name__ == "__main__":
    sys.exit(main())
