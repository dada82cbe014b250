"""The configs of models that programs name, and where none is at hand the files of a repository that stands for them.

``configs.jsonl`` holds the fields of public config.json files that shape a model, one line for each config with the ids that
share it; ``folders`` are the parts of a diffusers repository. Where a name is not among them the bundled catalogue may
determine one.
"""

from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

from vramcast.errors import VramcastError
from vramcast.tracing.configs import derived

_FORMS = ("-instruct", "-chat", "-it", "-hf", "-base")
_FOUR_BIT = "-bnb-4bit"  # how unsloth's copies of a model are called
_NF4 = {
    "quant_method": "bitsandbytes",
    "load_in_4bit": True,
    "bnb_4bit_quant_type": "nf4",
    "bnb_4bit_compute_dtype": "bfloat16",
    "bnb_4bit_use_double_quant": True,
}


class Published(NamedTuple):
    """The config of a name, or those of its folders, and whose it is: the name itself or one that means the same."""

    config: dict[str, Any]
    folders: dict[str, dict[str, Any]]
    source: str

    def part(self, folder: str) -> dict[str, Any] | None:
        """The config in a folder of the repository, "" for its own."""
        return self.folders.get(folder) if folder else self.config or None


def published(name: str) -> Published | None:
    """What is known of the model of that name; None where nothing is."""
    if name.lower().endswith(_FOUR_BIT):
        whole = published(name[: -len(_FOUR_BIT)])
        return whole and whole._replace(config=whole.config | {"quantization_config": _NF4})
    last = name.lower().rpartition("/")[2]
    known = _by_last_part()
    found = _by_id().get(name.lower()) or known.get(last) or known.get(_stripped(last))
    return found or _by_catalogue(name)


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
    """The same by the name without its organisation, as old names and copies have it; then without what tells the form."""
    plain = {name.rpartition("/")[2]: found for name, found in _by_id().items()}
    return {_stripped(name): found for name, found in plain.items()} | plain


def _stripped(last: str) -> str:
    shorter = next((last.removesuffix(form) for form in _FORMS if last.endswith(form)), last)
    return shorter if shorter == last else _stripped(shorter)


def _by_catalogue(name: str) -> Published | None:
    """A config that the inventory of a catalogued model determines."""
    from vramcast.models.reading import load

    try:
        model = load(name)
        return None if model is None else Published(derived(model), {}, model.id)
    except VramcastError:
        return None
