"""The examples of docs/plan.md: each fits on the cards that it says, at the prices of the catalogue."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_SPEC = importlib.util.spec_from_file_location("build_plan_page", ROOT / "tools" / "build_plan_page.py")
assert _SPEC and _SPEC.loader
TOOL = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(TOOL)
EXAMPLES = TOOL.EXAMPLE.findall((ROOT / "docs" / "plan.md").read_text())


def test_serving_and_training_have_an_example() -> None:
    assert [command.split()[2] for command, _ in EXAMPLES] == ["serve", "train"]


@pytest.mark.parametrize(("command", "shown"), EXAMPLES, ids=["serve", "train"])
def test_an_example_says_what_the_program_says(command: str, shown: str) -> None:
    told = TOOL.printed(command)
    for lines in (r"^FITS  \d+ x [^ ]+", r"^  price = .*"):
        assert re.findall(lines, told, re.MULTILINE) == re.findall(lines, shown, re.MULTILINE) != []
