"""Which format a training file has, and the settings of one or several files read together."""

import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from vramcast.errors import QuestionError
from vramcast.reading.beside import modules_beside, path_from, scripts_beside, texts_beside
from vramcast.reading.python_options import with_options
from vramcast.reading.training import markdown, objectives, shared
from vramcast.reading.training.accelerate import without_launcher
from vramcast.reading.training.configuration import apply_configuration
from vramcast.reading.training.formats import (
    BESIDE,
    by_rules,
    finish_format,
    format_of,
    format_of_flags,
    rules_of,
    settle,
    sure_of,
)
from vramcast.reading.training.hydra import composed
from vramcast.reading.training.keys import OPEN, flat, underscored
from vramcast.reading.training.mappings import SCRIPTS, contents, is_config_of_model, mapping_of, parsed
from vramcast.reading.training.own_programs import ABSENT, UNREADABLE, executed_over, is_own, note_unknown_program, usual_length
from vramcast.reading.training.pins import note_names, note_pins
from vramcast.reading.training.pointed import read_pointed, stage_by_name
from vramcast.reading.training.scripts import as_script, is_script
from vramcast.reading.training.settings import Settings
from vramcast.reading.training.shell import Command, is_example, read_command
from vramcast.untrusted import existing_path, parse_json, printable

_ARGUMENTS = 3  # lines of a flag each: arguments held in a variable for another script
MARKDOWN = (".md", ".mdx", ".markdown")
DEEPEST_FILES = 8
# what torchrun, accelerate launch and deepspeed are told of processes and machines
_LAUNCHERS = (
    "nproc_per_node", "nnodes", "node_rank", "master_*", "num_processes", "num_gpus", "num_machines", "config_file", "config",
    "main_process_port", "standalone", "rdzv_*",
)  # fmt: skip
_TOLD_BY_FILE = ("llama_factory", "axolotl")  # whose file says whether all weights are trained
_COUNTS = ("nproc_per_node", "num_processes", "num_gpus")  # what a launcher is told of processes
_LENGTHS = (
    "cutoff_len", "max_seq_length", "max_seq_len", "seq_length", "seq_len", "sequence_length", "model_max_length", "max_length",
    "sequence_len", "block_size", "max_len",
)  # fmt: skip


def read_training_files(paths: tuple[str, ...], capability: tuple[int, int] | None = None) -> Settings:
    """What they say together, their programs on a card of this capability. Raises QuestionError for what is no such file."""
    settings, formats = Settings(capability), []
    for path in paths:
        formats += _read(Path(path), settings)
    return _finished(formats, settings)


def _finished(formats: list[str], settings: Settings) -> Settings:
    """The settings after the last step of every format, the framework's own first."""
    note_unknown_program(settings, shared_alone=set(formats) <= {"shared", *BESIDE} and "shared" in formats)
    for name in sorted(formats, key=lambda n: n in BESIDE):
        finish_format(name, settings)
    settle(settings)
    settings.drop("task.of_name", "zero.file", "off.bfloat16", "off.float16", "off.autocast")
    return settings


def read_training_text(text: str, capability: tuple[int, int] | None = None, *, where: str = "the text") -> Settings:
    """What a configuration, a program or a command line says that is given as text.

    Files that it names are read where the disk is open. Raises as ``read_training_files``.
    """
    settings = Settings(capability)
    return _finished(_from_pasted(text, settings, (), where=where), settings)


def _read(path: Path, settings: Settings, above: tuple[Path, ...] = ()) -> list[str]:
    if len(above) >= DEEPEST_FILES or path in above:
        raise QuestionError(f"{path} is named by itself, through {len(above)} files: name the last one alone")
    text = contents(path)
    if path.suffix in (".py", *SCRIPTS):
        note_pins(settings, text, path.name)
    if path.suffix == ".py":
        return [*_from_program(text, settings, path.name, path.parent), *read_pointed(settings, path.parent)]
    if path.suffix.lower() in MARKDOWN or (str(path) == "-" and markdown.training_in(text).because):
        return _from_markdown(text, settings, path, above)
    if path.suffix == ".ipynb":
        return [*_from_notebook(text, settings, path, above), *read_pointed(settings, path.parent)]
    if str(path) == "-" and (found := _from_pasted(text, settings, above)):
        return found
    if path.suffix in SCRIPTS or text.startswith("#!") or is_script(path.name):
        command = read_command(as_script(text, path.name), scripts_beside(path.parent))
        return _from_command(command, settings, path, (*above, path))
    mapping = parsed(path, text)
    if "defaults" in mapping and path.suffix in (".yaml", ".yml"):
        mapping = composed(mapping, texts_beside(path.parent), settings)
    name = apply_configuration(mapping, settings, where=path.name)
    return [name, *read_pointed(settings, path.parent)]


def _from_program(text: str, settings: Settings, where: str, folder: Path | None = None) -> list[str]:
    """A program's arguments, read from its syntax tree; ``folder``: where files that it imports settings from may lie."""
    from vramcast.reading.training import xtuner
    from vramcast.reading.training.program_runs import first_run, readable_part
    from vramcast.reading.training.programs import constants_of, longest_tokenised, read_program

    if xtuner.is_config(text):
        xtuner.read_config(text, settings, where=where)
        return []
    text, broken = readable_part(text)
    if broken:
        settings.unread.append(f"{where} from line {broken} on (no Python: what stands before it is answered)")
    text, further = first_run(text)
    if further:
        settings.unread.append(f"{len(further)} further runs of {where}, from line {further[0]} on (the first is answered)")
    text_of = modules_beside(folder)
    try:
        keys = flat(read_program(text, settings, where=where, text_of=text_of))
    except QuestionError:
        return _from_loop(text, settings, where, folder)
    note_names(settings, keys, where)
    by_rules("huggingface", _without_run_names("huggingface", keys, settings), settings, where=where)
    if None in [keys.get(name, 0) for name in ("max_length", "max_seq_length")] and settings.get("seq") is None:
        settings.unread.append("max_length (None: samples are not cut; --seq says the longest)")
    if settings.get("seq") is None:  # the Trainer's arguments have no length: the program's own names do
        own = {name: value for name, value in constants_of(text, where, text_of).items() if name in _LENGTHS}
        shared.also(settings, own, where=where, every=True)
        settings.put("seq", longest_tokenised(text, where, text_of), f"{where}: the length its tokenizer cuts samples to")
    return ["huggingface"]


def _without_run_names(name: str, keys: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """The keys without names of runs and folders, told as idle: a program's trainer or its own name tells what it is for."""
    named = [key for key in keys if rules_of(name).RULES.get(key) is objectives.run_named] if name != "shared" else []
    settings.idle += named
    return {key: value for key, value in keys.items() if key not in named}


def _from_loop(text: str, settings: Settings, where: str, folder: Path | None) -> list[str]:
    """A training loop of its own by the names of its settings and what it builds; else the command that it runs.

    Raises QuestionError where it has neither.
    """
    from vramcast.reading.training.programs import finish_loop, settings_of_loop

    found = settings_of_loop(text, settings, where=where, text_of=modules_beside(folder))
    if isinstance(found, str):
        return _from_command(read_command(found), settings, Path(where), (Path(where),))
    keys, built = found
    by_rules("huggingface", built, settings, where=where)
    shared.read(settings, keys, where=where)
    finish_loop(text, settings, where, modules_beside(folder))
    return ["huggingface", "shared"]


def _from_notebook(text: str, settings: Settings, path: Path, above: tuple[Path, ...]) -> list[str]:
    """A notebook's program, else the commands that it gives to a shell."""
    from vramcast.reading.notebooks import code_of, shell_of
    from vramcast.reading.training.starting import starts_training

    raw = parse_json(text, path.name)
    note_pins(settings, shell_of(raw, path.name), path.name)
    code, shell = code_of(raw, path.name), shell_of(raw, path.name)
    try:
        return _from_program(code, settings, path.name, path.parent)
    except QuestionError as error:
        if not shell.strip():
            raise
        try:
            return _from_command(read_command(shell), settings, path, (*above, path))
        except QuestionError:
            if starts_training(shell):
                raise
            raise error from None


def _from_markdown(text: str, settings: Settings, path: Path, above: tuple[Path, ...]) -> list[str]:
    """The command of a Markdown file that trains, with the file that it shows for it; else its program, else its configuration.

    Further commands are told. Raises QuestionError where there is none of the three.
    """
    shown = markdown.training_in(text)
    if shown.commands:
        if (more := len(shown.commands) - 1) > 0:
            settings.unread.append(f"{more} more commands that train in {path.name} (paste the one that is meant)")
        command = read_command(max(shown.commands, key=_settings_in))
        absent = [file for file in command.files if existing_path(path.parent / file) is None]
        formats = _from_command(command, settings, path, (*above, path))
        if absent and shown.configuration:  # the page shows what the file holds
            formats.append(apply_configuration(shown.configuration, settings, where=f"{path.name}: its block of settings"))
            settings.unread[:] = [line for line in settings.unread if not line.startswith(tuple(absent))]
        return formats
    if shown.program:
        return _from_program(shown.program, settings, path.name, path.parent)
    if shown.configuration:
        return [apply_configuration(shown.configuration, settings, where=path.name), *read_pointed(settings, path.parent)]
    raise QuestionError(f"{path.name} has no fenced block that trains: give the command or the configuration itself")


def _settings_in(block: str) -> int:
    """How many things of training a command says: the one of a file's commands that says most is the run."""
    with suppress(QuestionError):
        command = read_command(block)
        return shared.marks({**command.flags, **command.overrides})
    return 0


def _from_pasted(text: str, settings: Settings, above: tuple[Path, ...], *, where: str = "standard input") -> list[str]:
    """What came without a name: a program, a configuration, else a command line."""
    if re.search(r"^[ \t]*(?:from|import) \w+", text, re.M):
        return _from_program(text, settings, where)
    form = None
    with suppress(QuestionError):
        form = mapping_of(text, "")
    if form:
        return [apply_configuration(form, settings, where=where), *read_pointed(settings, Path())]
    return _from_command(read_command(text), settings, Path(where), (*above, Path("-")))


def format_of_text(text: str, name: str = "") -> tuple[str, int]:
    """The format that a text has most keys of, and how many. Raises QuestionError for one that has none of any."""
    mapping = None
    with suppress(QuestionError):
        mapping = mapping_of(text, name)
    command = None if mapping or not _looks_like_command(text) else read_command(text)
    keys = underscored(flat(mapping)) if mapping else {**command.flags, **command.overrides} if command else {}
    found = command.program if command and command.program else format_of(keys, where=name or "the text")
    names = {*keys, *(key.split(".", 1)[0] for key in keys)}
    own = 2 * len(sure_of(found) & names) or len(rules_of(found).SIGNATURE & names)
    return found, max(own, len(rules_of(found).SIGNATURE & names), shared.marks(keys) - 1)


def _looks_like_command(text: str) -> bool:
    """Whether a text has a line of a command with flags."""
    command = re.search(r"^[ \t]*(?:[\w./-]+=\S* )*[\w./-]+ [^\n]*--?[A-Za-z]", text, re.M)
    return command is not None or len(re.findall(r"^[ \t]*--[a-z][\w-]+(?: \S+)? *\\?$", text, re.M)) > _ARGUMENTS


def _from_command(command: Command, settings: Settings, path: Path, above: tuple[Path, ...]) -> list[str]:
    """A script's flags, then the files that it names and that are at hand, then the program that it runs."""
    at = partial(path_from, path.parent, inside=command.folders)
    settings.folders = command.folders
    plain = bool(command.scripts) and not is_example(command.scripts)
    settings.own_program |= plain and not objectives.names_objective(command.objective)
    formats = _from_flags(command, settings, path, at)
    name = command.program or (formats[-1] if formats else "")
    if command.more:
        settings.unread.append(f"{command.more} more commands of the same program in {path.name} (paste the one that is meant)")
    if command.task in ("dpo", "kto", "orpo", "grpo", "reward", "sft"):
        settings.put("options.task", command.task, f"{path.name}: {command.task}")
    objectives.objective_named(settings, command.objective, f"{path.name}: {command.objective}")
    settings.unread += [f"{name} (flags that another file holds)" for name in command.elsewhere]
    if command.written:
        formats += _from_written(command, settings, path)
    for file in filter(command.configures, command.files):
        if (found := at(file)) is not None and is_config_of_model(found):
            settings.put("model", str(found), f"{path.name}: {file}, a model's own configuration")
        elif found is not None:
            formats += _named_by(command, found, settings, above)
        elif not (file.endswith((".yaml", ".yml", ".json")) and stage_by_name(settings, file)):
            settings.unread.append(f"{file} (not found beside {path.name})")
            if file.endswith((".yaml", ".yml", ".toml")) and file == command.flags.get("config"):
                settings.absent.append(printable(file.rsplit("/", 1)[-1])[:80])
            if name in _TOLD_BY_FILE and not settings.get("method") and not settings.group("adapter"):
                settings.holder = printable(file.rsplit("/", 1)[-1])[:80]
    own = is_own(name, command.program, command.scripts) and not is_example(command.scripts)
    if own or not settings.get("model") or not settings.get("seq"):
        formats += _from_script(command, settings, path, told=own)
    sharded = {"deepspeed", "deepspeed_config"} & command.flags.keys() or settings.get("zero") is not None
    if name == "shared" and settings.get("shape.layers") and not settings.get("model") and not sharded:
        from vramcast.reading.training.program_models import own_precision

        lies = next(filter(None, map(at, command.scripts)), None)
        own_precision(settings, contents(lies) if lies else None, next(iter(command.scripts), "its program"))
    usual_length(settings, command.objective)
    _told_by_program(command, settings, path.name)
    return formats + read_pointed(settings, path.parent)


def _named_by(command: Command, file: Path, settings: Settings, above: tuple[Path, ...]) -> list[str]:
    """A file that a command names; what is no training configuration is told where a program of its own takes it."""
    before = len(settings.by_the_way)
    try:
        return _read(file, settings, above)
    except QuestionError:
        if command.program or not command.scripts or settings.values.keys() - {"gpus"}:
            raise
        del settings.by_the_way[before:]
        settings.unread.append(f"{file.name} (no training configuration known here)")
        return []


def _from_flags(command: Command, settings: Settings, path: Path, at: Callable[[str], Path | None]) -> list[str]:
    """A command's flags and ``key=value`` words, and its launcher's cards; the format that they are of comes last.

    Raises QuestionError for flags of no format, where neither the program nor a file that they name is at hand.
    """
    formats: list[str] = []
    if "nproc_per_node" in command.flags:  # torchrun's, before what a job says of one node
        settings.put("gpus", command.gpus, f"{path.name}: the launcher")
    if command.flags or command.overrides:
        given = flat(without_launcher(command.flags, settings, where=path.name)) | command.overrides
        try:
            name = command.program or format_of_flags(given, path.name, command.scripts)
        except QuestionError:
            own = [file for file in filter(command.configures, command.files) if file != command.flags.get("config_file")]
            held = any(at(file) is not None for file in own)  # what it says stands before the program's defaults
            if not held and not (formats := _from_script(command, settings, path)):
                raise
            name = "shared"
        by_rules(name, _without_run_names(name, given, settings), settings, where=path.name, launch=_LAUNCHERS)
        formats.append(name)
    if not settings.get("cards.each") or command.flags.keys() & set(_COUNTS):  # a role's own come first
        settings.put("gpus", command.gpus, f"{path.name}: the launcher")
    return formats


def _told_by_program(command: Command, settings: Settings, where: str) -> None:
    """What a program's name tells (``qlora.py``: a base of 4 bits), and what is open: how many cards a launcher starts."""
    quantised = settings.get("quant") or any(re.search(r"bit|quant", key) for key in command.flags)
    if re.search(r"(?<![a-z])qlora(?![a-z])", command.objective.lower()) and not quantised and settings.get("adapter.rank"):
        settings.put("quant", "nf4", f"{where}: {command.objective}, by its name")
    settings.unread += [
        f"{name} (auto: the program chooses; --targets says which)"
        for name in ("lora_target_modules", "target_modules")
        if command.flags.get(name) == "auto"
    ]
    counts = [name for name in _COUNTS if OPEN.search(str(command.flags.get(name, "")))]
    if counts and not settings.get("gpus"):
        settings.unread.append(f"{counts[0]} (how many cards the launcher starts is open: one is taken, --gpu NAMExN says it)")


def _from_script(command: Command, settings: Settings, path: Path, *, told: bool = False) -> list[str]:
    """The program that a command runs, where it lies beside: its own defaults stand where the flags say nothing.

    ``told``: one that is not at hand is told, beside a model that is known, as what it sets itself is missing.
    """
    for script in command.scripts[:2]:
        found = path_from(path.parent, script, inside=command.folders)
        if found is None:
            settings.absent.append(leaf := printable(script.rsplit("/", 1)[-1])[:80])
            settings.unseen = settings.unseen or (f"{leaf} {ABSENT}" if told else "")
            continue
        note_names(settings, command.flags, path.name)
        before = len(settings.unread)
        with suppress(QuestionError):
            text = contents(found)
            over, gone = executed_over(text, command.handed, partial(path_from, found.parent))
            if gone:  # its sizes are none of the program's own
                settings.absent.append(printable(gone.rsplit("/", 1)[-1])[:80])
                continue
            text = with_options(text, {**over, **command.flags})
            formats = _from_program(text, settings, found.name, found.parent)
            own = [line for line in settings.unread[before:] if not line.endswith(shared.WITHOUT_RULES)]  # its own names are none
            settings.unread[before:] = own
            settings.unseen = ""
            return formats
        settings.unseen = settings.unseen or (f"{found.name} {UNREADABLE}" if told else "")
    return []


def _from_written(command: Command, settings: Settings, path: Path) -> list[str]:
    """The files that the script writes itself and then names: their keys, and DeepSpeed's where a flag points to one."""
    formats = []
    texts = {name.rsplit("/", 1)[-1]: text for name, text in command.written.items()}
    named = [settings.get("file.deepspeed"), *command.files, *filter(_is_text, command.flags.values())]
    for name in dict.fromkeys(str(one).rsplit("/", 1)[-1] for one in named if one):
        if name not in texts:
            continue
        mapping = None
        with suppress(QuestionError):
            mapping = mapping_of(texts[name], name)
        if mapping:
            own = command.program or "huggingface"
            formats.append(apply_configuration(mapping, settings, where=f"{path.name}: {name}", otherwise=own))
            command.files[:] = [file for file in command.files if not file.endswith(name)]
            if str(settings.get("file.deepspeed", "")).endswith(name):
                settings.drop("file.deepspeed")
    return formats


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value.endswith((".json", ".yaml", ".yml", ".toml"))
