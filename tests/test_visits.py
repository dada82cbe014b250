"""How many files one has to open to follow one question: counted by running it, so that rules stay told in few places."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "tools" / "visits.py"
# Whole: from the command line to the JSON, with verdict and limits, and for training with speed. Core: the rules of memory alone.
MOST = {"serve": 38, "train": 74, "--core serve": 25, "--core train": 35}


@pytest.mark.parametrize("asked", MOST)
def test_a_question_is_answered_by_few_files(asked: str) -> None:
    words = [*asked.split(), "Qwen/Qwen2.5-7B-Instruct", "--gpu", "H200", *([] if "core" in asked else ["--json"])]
    done = subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True, check=True)
    *files, count = done.stdout.splitlines()
    assert int(count) == len(files) <= MOST[asked], "\n".join(files)
    assert int(count) > MOST[asked] // 2, "the script no longer sees what is called"
