"""The front door: MODEL, however a person writes it, to a ``Model``.

A path (folder, config.json, safetensors index or file, GGUF file) is read where it stands; an id is looked up in the bundled
catalogue, then on the hub, and with neither at hand its name is taken apart, as an assumption that the answer lists.

The catalogue holds well-known models, answered with no network, in this project's own derived format. ``rows.jsonl`` has one JSON
value per line, each shared by every id that needs it: architectures (a ``Model`` without what is an id's own), quantisation
schemes, then one ``Row`` per id. ``index.json`` gives the place of each id's row, aliases included, so that one answer reads
three slices and decodes nothing else. ``tools/build_catalogue.py`` writes both files from config.json files; nothing in them is
copied text.
"""

import re
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import msgspec

from vramcast.errors import MissingError, NamedElsewhereError, QuestionError
from vramcast.models.inventory import Model
from vramcast.untrusted import check_disk, existing_path

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(?::[\w.-]+)?")
_SURELY_MEANT = 3  # likeness of family and size or release: a slip of the pen rather than a model nobody here knows
_FILES = (".json", ".safetensors", ".gguf")
_OTHER_FILE = re.compile(r"\.(ya?ml|sh|bash|py|txt|log|toml|ipynb|conf|cfg|ini|service|env|md)$")


def read_model(what: str, *, offline: bool | None = None) -> Model:
    """The model that ``what`` names.

    ``-`` reads a config.json from standard input. ``offline``: never ask the hub; None follows ``HF_HUB_OFFLINE``. Raises
    QuestionError for a name that nothing knows (with the nearest ones) or a file that cannot be read, and MissingError when
    only the network could tell.
    """
    if what == "-":
        return _by_standard_input()
    try:
        return _by_path(what) if is_path(what) else _by_id(what, offline)
    except NamedElsewhereError as named:
        whole: Model = named.build(lambda part: read_model(part, offline=offline))
        return msgspec.structs.replace(whole, id=what)


def _by_path(what: str) -> Model:
    from vramcast.models.sources.local import read_path

    check_disk(what)
    return read_path(existing_path(what) or Path(what))


def _by_id(what: str, offline: bool | None) -> Model:
    return load(what) or (_by_hub(what, offline) if _HUB_ID.fullmatch(what) else _by_name(what))


def _unknown(what: str, *, hint: str) -> QuestionError:
    """The error for a name that nothing knows, with the best known models that are like it."""
    from vramcast.models.reading.known import closed, suggestions

    if closed(what):
        return QuestionError(
            f"the weights of {what[:40]!r} are not published, so nobody can load them: ask for an open model of that class, "
            "for example openai/gpt-oss-120b or deepseek-ai/DeepSeek-V3.1"
        )
    if _OTHER_FILE.search(what.lower()):
        return QuestionError(f"there is no file {what[:80]!r} here, and no model is called so: check the path")
    near = suggestions(what, _names())
    offer = f"did you mean {', '.join(near)}?" if near else "vramcast models --find TEXT lists the known ones"
    return QuestionError(f"unknown model {what[:80]!r}: {offer} {hint}")


def _by_standard_input() -> Model:
    """The model of a config.json read from standard input."""
    import sys

    from vramcast.models.sources.described import from_config
    from vramcast.models.sources.strict import LARGEST_CONFIG_BYTES, parse_json

    where = "standard input"
    raw = parse_json(sys.stdin.buffer.read(LARGEST_CONFIG_BYTES + 1), where)
    return from_config(raw, name="stdin", where=where)


def is_path(what: str) -> bool:
    """Whether this is a file or folder rather than an id: it exists with a model in it, or is written as a path."""
    if what.lower().endswith(_FILES) or what.startswith((".", "/", "~")):
        return True
    if what.lower() in read_index().models and not Path(what).exists():
        return False
    path = existing_path(what)
    return path is not None and path.is_dir() and any(child.suffix in _FILES for child in path.iterdir())


def _by_hub(what: str, offline: bool | None) -> Model:
    """The hub's answer; where it cannot be had, what the name says, or the nearest names, or what is missing."""
    from vramcast.models.reading.by_name import by_name
    from vramcast.models.sources.http import AbsentError
    from vramcast.models.sources.hub import read_hub

    try:
        return read_hub(what, offline=offline)
    except AbsentError as absent:
        raise _unknown(what, hint=f"({absent})") from absent
    except MissingError as missing:
        if found := by_name(what, why=str(missing).partition(" (")[0]):
            return found
        from vramcast.models.reading.known import suggestions

        if suggestions(what, _names(), least=_SURELY_MEANT):
            raise _unknown(what, hint=f"({missing})") from missing
        raise


def _by_name(what: str) -> Model:
    from vramcast.models.reading.by_name import by_name, named_as
    from vramcast.models.reading.known import in_english, short_name
    from vramcast.models.reading.typed import current

    english = in_english(what)
    meant = short_name(english)
    if meant and (model := load(meant)):
        return named_as(model, what, f"{what!r} is short for {meant}")
    found, typed = by_name(english), current(english)
    if typed and (model := load(typed[0])) and _is_rather(model, found):
        others = f" (or {', '.join(typed[1])})" if typed[1] else ""
        return named_as(model, what, f"{what!r} is read as {typed[0]}, the current one of that family and size{others}")
    if found:
        return msgspec.structs.replace(found, id=what)
    raise _unknown(what, hint="(or a hub id with network, a folder, a config.json or a GGUF file)")


def _is_rather(model: Model, found: Model | None) -> bool:
    """Whether the maker's current model is meant where a name alone gives another one: an older release, or somebody's copy."""
    if found is None:
        return True
    read_as = next((str(a.value) for a in found.assumed if a.name == "model"), found.id).lower()
    publisher = read_as.partition("/")[0]
    return publisher != model.id.lower().partition("/")[0] or (model.parameters != found.parameters and read_as.endswith("v0.1"))


def _names() -> list[str]:
    return [*known_ids(), *read_index().aliases]


Place = tuple[int, int]
"""Offset and length in bytes of one line of rows.jsonl."""

FOLDER = Path(__file__).parent


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is an id's own: where its shapes are, how far they can be trusted, where its config was seen.

    ``trust``: verbatim (the publisher's own file), from-docs (assembled from documented dimensions), class-default (the
    framework's default, checked to be that checkpoint), documented (typed here from public figures).
    """

    id: str
    shapes: Place
    trust: str
    source: str
    positions: int = 0
    dtype: str = "bfloat16"
    architecture: str = ""
    head_stored: bool = False
    quantization: Place | None = None


class Alias(msgspec.Struct, frozen=True, array_like=True):
    """Another id with the shapes of a catalogued one."""

    row: Place
    because: str


class Index(msgspec.Struct, frozen=True):
    """Lower-case id to the place of its row; ids that only share another's shapes are under ``aliases``."""

    models: dict[str, Place]
    aliases: dict[str, Alias]


@lru_cache(maxsize=64)
def load(name: str) -> Model | None:
    """The model of that id or alias, letter case ignored, or None; the same value again for the same name."""
    index, key = read_index(), name.lower()
    if key in index.models:
        return model_of(row_at(index.models[key]))
    return _by_alias(name, index.aliases[key]) if key in index.aliases else None


def _by_alias(name: str, alias: Alias) -> Model:
    from vramcast.models.reading.by_name import under_name

    row = row_at(alias.row)
    return under_name(name, row, f"{name} has the shapes of {row.id}: {alias.because}")


@cache
def read_index() -> Index:
    """Every id and alias with its place."""
    return msgspec.json.decode((FOLDER / "index.json").read_bytes(), type=Index)


def known_ids() -> list[str]:
    """Every catalogued id as its publisher writes it, in alphabetical order; aliases are not listed."""
    return sorted((row_at(place).id for place in read_index().models.values()), key=str.lower)


def row_at(place: Place) -> Row:
    """The row that stands there."""
    return msgspec.json.decode(_slice(place), type=Row)


def model_of(row: Row) -> Model:
    """The model a row describes."""
    shapes = msgspec.json.decode(_slice(row.shapes), type=Model)
    quantization: dict[str, Any] | None = msgspec.json.decode(_slice(row.quantization)) if row.quantization else None
    return msgspec.structs.replace(
        shapes,
        id=row.id,
        architecture=row.architecture,
        positions=row.positions,
        dtype=row.dtype,
        head_stored=row.head_stored,
        quantization=quantization,
        trust=row.trust,
        loaded_from=f"catalogue ({row.source})",
    )


def _slice(place: Place) -> bytes:
    with (FOLDER / "rows.jsonl").open("rb") as file:
        file.seek(place[0])
        return file.read(place[1])
