"""What a config class assumes when a field is absent, and the other spellings it accepts.

``class_defaults.json`` holds the shape-changing defaults of each class of transformers 5.23, generated from the classes. A
complete model says its own sizes, so those are filled in only for a nested config, written as a difference from its class.
"""

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from vramcast.models.config import Config

ESSENTIAL = {
    "hidden_size",
    "n_embd",
    "d_model",
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_attention_heads",
    "n_head",
    "n_heads",
    "intermediate_size",
    "moe_intermediate_size",
    "vocab_size",
}


class ClassFacts(msgspec.Struct, frozen=True):
    """One config class: its shape-changing defaults, alias -> field, and the language model it configures ("" = none)."""

    defaults: dict[str, Any]
    aliases: dict[str, str]
    architecture: str = ""


_NOTHING = ClassFacts(defaults={}, aliases={})


def completed(config: Config, kind: str, *, nested: bool = False) -> Config:
    """The config with its class's spellings and defaults; the sizes that make a model are filled in only when ``nested``.

    Either spelling may be the one that was saved: transformers 5 writes Qwen3-MoE's ``num_experts`` as ``num_local_experts``.
    ``model_type`` becomes the name the model is registered under. A field that is present and null stays null.
    """
    facts = _facts(kind)
    raw = {**config.raw, "model_type": kind}
    for alias, field in facts.aliases.items():
        if raw.get(alias) is not None:
            raw.setdefault(field, raw[alias])
        elif raw.get(field) is not None:
            raw.setdefault(alias, raw[field])
    for field, value in facts.defaults.items():
        if nested or field not in ESSENTIAL:
            raw.setdefault(field, value)
    return Config(raw, config.path)


def fields_of(kind: str) -> frozenset[str]:
    """The fields that a class has a default for."""
    return frozenset(_facts(kind).defaults)


def kind_of_architecture(name: str) -> str:
    """The ``model_type`` whose language model is the class ``name``; "" when none is or several are."""
    kinds = [kind for kind in _rows() if _facts(kind).architecture == name]
    return kinds[0] if len(kinds) == 1 else ""


@cache
def _facts(kind: str) -> ClassFacts:
    row = _rows().get(kind)
    return msgspec.json.decode(row, type=ClassFacts) if row else _NOTHING


@cache
def _rows() -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(Path(__file__).with_suffix(".json").read_bytes(), type=dict[str, msgspec.Raw])
