"""Scripts, pasted lines and SLURM jobs: every launch in them, with the variables they set; nothing is run."""

import re
from collections.abc import Mapping

import msgspec

from vramcast.reading.serving.commands import cards_of, launches_of
from vramcast.reading.serving.launch import Held, Launch
from vramcast.reading.shell import read_script_text

_RELEASE = re.compile(r"\b(vllm|sglang|lmdeploy)(?:\[[\w,-]{1,40}\])?==(\d{1,3}(?:\.\d{1,4}){1,3})")
_SLURM = re.compile(r"SBATCH\s+(--gres|--gpus-per-node|--gpus-per-task|--gpus|-G|--constraint|-C)[=\s]+(\S+)")
_CARD = re.compile(r"gpu:([A-Za-z][\w.-]{1,30}):\d")
_NO_CARD = ("gpu", "gpus")


def read_script(
    text: str, held: Held | None = None, *, environment: Mapping[str, str] | None = None, name: str = "", depth: int = 0
) -> tuple[Launch, ...]:
    """The launches of a script or a pasted text, in order, the same one once; here-documents count as files beside it."""
    around = held or Held()
    script = read_script_text(text, around.variables, source=around.text_of)
    inside = msgspec.structs.replace(around, text_of=lambda file: _file(script.files, file) or around.text_of(file))
    found: list[Launch] = []
    for line in script.lines:
        own = {key: value for key, value in line.environment.items() if key not in around.variables}
        for launch in launches_of(line.words, inside, environment={**(environment or {}), **own}, name=name, depth=depth):
            found += [launch] if launch not in found else []
    releases = dict(_RELEASE.findall(text))
    cards, card = _job(script.directives)
    return tuple(_completed(launch, releases, cards, card) for launch in found)


def _completed(launch: Launch, releases: Mapping[str, str], cards: int, card: str) -> Launch:
    return msgspec.structs.replace(
        launch,
        version=launch.version or releases.get(launch.engine),
        gpus=launch.gpus or cards,
        card=launch.card or card,
    )


def _job(directives: tuple[str, ...]) -> tuple[int, str]:
    """Cards and their name, as a SLURM job asks for them."""
    cards, card = 0, ""
    for directive in directives:
        if asked := _SLURM.match(directive):
            cards = cards_of(asked[2]) or cards if not asked[1].startswith(("--constraint", "-C")) else cards
            named = _CARD.search(asked[2] if ":" in asked[2] else "")
            card = named[1] if named and named[1] not in _NO_CARD else card
    return cards, card


def _file(files: Mapping[str, str], name: str) -> str | None:
    """A here-document by the name it was written to, or by the last part of its path."""
    leaf = name.rsplit("/", 1)[-1]
    return files.get(name) or next((text for path, text in files.items() if path.rsplit("/", 1)[-1] == leaf), None)
