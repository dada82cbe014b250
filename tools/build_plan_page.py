"""Write the outputs in docs/plan.md anew: each example of the page is a command and what it prints at 84 columns without colour.

The text around the examples stays as it is. A test holds what an example must still say: that it fits, and its prices.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

TARGET = Path(__file__).parents[1] / "docs" / "plan.md"
EXAMPLE = re.compile(r"```\n\$ (vramcast plan (?:[^\n]*\\\n)*[^\n]*)\n(.*?)\n```", re.DOTALL)
_COLUMNS = 84


def printed(command: str) -> str:
    """What a command of the page prints."""
    words = shlex.split(command.replace("\\\n", " "))[1:]
    plain = os.environ | {"COLUMNS": str(_COLUMNS), "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-m", "vramcast", *words], capture_output=True, text=True, env=plain, check=True
    ).stdout.rstrip()


def page(text: str) -> str:
    """The page with every output written anew."""
    return EXAMPLE.sub(lambda found: f"```\n$ {found[1]}\n{printed(found[1])}\n```", text)


if __name__ == "__main__":
    TARGET.write_text(page(TARGET.read_text()))
