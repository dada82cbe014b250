"""Releases that a script, a program or a notebook pins (``pip install transformers==4.40.0``), and those that its names tell."""

import re
from collections.abc import Iterable

from vramcast.reading.training.settings import Settings

_INSTALLS = re.compile(
    r"^[^#\n]*?\b(?:pip3?|uv pip|uv add)[ \t]+(?:install[ \t]+)?(?:[^\n\\]|\\\n)*|^#[ \t]+\"[^\"\n]+\",?[ \t]*$", re.M
)
_PINNED = re.compile(r"(?<![\w./-])(transformers|trl|unsloth)(?:\[[\w,-]*\])?(?:[ \t]*==[ \t]*(\d+(?:\.\d+){1,3})|(?![\w=-]))")
_FROM_SOURCE = re.compile(r"git\+\S*/(transformers|trl|unsloth)\b")


def pinned(text: str) -> dict[str, str]:
    """The release of each library that the installing lines of a text pin last; one that a later line installs anew is free."""
    found: dict[str, str] = {}
    for line in (match[0] for match in _INSTALLS.finditer(text)):
        for name in _FROM_SOURCE.findall(line):
            found.pop(name, None)
        for name, release in _PINNED.findall(_FROM_SOURCE.sub("", line)):
            if release:
                found[name] = release
            elif re.search(r"\s(?:-U|--upgrade)\b", line):
                found.pop(name, None)
    return found


def note_pins(settings: Settings, text: str, where: str) -> None:
    """Keep the pinned releases for the framework that the file turns out to be of."""
    for name, release in pinned(text).items():
        settings.put(f"release.{name}", release, f"{where}: {name}=={release}")


def settle_release(settings: Settings) -> None:
    """The release of the file's framework: Unsloth's month, TRL's own or transformers' that it runs on."""
    framework = str(settings.get("framework"))
    own = {"trl": ("trl", "transformers"), "hf_trainer": ("transformers",), "unsloth": ("unsloth",)}.get(framework, ())
    told = next((f"release.{name}" for name in own if settings.get(f"release.{name}")), None)
    if told is not None:
        settings.put("release", settings.get(told), settings.because[told])
    settings.drop(*(name for name in settings.values if name.startswith("release.")))


def note_names(settings: Settings, keys: Iterable[str], where: str) -> None:
    """The release that a program's own words tell, whose loading is at hand: transformers 5 refuses ``evaluation_strategy``."""
    if "evaluation_strategy" in keys:
        settings.put("release.transformers", "4.45", f"{where}: evaluation_strategy, a name that transformers 5 no longer has")
