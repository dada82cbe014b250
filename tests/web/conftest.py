"""The application under test, asked in this process."""

from collections.abc import Iterator

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from vramcast.web.app import create_app


@pytest.fixture(scope="session")
def client() -> Iterator[TestClient[Litestar]]:
    with TestClient(create_app()) as found:
        yield found
