"""The example notebooks: every cell runs, and the files hold the same cells, each with what it showed when they were written."""

import json
from pathlib import Path
from typing import Any

import pytest
from build_notebooks import NOTEBOOKS, notebook

FOLDER = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_and_its_file_is_of_these_cells(name: str) -> None:
    """Figures may move between releases: only cells and the kinds of outputs are held."""
    kept: dict[str, Any] = json.loads((FOLDER / f"{name}.ipynb").read_text("utf-8"))
    shown = notebook(NOTEBOOKS[name])
    assert [c["source"] for c in shown["cells"]] == [c["source"] for c in kept["cells"]], "run: python tools/build_notebooks.py"
    assert _outputs(shown) == _outputs(kept)


def _outputs(found: dict[str, Any]) -> list[list[str]]:
    return [sorted(output["data"]) for cell in found["cells"] for output in cell.get("outputs", [])]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_its_cards_are_the_pictures_of_the_page(name: str) -> None:
    shown = json.dumps(notebook(NOTEBOOKS[name]))
    assert shown.count('class=\\"chart\\"') >= 2
    assert shown.count('class=\\"part weights\\"') >= 2
