"""The configs of models that programs name, and where none is at hand the files of a repository that stands for them.

``configs.jsonl`` holds the fields of public config.json files that shape a model, one line for each config with the ids that
share it; ``folders`` are the parts of a diffusers repository. Copies and quantised forms are known by how published models are
named (``models/names.py``).
"""

from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

from vramcast.models.names import Name, take_apart
from vramcast.tracing.published.remote_classes import remote_config


class Published(NamedTuple):
    """The config of a name, or those of its folders, and whose it is: the name itself or one that means the same."""

    config: dict[str, Any]
    folders: dict[str, dict[str, Any]]
    source: str

    def part(self, folder: str) -> dict[str, Any] | None:
        """The config in a folder of the repository, "" for its own."""
        return self.folders.get(folder) if folder else self.config or None


def published(name: str) -> Published | None:
    """What is known of a model by its id, by that without its organisation, or by that without its form and scheme."""
    name = name.rstrip("/")
    last = name.lower().rpartition("/")[2]
    found = _by_id().get(name.lower()) or _by_last_part().get(last)
    if found is not None:
        return found
    parts = take_apart(name)
    alike = _by_key().get(parts.key)
    if alike:
        return _quantised(_nearest(alike, parts), parts.quantization)
    remote = remote_config(name)
    return Published(remote, {}, str(remote["stands_for"])) if remote else None


def is_published(folder: str) -> bool:
    """Whether a folder is called exactly as a published model is, without its organisation."""
    return folder.lower() in _by_last_part()


def _nearest(alike: list[Published], parts: Name) -> Published:
    """Of several with one core the one with as many positions, then with the most of the same variants."""

    def distance(found: Published) -> tuple[bool, int]:
        own = take_apart(found.source)
        return own.positions != parts.positions, len(own.variants ^ parts.variants)

    return min(alike, key=distance)


def _quantised(found: Published, scheme: dict[str, Any] | None) -> Published:
    """The config with what a name says of its weights; bitsandbytes' copies compute in the type that the whole model is in."""
    if scheme is None:
        return found
    in_bits = scheme.get("load_in_4bit") and {"bnb_4bit_compute_dtype": str(found.config.get("torch_dtype", "bfloat16"))}
    return found._replace(config=found.config | {"quantization_config": scheme | (in_bits or {})})


@cache
def _by_id() -> dict[str, Published]:
    known: dict[str, Published] = {}
    for line in files(__package__).joinpath("configs.jsonl").read_text().splitlines():
        row = msgspec.json.decode(line)
        config = row["config"]
        for name in row["ids"]:
            folders = config.get("folders", {})
            known[name.lower()] = Published({} if folders else config, folders, name)
    return known


@cache
def _by_last_part() -> dict[str, Published]:
    """The same by the name without its organisation, as old names and copies have it."""
    return {name.rpartition("/")[2]: found for name, found in _by_id().items()}


@cache
def _by_key() -> dict[str, list[Published]]:
    """The same by the core of the name."""
    alike: dict[str, list[Published]] = {}
    for found in _by_id().values():
        alike.setdefault(take_apart(found.source).key, []).append(found)
    return alike
