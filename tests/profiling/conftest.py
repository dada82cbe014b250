"""Traces as files."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from trace_events import document


@pytest.fixture
def write_trace(tmp_path: Path) -> Callable[..., Path]:
    """Write events as a trace file; the ending .gz packs it."""

    def write(events: list[dict], name: str = "trace.json", **header) -> Path:
        text = json.dumps(document(events, **header)).encode()
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        return path

    return write
