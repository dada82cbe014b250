"""Scripts, pasted lines and SLURM jobs: every launch in them, with the variables they set; nothing is run."""

import re
from collections.abc import Mapping, Sequence

import msgspec

from vramcast.errors import QuestionError
from vramcast.reading.serving.commands import cards_of, launch_of, set_around
from vramcast.reading.serving.harness import evaluated
from vramcast.reading.serving.launch import Launch, LaunchContext, devices_within
from vramcast.reading.serving.own_programs import with_flags_of_engine
from vramcast.reading.serving.programs import Program, program_of
from vramcast.reading.shell import ShellStart, open_names, read_script_text

_DEEPEST, _WRITES, _LONGEST = 6, 2, 20_000
# Programs whose words are said, searched or fetched, and start nothing.
_TALKS = re.compile(
    r"(?:echo|printf|cat|p?kill|killall|pgrep|[ef]?grep|rg|ps|awk|sed|curl|wget|git|jq|test|\[+|log\w*|print\w*|info|warn\w*|err\w*|fail\w*|die|"
    r"usage|say|msg|assert\w*|trap|write-\w+|read|cmake|make|cd|mkdir|rm|cp|mv|pip\d?|apt\S*|ln|tee|tail|head|sleep|wait|true|false|"
    r"note|step|title|header|green|red|yellow|ok|notify\S*)", re.I
)  # fmt: skip
_COMMAND = re.compile(
    r"vllm serve|sglang[. ](?:launch_server|serve)|llama-(?:server|cli)\b|trtllm-serve|api_server|"
    r"text-generation-launcher|lmdeploy serve|mlx_lm|ollama (?:run|serve)|docker run"
)
_ENGINE_IMPORT = re.compile(r"\b(?:vllm|sglang|llama_cpp|lmdeploy|tensorrt_llm)\b")
_RELEASE = re.compile(r"\b(vllm|sglang|lmdeploy)(?:\[[\w,-]{1,40}\])?==(\d{1,3}(?:\.\d{1,4}){1,3})")
_SLURM = re.compile(r"#SBATCH\s+(--gres|--gpus-per-node|--gpus-per-task|--gpus|-G|--constraint|-C)[=\s]+(\S+)")
_CARD = re.compile(r"gpu:([A-Za-z][\w.-]{1,30}):\d")
_SLURM_CARDS = ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE")  # what the job starter sets
_NO_CARD = ("gpu", "gpus")
_MOST_ARMS = 40  # parts of a case that are tried one by one


def launches_of(
    words: Sequence[str], held: LaunchContext, *, environment: Mapping[str, str] | None = None, name: str = "", depth: int = 0
) -> tuple[Launch, ...]:
    """What these words start; () where it is no engine known. ``environment``: as the container or the script sets it.

    Raises QuestionError for commands nested too deeply.
    """
    if depth > _DEEPEST:
        raise QuestionError(f"{held.where or 'the command'} nests commands deeper than {_DEEPEST} levels")
    words = [word for word in words if word]
    program = program_of(words)
    if program is None or (program.engine and not program.shell and not program.words and _holds_command(words)):
        return _otherwise(words, held, dict(environment or {}), name, depth)
    around, cards, devices = set_around(program, held)
    shown = {**(environment or {}), **around}
    if program.shell:
        arguments = program.words[1:]  # the first is the script's own name
        found = read_script(program.shell, held, environment=shown, arguments=arguments, name=name, depth=depth + 1)
        return tuple(_with_cards(_with_release(launch, program), cards, devices) for launch in found)
    launch = launch_of(program, held, shown, name)
    return (_with_cards(launch, cards, devices),) if launch else ()


def _holds_command(words: Sequence[str]) -> bool:
    return any(_COMMAND.search(word) and " " in word.strip() for word in words)


def _otherwise(
    words: Sequence[str], held: LaunchContext, environment: dict[str, str], name: str, depth: int
) -> tuple[Launch, ...]:
    """What a command starts that is no engine: an evaluation, a program with an engine's flags, a text that it hands on.

    Such texts are a program behind Python's ``-c``, and whole commands: ``ssh``, ``tmux send-keys``, ``eval``.
    """
    if not words or _TALKS.fullmatch(words[0].rsplit("/", 1)[-1]):
        return ()
    if found := evaluated(words, held) or with_flags_of_engine(words, held):
        return found
    after = words[list(words).index("-c") + 1] if "-c" in words[:-1] else ""
    if "python" in words[0] and _ENGINE_IMPORT.search(after):
        return held.others("program.py", after, held)
    launches: list[Launch] = []
    for word in words[1:]:
        if " " in word.strip() and len(word) < _LONGEST and _COMMAND.search(word):
            launches += read_script(word, held, environment=environment, name=name, depth=depth + 1)
    return tuple(launch for launch in launches if launch.model)


def read_script(
    text: str,
    held: LaunchContext | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
    name: str = "",
    depth: int = 0,
) -> tuple[Launch, ...]:
    """The launches of a script or a pasted text, in order, the same one once; here-documents count as files beside it.

    ``environment``: the variables it starts with; ``arguments``: the words after its name; ``depth``: how deep it is nested.
    """
    around = held or LaunchContext()
    cards, card = _job(text)
    shown = {**({name: str(cards) for name in _SLURM_CARDS} if cards else {}), **(environment or {})}
    given = ShellStart(given=around.variables, environment=shown, arguments=tuple(arguments), source=around.text_of)
    found = _launches(text, given, around, name, depth)
    undecided = not any(_is_told(launch.model) for launch in found)
    if undecided and (arms := min(_MOST_ARMS, text.count(";;"))) and re.search(r"^[ \t]*case\s", text, re.M):
        decided: list[Launch] = []
        arms_open: list[Launch] = []
        for arm in range(arms):  # one server of several, by the script's own argument
            more = _launches(text, msgspec.structs.replace(given, arm=arm), around, name, depth)
            decided += [one for one in more if one not in decided and _is_told(one.model)]
            arms_open += [one for one in more if one not in arms_open]
        found = decided or found or arms_open
    releases = releases_in(text)
    return tuple(_completed(launch, releases, cards, card) for launch in found)


def releases_in(text: str) -> dict[str, str]:
    """The releases of engines that a text installs, by engine: ``pip install vllm==0.11.0``; what it asks twice is the last."""
    return dict(_RELEASE.findall(text))


def _is_told(model: str) -> bool:
    """Whether a model is named, if in a folder that a variable holds."""
    return bool(model) and not open_names(model.rstrip("/").rsplit("/", 1)[-1])


def _launches(text: str, given: ShellStart, around: LaunchContext, name: str, depth: int) -> list[Launch]:
    script = read_script_text(text, given)
    inside = msgspec.structs.replace(around, text_of=lambda file: _file(script.files, file) or around.text_of(file))
    found: list[Launch] = []
    for line in script.lines:
        for launch in launches_of(line.words, inside, environment=line.environment, name=name, depth=depth):
            found += [launch] if launch not in found else []
    for program in script.programs:
        found += around.others("program.py", program, around) if _ENGINE_IMPORT.search(program) else ()
    if not any(launch.model for launch in found) and depth < _WRITES:  # files that the script writes for others to start
        found += [x for file, body in script.files.items() for x in around.others(file, body, around.at(file))]
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


def _with_cards(launch: Launch, cards: int, devices: tuple[str, ...]) -> Launch:
    """The launch with the cards that its container or job was given."""
    return msgspec.structs.replace(launch, gpus=launch.gpus or cards, devices=devices_within(devices, launch.devices))
