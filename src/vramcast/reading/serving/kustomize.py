"""Kustomize: resources beside a kustomization with patches, images and generated ConfigMaps, as ``kubectl kustomize`` joins them.

Only YAML and env files are read, at most three folders above the file; patches are strategic merges (containers by their name) or
lists of JSON 6902 operations. Nothing is run or fetched; a resource that is not at hand is passed over.
"""

import copy
import re
from collections.abc import Callable, Mapping
from typing import Any

from vramcast.errors import VramcastError
from vramcast.reading.serving import kubernetes
from vramcast.reading.serving.environment import read_environment_file
from vramcast.reading.serving.launch import Launch, Surroundings
from vramcast.untrusted import parse_yaml_documents

NAME = "kustomization"
_MOST, _DEEPEST = 60, 5
_FILES = ("kustomization.yaml", "kustomization.yml")
TextOf = Callable[[str], str | None]


def is_kustomization(document: Any) -> bool:
    """Whether a mapping is a kustomization or a component of one."""
    return isinstance(document, dict) and (
        document.get("kind") in ("Kustomization", "Component")
        or (isinstance(document.get("resources"), list) and "apiVersion" not in document and bool(_JOINS & document.keys()))
    )


_JOINS = frozenset(
    {"patches", "patchesStrategicMerge", "patchesJson6902", "images", "configMapGenerator", "namePrefix", "nameSuffix"}
)


def read(document: Any, held: Surroundings) -> tuple[Launch, ...]:
    """What the joined resources start; () for what is no kustomization."""
    return kubernetes.read(_resources(document, held.text_of, "", 0), held) if is_kustomization(document) else ()


def _resources(document: dict[str, Any], text_of: TextOf, folder: str, depth: int) -> list[Any]:
    """The resources of a kustomization, those of its bases included, patched. ``folder``: where it lies, from the first."""
    found: list[Any] = []
    for entry in _listed(document, "resources", "bases"):
        found += _of_entry(str(entry), text_of, folder, depth)
    found += [_config_map(one, text_of, folder) for one in _listed(document, "configMapGenerator") if isinstance(one, dict)]
    components = [_parsed(_kustomization(str(one), text_of, folder)) for one in _listed(document, "components")]
    for part in (*(one[0] for one in components if one), document):
        if isinstance(part, dict):
            _patch(found, part, text_of, folder)
    return found


def _of_entry(entry: str, text_of: TextOf, folder: str, depth: int) -> list[Any]:
    if depth > _DEEPEST or "://" in entry:
        return []
    if entry.endswith((".yaml", ".yml")):
        return _parsed(text_of(_join(folder, entry)))
    inner = _parsed(_kustomization(entry, text_of, folder))
    return _resources(inner[0], text_of, _join(folder, entry), depth + 1) if inner and isinstance(inner[0], dict) else []


def _kustomization(entry: str, text_of: TextOf, folder: str) -> str | None:
    texts = (text_of(f"{_join(folder, entry)}/{name}") for name in _FILES)
    return next((text for text in texts if text is not None), None)


def _join(folder: str, entry: str) -> str:
    return f"{folder}/{entry}".strip("/") if folder else entry


def _listed(document: Mapping[str, Any], *keys: str) -> list[Any]:
    return [one for key in keys for one in (document.get(key) or [])[:_MOST] if isinstance(document.get(key), list)]


def _parsed(text: str | None) -> list[Any]:
    try:
        return [one for one in parse_yaml_documents(text, "a resource") if one is not None] if text else []
    except VramcastError:
        return []


def _config_map(entry: Mapping[str, Any], text_of: TextOf, folder: str) -> dict[str, Any]:
    """A generated ConfigMap: variables of env files and literals."""
    data: dict[str, str] = {}
    for file in _listed(entry, "envs") + ([entry["env"]] if isinstance(entry.get("env"), str) else []):
        data |= read_environment_file(text_of(_join(folder, str(file))) or "")
    data |= dict(str(one).split("=", 1) for one in _listed(entry, "literals") if "=" in str(one))
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": str(entry.get("name") or "")}, "data": data}


def _patch(found: list[Any], document: Mapping[str, Any], text_of: TextOf, folder: str) -> None:
    for entry in _listed(document, "patches", "patchesStrategicMerge", "patchesJson6902"):
        one = entry if isinstance(entry, dict) else {"path" if str(entry).endswith((".yaml", ".yml")) else "patch": entry}
        text = text_of(_join(folder, str(one["path"]))) if one.get("path") else one.get("patch")
        for patch in _parsed(text if isinstance(text, str) else None):
            for place, resource in enumerate(found):
                if isinstance(resource, dict) and _meant(resource, patch, one.get("target")):
                    found[place] = _operated(resource, patch) if isinstance(patch, list) else _merged(resource, patch)
    images = {str(one.get("name")): one for one in _listed(document, "images") if isinstance(one, dict)}
    for resource in found if images else ():
        _with_images(resource, images, 0)


def _meant(resource: Mapping[str, Any], patch: Any, target: Any) -> bool:
    """Whether a patch is for a resource: by its target's kind and name (a pattern), else by its own."""
    wanted = target if isinstance(target, dict) else patch if isinstance(patch, dict) else {}
    meta, own = wanted.get("metadata"), resource.get("metadata")
    name = wanted.get("name") or (meta.get("name") if isinstance(meta, dict) else None)
    kind = wanted.get("kind")
    if kind and kind != resource.get("kind"):
        return False
    named = str(own.get("name")) if isinstance(own, dict) else ""
    return (
        not name
        or str(name) == named
        or (isinstance(target, dict) and re.fullmatch(re.escape(str(name)).replace(r"\.\*", ".*"), named) is not None)
    )


def _merged(under: Any, over: Any) -> Any:
    """A strategic merge: mappings join, lists of named entries join by name, null removes, other values stand."""
    if isinstance(under, dict) and isinstance(over, dict):
        joined = {**under, **{key: _merged(under.get(key), value) for key, value in over.items()}}
        return {key: value for key, value in joined.items() if value is not None}
    named = isinstance(over, list) and over and all(isinstance(one, dict) and "name" in one for one in over)
    if named and isinstance(under, list) and all(isinstance(one, dict) for one in under):
        known = {str(one.get("name")): one for one in under}
        for one in over:
            known[str(one["name"])] = _merged(known.get(str(one["name"]), {}), one)
        return list(known.values())
    return over


def _operated(resource: dict[str, Any], operations: list[Any]) -> dict[str, Any]:
    """JSON 6902: add, replace and remove by path; an operation whose place is not there is passed over."""
    whole = copy.deepcopy(resource)
    for one in operations[:_MOST]:
        if not isinstance(one, dict) or not isinstance(one.get("path"), str):
            continue
        *above, last = [part.replace("~1", "/").replace("~0", "~") for part in one["path"].strip("/").split("/")]
        at: Any = whole
        for part in above:
            at = at.get(part) if isinstance(at, dict) else at[int(part)] if _is_place(at, part) else None
        if isinstance(at, dict):
            at.pop(last, None) if one.get("op") == "remove" else at.__setitem__(last, one.get("value"))
        elif isinstance(at, list) and one.get("op") == "add" and last == "-":
            at.append(one.get("value"))
        elif _is_place(at, last):
            at.pop(int(last)) if one.get("op") == "remove" else at.__setitem__(int(last), one.get("value"))
    return whole


def _is_place(value: Any, part: str) -> bool:
    return isinstance(value, list) and part.isdigit() and len(part) < 5 and int(part) < len(value)


def _with_images(value: Any, images: Mapping[str, Mapping[str, Any]], depth: int) -> None:
    """Containers' images by the names and tags that ``images`` give."""
    if depth > 20:
        return
    if isinstance(value, dict):
        if isinstance(value.get("image"), str):
            name = value["image"].split("@")[0].rsplit(":", 1)[0] if ":" in value["image"].rsplit("/", 1)[-1] else value["image"]
            if new := images.get(name):
                tag = f":{new['newTag']}" if new.get("newTag") else ""
                value["image"] = f"{new.get('newName') or name}{tag}"
        for inner in value.values():
            _with_images(inner, images, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            _with_images(inner, images, depth + 1)
