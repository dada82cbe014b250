"""Months of torchtitan's commits, which reports name instead of a release: written from a clone of the repository.

    python tools/dated_commits.py path/to/torchtitan

Writes src/vramcast/truth/rows/titan_commits.json: for each month the first seven letters of its commits, one after another.
"""

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

TARGET = Path(__file__).parents[1] / "src/vramcast/truth/rows/titan_commits.json"
LETTERS = 7


def main(clone: str) -> None:
    """Write the table."""
    log = ("git", "-C", clone, "log", "--first-parent", f"--abbrev={LETTERS}", "--date=format:%Y.%-m", "--format=%H %ad")
    months: dict[str, list[str]] = defaultdict(list)
    for line in subprocess.run(log, check=True, capture_output=True, text=True).stdout.splitlines():
        name, month = line.split()
        months[month].append(name[:LETTERS])
    lines = [f'"{month}": "{"".join(sorted(names))}"' for month, names in months.items()]
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
    json.loads(TARGET.read_text("utf-8"))


if __name__ == "__main__":
    main(sys.argv[1])
