"""llama-server's presets: an INI file of models, each section with the server's own arguments without their dashes.

Source: llama.cpp common/preset.cpp (``--models-preset``): a section a model, ``[*]`` for all, keys as long or short arguments
or as ``LLAMA_ARG_`` variables.
"""

import re

from vramcast.reading.serving.commands import launch_of
from vramcast.reading.serving.environment import flag_of_variable
from vramcast.reading.serving.launch import Launch, LaunchContext
from vramcast.reading.serving.programs import Program

NAME = "presets of llama-server"
_SECTION = re.compile(r"\s*\[([^\]]{1,120})\]\s*(?:[#;].*)?")
_ENTRY = re.compile(r"\s*([A-Za-z][\w-]{0,60})\s*=\s*(.*?)\s*")
_MODELS = frozenset({"model", "m", "hf", "hf-repo", "hfr", "hf-file", "LLAMA_ARG_MODEL", "LLAMA_ARG_HF_REPO"})
_MOST = 20_000


def is_presets(text: str) -> bool:
    """Whether a text is an INI file with a section that names a model as llama-server does."""
    sections = _sections(text)
    return any(_MODELS & dict(entries).keys() for name, entries in sections.items() if name not in ("*", ""))


def read(text: str, held: LaunchContext) -> tuple[Launch, ...]:
    """One launch a section that names a model; what ``[*]`` says stands before the section's own."""
    sections = _sections(text)
    common = sections.pop("*", [])
    found: list[Launch] = []
    for name, entries in sections.items():
        own = {key for key, _ in entries}
        merged = [*((key, value) for key, value in common if key not in own), *entries]
        words = [_word(key, value) for key, value in merged]
        launch = launch_of(Program(engine="llama_cpp", words=tuple(words)), held.at(name), {}, name)
        found += [launch] if launch and launch.model else []
    return tuple(found)


def _word(key: str, value: str) -> str:
    """``c = 8192`` as -c=8192, ``cache-type-k = q8_0`` with two dashes, a variable's name as its flag."""
    flag = flag_of_variable(key) if key.startswith("LLAMA_ARG_") else ""
    dashes = "-" if not flag and len(key) <= 5 and key not in ("model", "alias", "jinja", "fit") else "--"
    return f"{dashes}{flag or key}={value}"


def _sections(text: str) -> dict[str, list[tuple[str, str]]]:
    """Keys and values by section, in order; lines that are neither are passed over."""
    found: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for line in text.splitlines()[:_MOST]:
        if section := _SECTION.fullmatch(line):
            name = section[1].strip()
            found.setdefault(name, [])
        elif entry := _ENTRY.fullmatch(re.split(r"\s[#;]", line)[0]):
            found.setdefault(name, []).append((entry[1], entry[2].strip("\"'")))
    return found
