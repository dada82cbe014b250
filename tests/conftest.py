"""The raw corpus beside the checkout, for tests that compare with it."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("house", deadline=None)
settings.load_profile("house")  # a deadline by the wall clock fails on a busy machine


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of raw facts; the test is skipped where it is absent."""
    folder = Path(os.environ.get("VRAMCAST_SHARED", Path(__file__).parents[2] / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no raw corpus at {folder}")
    return folder
