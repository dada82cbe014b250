"""The front door: MODEL, however a person writes it, to a ``Model``.

A path (folder, config.json, safetensors index or file, GGUF file) is read where it stands; an id is looked up in the bundled
catalogue, then on the hub, and with neither at hand its name is taken apart, as an assumption that the answer lists.
"""

import re
from pathlib import Path

from vramcast.errors import MissingError, QuestionError
from vramcast.models import catalogue
from vramcast.models.inventory import Model
from vramcast.untrusted import check_disk, existing_path

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(?::[\w.-]+)?")
_SURELY_MEANT = 3  # likeness of family and size or release: a slip of the pen rather than a model nobody here knows
_FILES = (".json", ".safetensors", ".gguf")


def read_model(what: str, *, offline: bool | None = None) -> Model:
    """The model that ``what`` names.

    ``-`` reads a config.json from standard input. ``offline``: never ask the hub; None follows ``HF_HUB_OFFLINE``. Raises
    QuestionError for a name that nothing knows (with the nearest ones) or a file that cannot be read, and MissingError when
    only the network could tell.
    """
    if what == "-":
        return _by_standard_input()
    if is_path(what):
        from vramcast.models.sources.local import read_path

        check_disk(what)
        return read_path(existing_path(what) or Path(what))
    return catalogue.load(what) or (_by_hub(what, offline) if _HUB_ID.fullmatch(what) else _by_name(what))


def _unknown(what: str, *, hint: str) -> QuestionError:
    """The error for a name that nothing knows, with the best known models that are like it."""
    from vramcast.models.catalogue.known import closed, suggestions

    if closed(what):
        return QuestionError(
            f"the weights of {what[:40]!r} are not published, so nobody can load them: ask for an open model of that class, "
            "for example openai/gpt-oss-120b or deepseek-ai/DeepSeek-V3.1"
        )
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
    if what.lower() in catalogue.read_index().models and not Path(what).exists():
        return False
    path = existing_path(what)
    return path is not None and path.is_dir() and any(child.suffix in _FILES for child in path.iterdir())


def _by_hub(what: str, offline: bool | None) -> Model:
    """The hub's answer; where it cannot be had, what the name says, or the nearest names, or what is missing."""
    from vramcast.models.catalogue.by_name import by_name
    from vramcast.models.sources.http import AbsentError
    from vramcast.models.sources.hub import read_hub

    try:
        return read_hub(what, offline=offline)
    except AbsentError as absent:
        raise _unknown(what, hint=f"({absent})") from absent
    except MissingError as missing:
        if found := by_name(what, why=str(missing)):
            return found
        from vramcast.models.catalogue.known import suggestions

        if suggestions(what, _names(), least=_SURELY_MEANT):
            raise _unknown(what, hint=f"({missing})") from missing
        raise


def _by_name(what: str) -> Model:
    from vramcast.models.catalogue.by_name import by_name, named_as
    from vramcast.models.catalogue.known import in_english, short_name

    english = in_english(what)
    meant = short_name(english)
    if meant and (model := catalogue.load(meant)):
        return named_as(model, what, f"{what!r} is short for {meant}")
    if found := by_name(english, why="it is not a hub id"):
        return found
    raise _unknown(what, hint="(or a hub id with network, a folder, a config.json or a GGUF file)")


def _names() -> list[str]:
    return [*catalogue.known_ids(), *catalogue.read_index().aliases]
