"""Real artefacts, shortened and rewritten: what each starts. The head of a file names its source."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from vramcast.reading.serving import Launch, read_serving_file

SAMPLES = Path(__file__).parent / "samples"
EXPECTED = tomllib.loads((SAMPLES / "expected.toml").read_text())
FILES = sorted(path for path in SAMPLES.rglob("*") if path.is_file() and path.name not in ("expected.toml", "shared.env"))
BESIDE = {"compose/engine.yaml"}  # read through another file


def _key(path: Path) -> str:
    return path.relative_to(SAMPLES).as_posix()


@pytest.mark.parametrize("path", [path for path in FILES if _key(path) not in BESIDE], ids=_key)
def test_a_sample_is_what_it_starts(path: Path) -> None:
    expected = EXPECTED[_key(path)]
    found = read_serving_file(str(path))
    assert found.kind == expected["kind"]
    assert [_told(launch, wanted) for launch, wanted in zip(found.launches, expected["launch"], strict=True)] == expected[
        "launch"
    ]


def _told(launch: Launch, wanted: dict[str, Any]) -> dict[str, Any]:
    """The launch under the names that are expected; flags are always told."""
    every = {
        "engine": launch.engine, "model": launch.model, "flags": " ".join(launch.flags), "gpus": launch.gpus, "card": launch.card,
        "version": launch.version, "name": launch.name, "where": launch.where, "replicas": launch.replicas,
        "unread": list(launch.unread), "open": list(launch.opened),
    }  # fmt: skip
    return {name: every[name] for name in wanted}


def test_every_format_has_its_five_samples() -> None:
    for folder in sorted(path for path in SAMPLES.iterdir() if path.is_dir()):
        held = [path for path in FILES if path.parent == folder and _key(path) not in BESIDE]
        assert len(held) >= 5, f"{folder.name} has {len(held)}"
