"""A model by its path on another machine: what the path's own parts name, where nothing lies there.

``/models/Qwen3.6-27B``, ``~/.cache/huggingface/hub/models--Qwen--Qwen2.5-7B/snapshots/1a2b``, ModelScope's ``Qwen2___5-7B`` and
checkpoints below such a folder. A part that names no known model is not guessed at.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from vramcast.errors import VramcastError
from vramcast.untrusted import existing_path

if TYPE_CHECKING:
    from vramcast.models.inventory import Model

# Parts of a path that say where a model lies or how far it was trained, never which it is.
_PLACE = re.compile(
    r"(?:models?|weights?|checkpoints?|ckpts?|hf|hf_?models?|huggingface|hub|cache|snapshots?|actor|policy|final|latest|last|best|merged|output|outputs?|"
    r"sft|dpo|grpo|ppo|rlhf|q?lora|full|adapters?|runs?|exports?|mnt|data|workspace|pretrained(?:_models?)?|llms?|base|main|master|[0-9a-f]{7,64}|(?:checkpoint|global_?step|step|iter|epoch)s?[-_]?\d*|v\d+|\d+)",
    re.I,
)
# Folders that runs write to and projects keep models in: no organisation of the hub has one of these names.
_FOLDERS = re.compile(
    r"(?:\.?models?|ckpts?|checkpoints?|outputs?|out|saves?|results?|weights?|exports?|work_?dirs?|runs?|experiments?|artifacts?|"
    r"(?:pretrained|trained|merged|hf|base|local|finetuned?)_?(?:models?|weights?|ckpts?)|llm_?weights|assets|data|to_be_filled|todo|tbd|"
    r"fixme|change_?me|your_\w+)",
    re.I,
)
_SIZE = re.compile(r"(?<![a-z0-9.])\d+(?:\.\d+)?[bm](?![a-z0-9])", re.I)
_HOMES = ("home", "users")  # the part behind them is a person's name


def is_elsewhere(what: str) -> bool:
    """Whether this is written as a path of which nothing lies on this machine."""
    first, slash, _ = what.partition("/")
    is_path = what.startswith(("/", "./", "~", "..", "$")) or what.count("/") > 1 or bool(slash and _FOLDERS.fullmatch(first))
    is_path = is_path or re.match(r"[A-Za-z]:[\\/]", what) is not None
    return is_path and not existing_path(what)


def known_name(path: str) -> str | None:
    """The known model that the last parts of a path name, as an id or a name; None where they name none."""
    from vramcast.models.reading import load, read_model

    for name in _names(path):
        if load(name) is not None:
            return name
        if "/" in name:
            continue
        try:
            model = read_model(name, offline=True)
        except VramcastError:
            continue
        return None if family_alone(name, model) else name
    return None


def family_alone(name: str, model: "Model") -> bool:
    """Whether the name of a folder is that of a family (``qwen3``): which of its sizes lies there, it does not say."""
    taken = next((str(one.value) for one in model.assumed if one.name == "model"), "")
    return bool(_SIZE.search(taken.rpartition("/")[2])) and not _SIZE.search(name)


def _names(path: str) -> Iterator[str]:
    """The names that a path's parts may be, its end first: ``org/name``, then the name alone."""
    parts = [part for part in path.replace("\\", "/").rstrip("/").split("/") if part]
    for place in range(len(parts) - 1, -1, -1):
        part = parts[place].replace("___", ".")
        if cached := re.fullmatch(r"models--([\w.-]+)--([\w.-]+)", part):
            yield f"{cached[1]}/{cached[2]}"
            return
        if _PLACE.fullmatch(part):
            continue
        above = parts[place - 1].lower() if place else ""
        if re.search(r"\d", part) and above not in _HOMES:
            if above:
                yield f"{parts[place - 1]}/{part}"
            yield part
        return  # what stands above the model's own folder names a person or a project
