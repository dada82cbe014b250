"""The words of the tools as JSON Schema: names and types of the questions' own words, described as ``--help`` does."""

import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from vramcast.asking.plan import PlanServeWords
from vramcast.asking.plan_training import PlanTrainWords
from vramcast.asking.serving import ServingWords
from vramcast.asking.training import TrainingWords
from vramcast.asking.visitor import LONGEST_VALUE, PLAN_WORDS, SERVING_WORDS, TRAINING_WORDS

Helps = Mapping[str, Mapping[str, str]]
"""Descriptions of words by command: ``serve``, ``train``, ``plan serve`` and ``plan train``."""

LONGEST_TEXT = 1_000_000
_MOST_ITEMS = 64
_JSON = {int: "integer", float: "number", bool: "boolean"}
MODEL = {
    "type": "string", "maxLength": LONGEST_VALUE,
    "description": "A model's name: a hub id (Qwen/Qwen2.5-7B-Instruct), an Ollama tag (llama3.1:8b) or a GGUF repository.",
}  # fmt: skip
GPU = {
    "type": "string", "maxLength": LONGEST_VALUE, "description": "The card, and how many: RTX 4090, H100x8, M3 Max 64GB.",
}  # fmt: skip
_FLAGS = {
    "type": "string", "maxLength": LONGEST_VALUE,
    "description": "The engine's own flags as its users type them: --gpu-memory-utilization 0.95 --max-num-seqs 64.",
}  # fmt: skip
_CONFIG = {
    "type": "object",
    "description": "The model's own config.json, where its name is unknown here; model is then left out.",
}


def question_schema(kind: str, helps: Helps) -> dict[str, Any]:
    """The input of ``serve`` or ``train``."""
    words, hints = (SERVING_WORDS, ServingWords) if kind == "serve" else (TRAINING_WORDS, TrainingWords)
    properties = {"model": MODEL, **_properties(hints, words, helps[kind]), "config": _CONFIG}
    return _object({**properties, "flags": _FLAGS} if kind == "serve" else properties)


def plan_schema(helps: Helps) -> dict[str, Any]:
    """The input of ``plan``: the words of both tasks; each description says of which one it is."""
    task = {"type": "string", "enum": ["serve", "train"], "description": "What to plan: a deployment or a training run."}
    properties: dict[str, Any] = {"task": task, "model": MODEL}
    for kind, hints in (("serve", PlanServeWords), ("train", PlanTrainWords)):
        for name, own in _properties(hints, PLAN_WORDS[kind], helps[f"plan {kind}"]).items():
            told = f"[{kind}] {own['description']}"
            before = properties.get(name)
            properties[name] = {**own, "description": f"{before['description']} {told}" if before else told}
    return _object(properties, required=("task", "model"))


def text_schema(about: str, **more: Any) -> dict[str, Any]:
    """The input of a tool that takes a text."""
    text = {"type": "string", "minLength": 1, "maxLength": LONGEST_TEXT, "description": about}
    return _object({"text": text, "gpu": GPU, **more}, required=("text",))


def short_text(about: str) -> dict[str, Any]:
    """A property that holds a name."""
    return {"type": "string", "maxLength": LONGEST_VALUE, "description": about}


def _object(properties: dict[str, Any], *, required: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _properties(hints: type, words: frozenset[str], helps: Mapping[str, str]) -> dict[str, Any]:
    """The words in the order in which the question has them."""
    types_ = typing.get_type_hints(hints)
    return {name: {**_type(types_[name]), "description": _about(name, helps)} for name in types_ if name in words}


def _about(name: str, helps: Mapping[str, str]) -> str:
    return " ".join(helps.get(name, "").split()) or f"As --{name.replace('_', '-')} of the command line."


def _type(hint: Any) -> dict[str, Any]:
    """What a word takes; of text and number either."""
    parts = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    forms = [_form(part) for part in parts if part is not type(None)]
    return forms[0] if len(forms) == 1 else {"anyOf": forms}


def _form(part: Any) -> dict[str, Any]:
    if typing.get_origin(part) is Sequence:
        return {"type": "array", "items": {"type": "string", "maxLength": LONGEST_VALUE}, "maxItems": _MOST_ITEMS}
    return {"type": _JSON[part]} if part in _JSON else {"type": "string", "maxLength": LONGEST_VALUE}
