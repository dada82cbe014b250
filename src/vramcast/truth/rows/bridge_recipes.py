"""What Megatron-Bridge's performance recipes set that its tables leave out: recomputation, CUDA graphs, dispatcher, overlap.

``bridge_recipes.json`` is written by ``tools/build_bridge_recipes.py`` from the repository's own presets, release by release.
"""

import functools
import re
from pathlib import Path
from typing import Any

import msgspec

from vramcast.training.frameworks.megatron import graphed_share

_TABLE = Path(__file__).with_name("bridge_recipes.json")
_CONTAINER = re.compile(r"\d\d\.\d\d(?:\.\d\d)?")
_FORMATS = (("nvfp4", "nvfp4"), ("mx", "fp8mx"), ("fp8", "fp8cs"), ("bf16", "bf16"))


@functools.cache
def _recipes() -> dict[str, dict[str, dict[str, Any]]]:
    return msgspec.json.decode(_TABLE.read_bytes(), type=dict[str, dict[str, dict[str, Any]]])


def recipe_of(model: str, task: str, card: str, precision: str, version: str) -> dict[str, Any]:
    """The facts of a table's row, or of the nearest release before it; empty where no recipe is known.

    ``again``: modules recomputed; ``layers``: whole ones of each stage; ``graphs``: what is captured; ``overlap``;
    ``dispatcher``; ``fused``: experts in one kernel a product.
    """
    name, lowered = re.sub(r"[^a-z0-9]", "", model.lower()), precision.lower()
    form = next((own for begun, own in _FORMATS if begun in lowered), "")
    wanted = f"|{task}|{card.lower()}|{form}"
    found = [k for k in _recipes() if k.endswith(wanted) and k.partition("|")[0].replace("_", "") in name]
    if not found:
        return {}
    releases = _recipes()[max(found, key=len)]
    told = _CONTAINER.search(version)
    before = [r for r in releases if told is None or _number(r) <= _number(told[0])]
    return releases[before[-1]] if before else next(iter(releases.values()))


def captured(graphs: str) -> float:
    """Share of the launches that a recipe's CUDA graphs replay."""
    return graphed_share(graphs.split("+")) if graphs else 0.0


def _number(container: str) -> tuple[int, ...]:
    return tuple(int(part) for part in container.split("."))
