"""Which model a file is about, where no key of its format names one: its tags, its family, the name that it gives to its run.

A key that is named after a model (``model_family: llama3-8b``, ``tags.model: nemotron-3-nano-30b``) tells it, where all such keys
agree. The name of a run or of a folder for its output only suggests one: a fine-tune is called after its base, and not always.
"""

import re
from collections.abc import Mapping
from typing import Any

from vramcast.errors import VramcastError
from vramcast.reading.training.keys import OPEN
from vramcast.reading.training.settings import Settings
from vramcast.reading.training.shared_names import of_another_phase
from vramcast.untrusted import printable

_TELLS = re.compile(r"(?:(?:base|student|policy|llm|language)_)?model(?:_(?:family|type|tag|name|version|alias|key|variant))?")
_SUGGESTS = re.compile(
    r"tokenizer(?:_(?:name|path|id|name_or_path))?|hub_model_id|hf_repo_id|(?:run|experiment|exp|wandb_run|job|project)_name|"
    r"(?:output|save|checkpoint)_(?:dir|path)|wandb_(?:name|project)"
)
_SIZED = re.compile(r"(?<![a-z0-9.])\d+(?:[._]\d+)?[bm](?![a-z0-9])", re.I)
_LONGEST, _MOST, _MOST_PARTS = 160, 40, 8


def note(settings: Settings, keys: Mapping[str, Any], where: str) -> None:
    """Keep what keys of a file say of a model by the way."""
    for key, value in keys.items():
        parts = key.lower().replace("-", "_").split(".")
        if not isinstance(value, str) or len(value) > _LONGEST or not _SIZED.search(value) or OPEN.search(value):
            continue
        of_tokenizer = parts[-1] in ("path", "name", "name_or_path", "pretrained") and parts[-2:-1] == ["tokenizer"]
        named = re.search(r"[a-z]{3}", _SIZED.sub("", value), re.I)
        told = bool(named) and _TELLS.fullmatch(parts[-1]) is not None and not of_another_phase(parts[:-1])
        if len(settings.by_the_way) < _MOST and (told or of_tokenizer or _SUGGESTS.fullmatch(parts[-1])):
            settings.by_the_way.append((told, value, f"{where}: {key}"))


def told_by_the_way(settings: Settings) -> tuple[str, str] | None:
    """The model that keys named after one tell, with the key; None where they tell none, or several."""
    told = {value: because for tells, value, because in settings.by_the_way if tells and not value.startswith(("/", ".", "~"))}
    return next(iter(told.items())) if len(told) == 1 else None


def suggested(settings: Settings) -> str:
    """What the names of runs, folders and tokenizers suggest, as the end of a line; "" where they name no known model."""
    for _, value, because in settings.by_the_way:
        if found := _known_within(value):
            key = printable(because.rpartition(": ")[2])[:60]
            return f" ({key} says {printable(found)}: if that is the model, give it)"
    return ""


def _known_within(value: str) -> str | None:
    """The known model that some words of a name spell, the longest run of them (``sft_qwen3-8b-lora`` holds ``qwen3-8b``)."""
    from vramcast.models.reading import load, read_model

    if load(value) is not None:
        return value
    for part in reversed(value.rstrip("/").split("/")):
        words = re.split(r"([-_])", part)[: 2 * _MOST_PARTS]
        runs = [(start, end) for start in range(0, len(words), 2) for end in range(start + 1, len(words) + 1, 2)]
        for start, end in sorted(runs, key=lambda run: run[0] - run[1]):
            name = "".join(words[start:end])
            if not _SIZED.search(name):
                continue
            try:
                model = read_model(name, offline=True)
            except VramcastError:
                continue
            return next((str(one.value) for one in model.assumed if one.name == "model"), model.id)
    return None
