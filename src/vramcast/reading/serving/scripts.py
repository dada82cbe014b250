"""Scripts, pasted lines and SLURM jobs: every launch in them, with the variables they set; nothing is run."""

import re
from collections.abc import Mapping, Sequence

import msgspec

from vramcast.errors import QuestionError
from vramcast.reading.serving.commands import cards_of, launch_of, set_around
from vramcast.reading.serving.launch import Held, Launch
from vramcast.reading.serving.programs import Program, program_of
from vramcast.reading.shell import Around, open_names, read_script_text

_DEEPEST = 6
_RELEASE = re.compile(r"\b(vllm|sglang|lmdeploy)(?:\[[\w,-]{1,40}\])?==(\d{1,3}(?:\.\d{1,4}){1,3})")
_SLURM = re.compile(r"#SBATCH\s+(--gres|--gpus-per-node|--gpus-per-task|--gpus|-G|--constraint|-C)[=\s]+(\S+)")
_CARD = re.compile(r"gpu:([A-Za-z][\w.-]{1,30}):\d")
_SLURM_CARDS = ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE")  # what the job starter sets
_NO_CARD = ("gpu", "gpus")
_MOST_ARMS = 40  # parts of a case that are tried one by one


def launches_of(
    words: Sequence[str], held: Held, *, environment: Mapping[str, str] | None = None, name: str = "", depth: int = 0
) -> tuple[Launch, ...]:
    """What these words start; () where it is no engine known. ``environment``: as the container or the script sets it.

    Raises QuestionError for commands nested too deeply.
    """
    if depth > _DEEPEST:
        raise QuestionError(f"{held.where or 'the command'} nests commands deeper than {_DEEPEST} levels")
    program = program_of([word for word in words if word])
    if program is None:
        return ()
    around, cards = set_around(program, held)
    shown = {**(environment or {}), **around}
    if program.shell:
        arguments = program.words[1:]  # the first is the script's own name
        found = read_script(program.shell, held, environment=shown, arguments=arguments, name=name, depth=depth + 1)
        return tuple(_with_cards(_with_release(launch, program), cards) for launch in found)
    launch = launch_of(program, held, shown, name)
    return (_with_cards(launch, cards),) if launch else ()


def read_script(
    text: str,
    held: Held | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
    name: str = "",
    depth: int = 0,
) -> tuple[Launch, ...]:
    """The launches of a script or a pasted text, in order, the same one once; here-documents count as files beside it.

    ``environment``: the variables it starts with; ``arguments``: the words after its name; ``depth``: how deep it is nested.
    """
    around = held or Held()
    cards, card = _job(text)
    shown = {**({name: str(cards) for name in _SLURM_CARDS} if cards else {}), **(environment or {})}
    given = Around(given=around.variables, environment=shown, arguments=tuple(arguments), source=around.text_of)
    found = _launches(text, given, around, name, depth)
    undecided = not any(_is_told(launch.model) for launch in found)
    if undecided and (arms := min(_MOST_ARMS, text.count(";;"))) and re.search(r"^\s*case\s", text, re.M):
        decided: list[Launch] = []
        arms_open: list[Launch] = []
        for arm in range(arms):  # one server of several, by the script's own argument
            more = _launches(text, msgspec.structs.replace(given, arm=arm), around, name, depth)
            decided += [one for one in more if one not in decided and _is_told(one.model)]
            arms_open += [one for one in more if one not in arms_open]
        found = decided or found or arms_open
    releases = dict(_RELEASE.findall(text))
    return tuple(_completed(launch, releases, cards, card) for launch in found)


def _is_told(model: str) -> bool:
    """Whether a model is named, if in a folder that a variable holds."""
    return bool(model) and not open_names(model.rstrip("/").rsplit("/", 1)[-1])


def _launches(text: str, given: Around, around: Held, name: str, depth: int) -> list[Launch]:
    script = read_script_text(text, given)
    inside = msgspec.structs.replace(around, text_of=lambda file: _file(script.files, file) or around.text_of(file))
    found: list[Launch] = []
    for line in script.lines:
        for launch in launches_of(line.words, inside, environment=line.environment, name=name, depth=depth):
            found += [launch] if launch not in found else []
    return found


def _completed(launch: Launch, releases: Mapping[str, str], cards: int, card: str) -> Launch:
    return msgspec.structs.replace(
        launch,
        version=launch.version or releases.get(launch.engine),
        gpus=launch.gpus or cards,
        card=launch.card or card,
    )


def _job(text: str) -> tuple[int, str]:
    """Cards of a node and their name, as a SLURM job asks for them; 0 and "" where it does not."""
    cards, card = 0, ""
    for line in text.splitlines()[:400]:
        if asked := _SLURM.match(line):
            cards = cards_of(asked[2]) or cards if not asked[1].startswith(("--constraint", "-C")) else cards
            named = _CARD.search(asked[2] if ":" in asked[2] else "")
            card = named[1] if named and named[1] not in _NO_CARD else card
    return cards, card


def _file(files: Mapping[str, str], name: str) -> str | None:
    """A here-document by the name it was written to, or by the last part of its path."""
    leaf = name.rsplit("/", 1)[-1]
    return files.get(name) or next((text for path, text in files.items() if path.rsplit("/", 1)[-1] == leaf), None)


def _with_release(launch: Launch, program: Program) -> Launch:
    """The launch with the release of the image that its shell runs in."""
    same = program.version and program.engine == launch.engine
    return msgspec.structs.replace(launch, version=launch.version or program.version) if same else launch


def _with_cards(launch: Launch, cards: int) -> Launch:
    return msgspec.structs.replace(launch, gpus=cards) if cards and not launch.gpus else launch
