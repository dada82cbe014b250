"""Constants that come from outside this program, against what their source said when it was read."""

import importlib
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from vramcast.serving.engines.base import Fitted

HERE = Path(__file__).parent
ROOT = HERE.parents[1] / "src" / "vramcast"
FACTS = tomllib.loads((HERE / "constants.toml").read_text())
CASES = [pytest.param(package, name, fact, id=name) for package, facts in FACTS.items() for name, fact in facts.items()]


@cache
def _homes(package: str) -> dict[str, list[str]]:
    """The modules of a package that give each capital name its value."""
    homes: dict[str, list[str]] = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        for name in re.findall(r"^(_?[A-Z][A-Z0-9_]+)(?:: [^=\n]+)? = ", path.read_text(), re.MULTILINE):
            homes.setdefault(name, []).append("vramcast." + ".".join(path.relative_to(ROOT).with_suffix("").parts))
    return homes


def _plain(value: Any) -> Any:
    if isinstance(value, Fitted):
        return value.value
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    return sorted(value) if isinstance(value, frozenset) else value


@pytest.mark.parametrize(("package", "name", "fact"), CASES)
def test_a_constant_is_what_its_source_says(package: str, name: str, fact: dict[str, Any]) -> None:
    assert fact["source"]
    homes = _homes(package).get(name, [])
    assert len(homes) == 1, f"{name} has {len(homes)} homes in {package}: one fact, one home"
    assert _plain(getattr(importlib.import_module(homes[0]), name)) == fact["value"]
