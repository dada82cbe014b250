"""The JSON files of a model's folder, read through the gate for untrusted text: objects, of bounded size, with sane layer counts.

``Infinity`` and ``NaN`` are not JSON, but published configs hold them (the time-step limit of Mamba 2); they are read as
floats, and the reader of a field decides whether it can be one.
"""

from pathlib import Path
from typing import Any

from vramcast import untrusted
from vramcast.errors import ConfigError
from vramcast.units import MiB

LARGEST_CONFIG_BYTES = 4 * MiB
LARGEST_INDEX_BYTES = 64 * MiB
_MOST_LAYERS = 1_024  # the deepest that was published has 1,000 (DeepNet, arXiv:2203.00555)
_LAYER_WORDS = ("layers", "layer", "depth", "blocks", "block_count")


def read_json(file: Path, *, largest: int = LARGEST_CONFIG_BYTES) -> dict[str, Any]:
    """The JSON object in a file of at most ``largest`` bytes. Raises ConfigError or QuestionError naming the file."""
    return parse_json(untrusted.read_bytes(file, most=largest), str(file), largest=largest)


def parse_json(data: bytes, what: str, *, largest: int = LARGEST_CONFIG_BYTES) -> dict[str, Any]:
    """The JSON object that these bytes are; ``what`` names them in errors."""
    raw = untrusted.parse_json(data, what, most=largest)
    if not isinstance(raw, dict):
        raise ConfigError(f"{what} holds {type(raw).__name__} where an object was expected")
    return raw


def check_sizes(raw: dict[str, Any], what: str) -> None:
    """Refuses layer counts that would be written out one by one and that no model has."""
    for name, value in raw.items():
        if isinstance(value, dict):
            check_sizes(value, f"{what}: {name[:60]}")
        elif isinstance(value, int | float) and name.endswith(_LAYER_WORDS) and value > _MOST_LAYERS:
            raise ConfigError(f"{what}: {untrusted.printable(name[:60])} is {value}, expected at most {_MOST_LAYERS}")
