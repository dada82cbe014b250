"""The committed catalogue is what its generator yields now, small, and every row of it decodes."""

import importlib.util
from pathlib import Path

import pytest

from vramcast.models import reading

TOOL = Path(__file__).parents[2] / "tools" / "build_catalogue.py"


@pytest.mark.shared
def test_the_committed_catalogue_is_what_the_generator_yields(shared) -> None:
    spec = importlib.util.spec_from_file_location("build_catalogue", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    rows, index, _ = tool.build(shared / "models")
    stale = "run: PYTHONPATH=src python tools/build_catalogue.py ../shared/models"
    assert (reading.FOLDER / "rows.jsonl").read_bytes() == rows, stale
    assert (reading.FOLDER / "index.json").read_bytes() == index, stale


def test_every_name_loads() -> None:
    index = reading.read_index()
    for place in {*index.models.values(), *(a.row for a in index.aliases.values())}:
        model = reading.model_of(reading.row_at(place))
        assert model.parameters > 0 and model.layers > 0 and model.trust


def test_it_stays_small() -> None:
    assert sum(f.stat().st_size for f in reading.FOLDER.glob("*.json*")) < 2.5 * 2**20
