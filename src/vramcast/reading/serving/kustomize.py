"""Kustomize: resources beside a kustomization with patches, images and generated ConfigMaps, as ``kubectl kustomize`` joins them.

Only YAML and env files are read, at most three folders above the file; patches are strategic merges (containers by their name) or
lists of JSON 6902 operations. Nothing is run or fetched; what a kustomization names and is not at hand is told.
"""

import copy
import posixpath
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from vramcast.errors import QuestionError, VramcastError
from vramcast.reading.serving import kubernetes
from vramcast.reading.serving.environment import read_environment_file
from vramcast.reading.serving.launch import Launch, LaunchContext
from vramcast.untrusted import parse_yaml_documents

NAME = "kustomization"
_MOST, _DEEPEST = 60, 5
_FILES = ("kustomization.yaml", "kustomization.yml")
TextOf = Callable[[str], str | None]


def is_kustomization(document: Any, name: str = "") -> bool:
    """Whether a mapping is a kustomization or a component of one: by its kind, its keys, or the file's ``name``."""
    if not isinstance(document, dict):
        return False
    listed = isinstance(document.get("resources"), list) and "apiVersion" not in document
    named = posixpath.basename(name) in _FILES
    return document.get("kind") in ("Kustomization", "Component") or (listed and (named or bool(_JOINS & document.keys())))


_JOINS = frozenset(
    {"patches", "patchesStrategicMerge", "patchesJson6902", "images", "configMapGenerator", "namePrefix", "nameSuffix"}
)


def read(document: Any, held: LaunchContext) -> tuple[Launch, ...]:
    """What the joined resources start, each with the files that were not at hand.

    Raises QuestionError where nothing starts and a base is not at hand, and for bases that hold each other.
    """
    joining = _Joining(held.text_of)
    found = kubernetes.read(joining.resources(document, "", ()), held)
    if joining.bases and not found:
        raise QuestionError(
            f"{held.where or 'the kustomization'} builds on {', '.join(joining.bases[:5])}, which is not at hand (only "
            "files of this machine are read, at most three folders above): give the folder that holds it, or what kubectl "
            "kustomize prints"
        )
    absent = (*(f"the base {one}, which is not at hand" for one in joining.bases), *joining.absent)
    return tuple(msgspec.structs.replace(one, unread=(*one.unread, *absent)) for one in found)


class _Joining:
    """One reading of a kustomization: ``bases`` and ``absent`` are the files that it names and that are not at hand."""

    def __init__(self, text_of: TextOf) -> None:
        self.text_of = text_of
        self.bases: list[str] = []
        self.absent: list[str] = []

    def resources(self, document: dict[str, Any], folder: str, above: tuple[str, ...]) -> list[Any]:
        """The resources of a kustomization, those of its bases included, patched. ``folder``: where it lies, from the first."""
        found: list[Any] = []
        for entry in _listed(document, "resources", "bases"):
            found += self._of_entry(str(entry), folder, above)
        maps = (one for one in _listed(document, "configMapGenerator") if isinstance(one, dict))
        found += [self._config_map(one, folder) for one in maps]
        parts = [(str(one), _parsed(self._kustomization(str(one), folder))) for one in _listed(document, "components")]
        self.absent += [f"the component {entry}, which is not at hand" for entry, part in parts if not part]
        for part, place in (*((one[0], _join(folder, entry)) for entry, one in parts if one), (document, folder)):
            if isinstance(part, dict):
                self._patch(found, part, place)
        return found

    def _of_entry(self, entry: str, folder: str, above: tuple[str, ...]) -> list[Any]:
        if "://" in entry or re.match(r"(?:git@|github\.com/)", entry):
            self.bases.append(entry[:120])
            return []
        text = self.text_of(_join(folder, entry)) if entry.endswith((".yaml", ".yml")) else self._kustomization(entry, folder)
        if text is None:
            self.bases.append(_join(folder, entry)[:120])
            return []
        if entry.endswith((".yaml", ".yml")):
            return _parsed(text)
        place = posixpath.normpath(_join(folder, entry))
        if place in above or len(above) >= _DEEPEST:
            raise QuestionError(f"{place[:80]} is a base of itself, through {len(above)} files: name the last one alone")
        inner = _parsed(text)
        whole = inner[0] if inner and isinstance(inner[0], dict) else {}
        return self.resources(whole, _join(folder, entry), (*above, place))

    def _kustomization(self, entry: str, folder: str) -> str | None:
        texts = (self.text_of(f"{_join(folder, entry)}/{name}") for name in _FILES)
        return next((text for text in texts if text is not None), None)

    def _config_map(self, entry: Mapping[str, Any], folder: str) -> dict[str, Any]:
        """A generated ConfigMap: variables of env files and literals."""
        data: dict[str, str] = {}
        for file in _listed(entry, "envs") + ([entry["env"]] if isinstance(entry.get("env"), str) else []):
            text = self.text_of(_join(folder, str(file)))
            self.absent += [] if text is not None else [f"the variables of {file}, which is not at hand"]
            data |= read_environment_file(text or "")
        data |= dict(str(one).split("=", 1) for one in _listed(entry, "literals") if "=" in str(one))
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": str(entry.get("name") or "")}, "data": data}

    def _patch(self, found: list[Any], document: Mapping[str, Any], folder: str) -> None:
        for entry in _listed(document, "patches", "patchesStrategicMerge", "patchesJson6902"):
            one = entry if isinstance(entry, dict) else {"path" if str(entry).endswith((".yaml", ".yml")) else "patch": entry}
            text = self.text_of(_join(folder, str(one["path"]))) if one.get("path") else one.get("patch")
            if text is None:
                self.absent.append(f"the patch {str(one.get('path'))[:120]}, which is not at hand")
            for patch in _parsed(text if isinstance(text, str) else None):
                for place, resource in enumerate(found):
                    if isinstance(resource, dict) and _meant(resource, patch, one.get("target")):
                        found[place] = _operated(resource, patch) if isinstance(patch, list) else _merged(resource, patch)
        images = {str(one.get("name")): one for one in _listed(document, "images") if isinstance(one, dict)}
        for resource in found if images else ():
            _with_images(resource, images, 0)


def _join(folder: str, entry: str) -> str:
    return f"{folder}/{entry}".strip("/") if folder else entry


def _listed(document: Mapping[str, Any], *keys: str) -> list[Any]:
    return [one for key in keys for one in (document.get(key) or [])[:_MOST] if isinstance(document.get(key), list)]


def _parsed(text: str | None) -> list[Any]:
    try:
        return [one for one in parse_yaml_documents(text, "a resource") if one is not None] if text else []
    except VramcastError:
        return []


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
