"""The example notebooks: every cell runs, and shows what the file says it shows."""

import json
from pathlib import Path
from typing import Any

import pytest
from build_notebooks import NOTEBOOKS, notebook

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_shows_what_its_file_says(name: str) -> None:
    kept: dict[str, Any] = json.loads((ROOT / "examples" / f"{name}.ipynb").read_text("utf-8"))
    assert notebook(NOTEBOOKS[name]) == kept, "run: python tools/build_notebooks.py"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_its_cards_are_the_pictures_of_the_page(name: str) -> None:
    text = (ROOT / "examples" / f"{name}.ipynb").read_text("utf-8")
    assert text.count('class=\\"chart\\"') >= 2
    assert text.count('class=\\"part weights\\"') >= 2
