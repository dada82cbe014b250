"""The committed corpus beside its forecasts, judged once for all tests here."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from vramcast.truth.evaluation import Evaluation

FOLDER = Path(__file__).parents[2] / "truth"


@pytest.fixture(scope="session")
def writer() -> ModuleType:
    """The script that writes the accuracy page."""
    spec = importlib.util.spec_from_file_location("write_accuracy", FOLDER / "write_accuracy.py")
    assert spec and spec.loader
    sys.path.insert(0, str(FOLDER))  # as Python does for a script: the drawing lies beside it
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def corpus(writer: ModuleType) -> Evaluation:
    """Every committed row, judged."""
    return writer.corpus()
