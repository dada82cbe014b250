"""config.json -> Model: one file per family, registered in a table by ``model_type`` (or architecture when there is none).

A family module has ``read(config: Config, *, prefix: str = ...) -> Model``; it also reads a nested ``text_config``, whose
tensors are then named under ``prefix``. Only the module of the model at hand is imported.
"""

import importlib
from collections.abc import Mapping
from typing import Any, Protocol, cast

from msgspec.structs import replace

from vramcast.errors import ConfigError, UnmodelledError
from vramcast.ledger import Assumption
from vramcast.models.classes import model_class
from vramcast.models.config import Config
from vramcast.models.families.class_defaults import completed, fields_of, kind_of_architecture
from vramcast.models.families.damage import checked
from vramcast.models.families.heads import headed
from vramcast.models.families.registry import ALIASES, ARCHITECTURES, FORMER, MODULES, OWN_HEADS, REMOTE
from vramcast.models.inventory import Model
from vramcast.models.rotary import with_tables


class Reader(Protocol):
    """What each family module offers as ``read``: text families take the ``prefix`` their tensors are named under."""

    def __call__(self, config: Config, **prefix: str) -> Model: ...


def model_types() -> tuple[str, ...]:
    """Every ``model_type`` that a family reads; those of ``derived.names()`` are read from a table of shapes."""
    return tuple(sorted(MODULES.keys() | ALIASES.keys()))


def read_config(raw: Mapping[str, Any], *, path: str = "config.json") -> Model:
    """The model described by the parsed JSON of a config.json.

    Raises ConfigError for a missing or impossible field and UnmodelledError for a ``model_type`` without a family.
    """
    config, assumed = _read_as(Config(_in_todays_words(raw, path), path))
    kind = kind_of(config)
    model = with_tables(_reader(config, kind)(completed(config, kind)), config.raw)
    whole = model if MODULES.get(kind, "derived") in OWN_HEADS else headed(model, config)
    return checked(_saying(whole, config, kind, assumed), config)


def _saying(model: Model, config: Config, kind: str, assumed: tuple[Assumption, ...]) -> Model:
    """The model with what was assumed of its class, whether its count was ever held against anything, and whose code runs it."""
    doubt = model_class(kind).unverified
    doubts = (*((f"{kind}: {doubt}",) if doubt else ()), *_other_code(config, kind))
    if not assumed and not doubts:
        return model
    return replace(model, assumed=(*model.assumed, *assumed), unmodelled=(*model.unmodelled, *doubts))


def _other_code(config: Config, kind: str) -> tuple[str, ...]:
    """Code beside the checkpoint that builds another class than ``architectures`` says, of a type that transformers has.

    jina-embeddings-v3 is an XLM-RoBERTa by its type and ``architectures``, and adds adapters in a class of its own.
    """
    beside, named = config.raw.get("auto_map"), config.architecture
    if not named or not isinstance(beside, Mapping) or not fields_of(kind):
        return ()
    built = {str(each).rpartition(".")[2] for key, each in beside.items() if str(key).startswith("AutoModel")}
    if not built or named in built:
        return ()
    return (f"code beside the checkpoint builds {min(built)[:60]}; counted is {named[:60]}, and nothing that it adds",)


def _read_as(config: Config) -> tuple[Config, tuple[Assumption, ...]]:
    """The config under the name of a class that is known, where its own name is another of the same class; what that assumes.

    A part of a larger model saved alone ("qwen3_vl_text"), or a ``model_type`` that somebody made up for a known class.
    """
    kind = kind_of(config)
    if not kind or kind in MODULES or _derived(kind):
        return config, ()
    from vramcast.models.families.renamed_types import under_known_name

    return under_known_name(config, kind)


def _in_todays_words(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Configs without a ``model_type``, and those of some classes, may be of a form before transformers'."""
    kind = raw.get("model_type") if isinstance(raw, Mapping) else ""
    if kind in FORMER:
        from vramcast.models.families import spellings

        return spellings.translated(raw, path)
    if kind in REMOTE:
        from vramcast.models.families import remote_spellings

        return remote_spellings.translated(raw, path)
    return raw


def read_text(config: Config, *, prefix: str) -> Model:
    """The text decoder of a nested config, its tensors named under ``prefix`` ("language_model.model.").

    Fields absent from a nested config are the class's defaults, as transformers reads it.
    """
    kind = kind_of(config)
    reader = _reader(config, kind)
    if "prefix" not in getattr(reader, "__annotations__", ()):
        raise ConfigError(f"{config.path}: model_type {kind[:80]!r} is a whole model; a text decoder was expected here")
    return reader(completed(config, kind, nested=True), prefix=prefix)


def kind_of(config: Config) -> str:
    """The registered name: what the architecture stands for where that decides, else ``model_type``, aliases resolved."""
    architecture = config.architecture
    kind = ARCHITECTURES.get(architecture) or config.text("model_type", default="")
    return ALIASES.get(kind, kind) or kind_of_architecture(architecture)


def _derived(kind: str) -> str | None:
    """The module of classes whose shapes were derived, if that one's were."""
    from vramcast.models.families.derived import names

    return "derived" if kind in names() else None


def _reader(config: Config, kind: str) -> Reader:
    module = MODULES.get(kind) or _derived(kind)
    if not kind:
        raise UnmodelledError(
            f"{config.path} has no model_type and no architecture known here: add the model_type of the class it is read by, "
            "or point at its safetensors files, whose headers are exact"
        )
    if module is None:
        raise UnmodelledError(
            f"{config.path}: model_type {kind[:80]!r} has no family here: install the [torch] extra to build it "
            "with transformers on the meta device, or point at its safetensors files, whose headers are exact; "
            'where its layers are those of a known class, say so in a copy of the config ("model_type": "llama")'
        )
    return cast(Reader, importlib.import_module(f"vramcast.models.families.{module}").read)
