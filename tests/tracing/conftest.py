"""One tracing process for all tests that trace models: importing the libraries takes longer than their traces."""

from collections.abc import Iterator

import pytest

from vramcast.tracing.run import Tracer


@pytest.fixture(scope="session")
def tracer() -> Iterator[Tracer]:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    with Tracer() as opened:
        yield opened
