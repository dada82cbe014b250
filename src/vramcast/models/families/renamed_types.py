"""A ``model_type`` that no family has, of a class that one has: a decoder saved without its towers, or a name made up for a copy.

Only what the config itself says decides: its ``architectures``, and the class that its code beside the checkpoint names.
"""

from vramcast.ledger import Assumption
from vramcast.models.classes import model_class
from vramcast.models.config import Config
from vramcast.models.families.class_defaults import kind_of_architecture
from vramcast.models.families.registry import ALIASES, MODULES


def under_known_name(config: Config, kind: str) -> tuple[Config, tuple[Assumption, ...]]:
    """The config under the ``model_type`` of the family that reads it, and what was assumed; unchanged where none is known."""
    if model_class(kind).name in MODULES:
        from vramcast.models.families.wrapper import as_decoder

        return as_decoder(config, kind, nested=False), ()
    hyphenated = _hyphenated(kind)
    known = hyphenated or _of_architecture(config)
    if known not in MODULES and known not in ALIASES:
        return config, ()
    said = "another spelling of it" if hyphenated else f"{kind[:60]!r} is no known type; its architectures name that type's class"
    assumed = Assumption(name="model_type", value=known, because=said)
    return Config({**config.raw, "model_type": known}, config.path), (assumed,)


def _hyphenated(kind: str) -> str:
    """Transformers writes "xlm-roberta" and "qwen3_moe": the other sign is the same type."""
    others = (kind.replace("_", "-"), kind.replace("-", "_"))
    return next((other for other in others if other != kind and other in MODULES), "")


def _of_architecture(config: Config) -> str:
    """The type of the language model that ``architectures`` names, unless code beside the checkpoint names another class."""
    name = config.architecture
    beside = config.raw.get("auto_map")
    coded = [str(each) for key, each in beside.items() if "ForCausalLM" in key] if isinstance(beside, dict) else []
    return kind_of_architecture(name) if name and all(each.rpartition(".")[2] == name for each in coded) else ""
