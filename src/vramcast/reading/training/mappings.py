"""Training files as mappings: YAML, JSON and TOML through the bounded reader, charts' templates, what a ConfigMap carries."""

import re
from pathlib import Path
from typing import Any

from vramcast.errors import QuestionError
from vramcast.reading.training import shared
from vramcast.reading.training.keys import flat
from vramcast.units import MiB
from vramcast.untrusted import parse_json, parse_toml, parse_yaml, read_input

LARGEST_BYTES, LARGEST_NOTEBOOK = MiB, 8 * MiB  # a notebook carries its pictures
SCRIPTS = (".sh", ".bash", ".txt", ".sbatch", ".slurm", "")


def mapping_of(text: str, name: str) -> dict[str, Any] | None:
    """The keys and values of a YAML, JSON or TOML text; None for other text."""
    if name.endswith(SCRIPTS[:-1]) or text.startswith("#!"):
        return None
    if name.endswith(".toml") or re.match(r"\s*(?:#[^\n]*\n\s*)*\[[\w.]+\]\s*\n", text):
        return parse_toml(text, name or "the text")
    found = (
        parse_json(text, name or "the text", repeats=True)
        if text.lstrip().startswith("{") and not name.endswith((".yaml", ".yml"))
        else _yaml(text, name or "the text")
    )
    several = isinstance(found, dict) and (len(found) > 1 or (len(found) == 1 and isinstance(next(iter(found.values())), dict)))
    return found if several else None


def _yaml(text: str, what: str) -> Any:
    """A YAML text: a chart's template with its holders as variables, the file that a ConfigMap carries."""
    if "{{" in text:
        from vramcast.reading.templates import untemplated

        try:
            found = parse_yaml(text, what)
        except QuestionError:
            found = parse_yaml(untemplated(text), what)
    else:
        found = parse_yaml(text, what)
    data = found.get("data") if isinstance(found, dict) and found.get("kind") == "ConfigMap" else None
    for name, inner in data.items() if isinstance(data, dict) else ():
        if str(name).endswith((".yaml", ".yml")) and isinstance(inner, str) and shared.marks(flat(_mapping(inner, what))):
            return _mapping(inner, what)
    return found


def _mapping(text: str, what: str) -> dict[str, Any]:
    found = parse_yaml(text, what)
    return found if isinstance(found, dict) else {}


def contents(path: Path) -> str:
    most = LARGEST_NOTEBOOK if path.suffix == ".ipynb" else LARGEST_BYTES
    return read_input(path, most=most).decode("utf-8", "replace")


def parsed(path: Path, text: str) -> dict[str, Any]:
    """The mapping in a YAML, JSON or TOML file. Raises QuestionError saying where it is malformed."""
    if path.suffix == ".toml":
        found: Any = parse_toml(text, str(path))
    else:
        found = parse_json(text, str(path), repeats=True) if path.suffix == ".json" else _yaml(text, str(path))
    if not isinstance(found, dict):
        raise QuestionError(f"{path} holds {type(found).__name__} where keys and values were expected")
    return found


_OF_MODELS = frozenset({"architectures", "model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"})
_SHAPED = 4  # of them: a configuration of training that names a type or a vocabulary has fewer


def is_config_of_model(path: Path) -> bool:
    """Whether a JSON file is a model's own config.json, by the names that transformers writes there."""
    if path.suffix != ".json":
        return False
    found = parsed(path, contents(path))
    return len(_OF_MODELS & found.keys()) >= _SHAPED
