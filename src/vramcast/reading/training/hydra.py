"""Hydra's defaults list: files of groups beside a configuration, put together as Hydra 1.3 composes them; nothing is run.

``defaults: [{model: llama}, base, _self_]`` names ``model/llama.yaml`` (its keys below ``model``) and ``base.yaml`` (its keys at
the root) in the folder of the file. A later entry stands before an earlier one; the file itself stands where ``_self_`` does,
last where it is not named. ``group@place: option`` says where the keys go; ``# @package _global_`` in a file puts them at the
root.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from vramcast.errors import QuestionError
from vramcast.reading.training.settings import Settings
from vramcast.untrusted import parse_yaml

_MOST, _DEEPEST = 40, 6
_PACKAGE = re.compile(r"^# *@package +([\w.]{1,60})", re.M)
TextOf = Callable[[str], str | None]


def composed(mapping: dict[str, Any], text_of: TextOf, settings: Settings, group: str = "", depth: int = 0) -> dict[str, Any]:
    """A configuration with its defaults; files that are not at hand are listed as unread.

    Raises QuestionError for more files, or deeper, than any configuration has.
    """
    entries = mapping.get("defaults")
    own = {key: value for key, value in mapping.items() if key != "defaults"}
    if not isinstance(entries, list) or not all(isinstance(one, str | dict) for one in entries):
        return mapping
    if len(entries) > _MOST or depth > _DEEPEST:
        raise QuestionError(f"its defaults name more than {_MOST} files, or files deeper than {_DEEPEST} levels")
    whole: dict[str, Any] = {}
    for entry in entries if "_self_" in entries else [*entries, "_self_"]:
        more = own if entry == "_self_" else _of_entry(entry, text_of, settings, group, depth)
        whole = _over(whole, more)
    return whole


def _of_entry(entry: str | dict[Any, Any], text_of: TextOf, settings: Settings, group: str, depth: int) -> dict[str, Any]:
    """The keys of one entry, below the place that they go to."""
    name, option = next(iter(entry.items()), ("", None)) if isinstance(entry, dict) else ("", entry)
    name = re.sub(r"^(?:override|optional) +", "", str(name))
    name, _, place = name.partition("@")
    if name.startswith("hydra/") or option is None or not isinstance(option, str):
        return {}
    option, _, told = option.partition("@")
    path = "/".join(part for part in (group if not name.startswith("/") else "", name.strip("/"), option.strip("/")) if part)
    text = text_of(path if path.endswith((".yaml", ".yml")) else f"{path}.yaml")
    if text is None:
        settings.unread.append(f"defaults: {path[:80]} (not found beside)")
        return {}
    found = parse_yaml(text, path)
    inner = "/".join(part for part in (group, name.strip("/")) if part)
    keys = composed(found, text_of, settings, inner, depth + 1) if isinstance(found, dict) else {}
    package = _PACKAGE.search(text[:2000])
    where = told or place or (package[1] if package else name.strip("/").replace("/", "."))
    return _below("" if where in ("_global_", "_here_") else where, keys)


def _below(place: str, keys: dict[str, Any]) -> dict[str, Any]:
    for part in reversed([part for part in place.split(".") if part and part != "_group_"]):
        keys = {part: keys}
    return keys


def _over(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Two mappings as one: mappings join, other values of ``over`` stand."""
    joined = dict(under)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(joined.get(key), dict)
        joined[key] = _over(joined[key], value) if both else value
    return joined


_HOLDER = re.compile(r"\$\{([a-zA-Z_][\w.]{0,120})\}")
_ENVIRONMENT = re.compile(r"\$\{(?:oc\.)?env:\w{1,60}, *([^${}]{1,200})\}")
_CHAIN, _LONGEST = 4, 2_000


def interpolated(keys: dict[str, Any]) -> dict[str, Any]:
    """Flat keys with OmegaConf's ``${data.max_length}`` filled in from the keys themselves; what they do not tell stays open."""
    if not any(isinstance(value, str) and "${" in value for value in keys.values()):
        return keys
    found = dict(keys)
    for _ in range(_CHAIN):
        changed = {key: filled for key, value in found.items() if (filled := _filled(value, found)) != value}
        if not changed:
            break
        found |= changed
    return found


def _filled(value: Any, keys: Mapping[str, Any]) -> Any:
    if not isinstance(value, str) or "${" not in value or len(value) > _LONGEST:
        return value
    whole = _HOLDER.fullmatch(value)
    if whole:
        return keys.get(whole[1], value)
    plain = _ENVIRONMENT.sub(r"\1", value)
    filled = _HOLDER.sub(
        lambda match: str(keys[match[1]]) if isinstance(keys.get(match[1]), str | int | float) else match[0], plain
    )
    return filled if len(filled) <= _LONGEST else value
