"""Ollama by names of settings: ``ollama_model: qwen3:8b``, ``ollama_pull_models: [...]`` of a role's or a platform's values.

The other names count as the server's own variables: ``ollama_num_parallel`` is OLLAMA_NUM_PARALLEL.
"""

import re
from typing import Any

from vramcast.reading.serving.commands import launch_of
from vramcast.reading.serving.environment import variables_of_engine
from vramcast.reading.serving.launch import Launch, LaunchContext
from vramcast.reading.serving.programs import Program

NAME = "settings of Ollama"
_MODELS = re.compile(
    r"ollama_(?:(?:default|pull|preload|load|base|chat|llm|required)_)?models?(?:_(?:name|list|to_pull|pull|id))?"
)
_TAG = re.compile(r"[a-z0-9][\w.-]{1,60}(?:/[\w.-]{1,90})?(?::[\w.-]{1,60})?")
_MOST, _DEEPEST = 100, 4


def read(document: Any, held: LaunchContext) -> tuple[Launch, ...]:
    """One launch a model that the settings name; () where none is Ollama's."""
    found: list[Launch] = []
    for place, one in _mappings(document, "", 0):
        plain = {re.sub(r"[-.]", "_", str(key)).lower(): value for key, value in one.items()}
        tags = dict.fromkeys(tag for key, value in plain.items() if _MODELS.fullmatch(key) for tag in _tags(value))
        shown = {key.upper(): str(value) for key, value in plain.items() if key.startswith("ollama_") and _is_plain(value)}
        foreign = variables_of_engine("ollama", shown).unread  # names of the role or the platform, not the server's
        shown = {key: value for key, value in shown.items() if key not in foreign}
        for tag in list(tags)[:_MOST]:
            launch = launch_of(Program(engine="ollama", words=(tag,)), held.at(place), shown, tag)
            found += [launch] if launch else []
    return tuple(found)


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool) and "{{" not in str(value)


def _tags(value: Any) -> list[str]:
    entries = value if isinstance(value, list) else [value]
    named = [one.get("name") if isinstance(one, dict) else one for one in entries[:_MOST]]
    return [one for one in named if isinstance(one, str) and _TAG.fullmatch(one)]


def _mappings(value: Any, place: str, depth: int) -> list[tuple[str, dict[str, Any]]]:
    if not isinstance(value, dict | list) or depth > _DEEPEST:
        return []
    inner = value.items() if isinstance(value, dict) else enumerate(value[:_MOST])
    own = [(place, value)] if isinstance(value, dict) else []
    return own + [more for key, child in inner for more in _mappings(child, f"{place}.{key}".lstrip("."), depth + 1)]
