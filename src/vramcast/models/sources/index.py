"""Shard indexes: which file holds which tensor, and that none of those files lies outside the folder.

``*.safetensors.index.json`` and ``pytorch_model.bin.index.json`` map tensor names to file names (huggingface_hub serialization).
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from vramcast.errors import ConfigError, UnsafeFileError
from vramcast.untrusted import shown

_MOST_FILES = 10_000
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*(?:/[A-Za-z0-9][A-Za-z0-9._+-]*)*")


def shard_names(raw: Mapping[str, Any], what: str) -> tuple[str, ...]:
    """The files an index names, each once, in order. Raises UnsafeFileError for a name that leaves the folder."""
    places = raw.get("weight_map")
    if not isinstance(places, Mapping) or not places:
        raise ConfigError(f"{what} has no weight_map: is this the index of a sharded checkpoint?")
    names = tuple(dict.fromkeys(check_inside(name, what) for name in places.values()))
    if len(names) > _MOST_FILES:
        raise UnsafeFileError(f"{what} names {len(names):,} files: expected at most {_MOST_FILES:,}")
    return names


def check_inside(name: object, what: str) -> str:
    """That file name when it stays inside the folder of ``what``."""
    parts = PurePosixPath(name).parts if isinstance(name, str) and len(name) < 1024 else ()
    if not isinstance(name, str) or not _PLAIN.fullmatch(name) or ".." in parts or "\\" in name:
        raise UnsafeFileError(f"{what} names the file {str(name)[:80]!r}, which is not a plain name inside its folder")
    return name


def inside(folder: Path, name: str, what: str) -> Path:
    """The file of that name when it also lies there once links are followed; the hub's own cache may link to its blobs."""
    try:
        file, root = (folder / check_inside(name, what)).resolve(), folder.resolve()
        file.is_file()
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or "a link that leads to itself"
        raise UnsafeFileError(f"{what} names {shown(name)}, which cannot be opened: {reason}") from None
    blobs = root.parent.parent / "blobs" if root.parent.name == "snapshots" else root
    if not (file.is_relative_to(root) or file.is_relative_to(blobs)):
        raise UnsafeFileError(f"{what} names {name!r}, a link that leads out of its folder to {file}")
    return file


def total_size(raw: Mapping[str, Any]) -> int | None:
    """The index's own total in bytes, None when absent or impossible (one published index holds a text of sizes run together)."""
    metadata = raw.get("metadata")
    value = metadata.get("total_size") if isinstance(metadata, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or not 0 < value < 2**50:
        return None
    return int(value)
