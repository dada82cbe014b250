"""The catalogue at run time: a compact twin of accelerators.toml, decoded once, in well under a millisecond."""

import functools
from pathlib import Path

import msgspec

from vramcast.hardware.accelerator import Accelerator

FACTS = Path(__file__).with_name("accelerators.toml")
TWIN = Path(__file__).with_name("accelerators.json")


@functools.cache
def catalogue() -> dict[str, Accelerator]:
    """Every part by its id, in the order of the file."""
    parts = msgspec.json.decode(TWIN.read_bytes(), type=list[Accelerator])
    return {part.id: part for part in parts}


@functools.cache
def source_texts() -> dict[str, str]:
    """What each source key of the catalogue stands for."""
    import tomllib

    texts: dict[str, str] = tomllib.loads(FACTS.read_text("utf-8"))["sources"]
    return texts
