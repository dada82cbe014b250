"""A question from what starts an engine: a pasted line, a script, a compose file, a manifest, a program with ``LLM(...)``.

What is typed beside it wins. Of several engines in one artefact the person says which; variables that nobody set are asked for.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vramcast.asking.asked import Asked, named_cards
from vramcast.errors import QuestionError, VramcastError
from vramcast.ledger import Assumption, Unmodelled
from vramcast.untrusted import existing_path, printable, whole_number
from vramcast.workload import Serving

if TYPE_CHECKING:  # a plain model's question loads no reader
    from vramcast.asking.extra_models import ExtraModels
    from vramcast.asking.sorted_flags import SortedFlags
    from vramcast.reading.serving.files import ServingFile
    from vramcast.reading.serving.launch import Launch

# Ends of names that start an engine where they stand in MODEL's place; a .json or .py there needs --from or no command at all.
_FILES = (
    ".sh", ".bash", ".yml", ".yaml", ".txt", ".service", ".ps1", ".bat", "modelfile", "dockerfile", ".sbatch", ".slurm", ".md",
    ".pbtxt", ".modelfile", ".env",
)  # fmt: skip
_MOST_LISTED = 12
_RANKS = ("node-rank", "nnodes", "headless", "data-parallel-start-rank", "data-parallel-rank", "dist-init-addr", "master-addr")
_MOUNTS = frozenset({"models", "model", "mnt", "data", "workspace", "weights", "checkpoint", "checkpoints", "hf", "cache"})


class Launched(msgspec.Struct, frozen=True, kw_only=True):
    """The launch that is meant, what its artefact was taken for, and the model that is typed over its own.

    ``sharing``: other servers like it on the same cards; ``unplaced``: it has copies, and nothing says which card each takes.
    """

    launch: "Launch"
    kind: str = "command line"
    model: str | None = None
    sharing: int = 0
    unplaced: bool = False


def launched(
    model: str | None,
    flags: Sequence[str],
    *,
    files: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
    only: str | None = None,
) -> tuple[Launched, tuple[str, ...]] | None:
    """The launch that MODEL or the files stand for and the flags left to be typed over it; None where MODEL is a model.

    ``files``: artefacts, and .env files for their variables; ``variables``: what they leave open; ``only``: which engine, by its
    name. Raises QuestionError for a file that starts no engine, or several of which none is named.
    """
    if files:
        return msgspec.structs.replace(_from_files(files, variables or {}, only), model=model), tuple(flags)
    return None if model is None else _in_place_of_model(model, flags, variables or {}, only)


def _from_files(files: Sequence[str], variables: Mapping[str, str], only: str | None) -> Launched:
    """The launch in the first of the files that is no .env file, whose variables count beneath those given."""
    from vramcast.reading.serving.files import ServingFile, variables_of

    environments = tuple(file for file in files if Path(file).name.startswith(".env") or file.endswith(".env"))
    held = [file for file in files if file not in environments]
    if not held:  # settings of a server by the names of its arguments, or what another file uses
        alone = _settings(environments[0], variables) if len(environments) == 1 else ServingFile(kind="")
        if not alone.launches:
            raise QuestionError(f"{environments[0]} gives variables alone: add the file that uses them, --from compose.yml")
        return _chosen(alone, environments[0], only)
    found = _read(held[0], {**variables_of(environments), **variables})
    return _chosen(found, held[0], only)


def _settings(file: str, variables: Mapping[str, str]) -> "ServingFile":
    """The server that a file of variables describes by itself; no launches where it describes none."""
    from vramcast.reading.serving.files import find_launches
    from vramcast.units import MiB
    from vramcast.untrusted import read_bytes

    path = Path(file).expanduser()
    return find_launches(
        read_bytes(path, most=MiB).decode("utf-8", "replace"), path.name, folder=path.parent, variables=variables
    )


def _in_place_of_model(
    model: str, flags: Sequence[str], variables: Mapping[str, str], only: str | None
) -> tuple[Launched, tuple[str, ...]] | None:
    """The launch that stands where MODEL does: a file's name, a pasted line, or the words of one; None for a model."""
    typed = bool(flags) and not flags[0].startswith("-")
    if not (typed or " " in model or "\n" in model or model.lower().endswith(_FILES)):
        return None
    import shlex

    from vramcast.reading.serving.files import ServingFile, is_serving_file, read_serving_file
    from vramcast.reading.serving.launch import LaunchContext
    from vramcast.reading.serving.programs import program_of
    from vramcast.reading.serving.scripts import read_script

    if is_serving_file(model):
        file = read_serving_file(model, variables=variables)
        return _chosen(file, model, only), tuple(flags)
    held = LaunchContext(where="the pasted line", variables=dict(variables))
    if " " in model and (several := read_script(model, held)):
        return _chosen(ServingFile(kind="command line", launches=several), "the pasted text", only), tuple(flags)
    if typed and program_of([model, *flags]) and (several := read_script(shlex.join([model, *flags]), held)):
        return Launched(launch=several[0]), ()
    return None


def _read(file: str, variables: Mapping[str, str]) -> Any:
    """An artefact by its name, or standard input for ``-``."""
    from vramcast.reading.serving.files import read_serving_file, read_serving_text

    if file != "-":
        return read_serving_file(file, variables=variables)
    from vramcast.reading.beside import MOST_BYTES
    from vramcast.untrusted import read_input

    text = read_input("-", most=MOST_BYTES).decode("utf-8", "replace")
    return read_serving_text(text, "standard input", variables=variables)


def _chosen(found: Any, what: str, only: str | None) -> Launched:
    """The launch that is meant. Raises QuestionError where several are, with their names."""
    launches: tuple[Launch, ...] = found.launches
    name = what.rsplit("/", 1)[-1] if what != "-" else "standard input"
    if only is not None:
        meant = [x for place, x in enumerate(launches, 1) if only in (x.name, str(place), x.model)] or [
            x for x in launches if only.lower() in f"{x.name} {x.model}".lower()
        ]
        if not meant:
            raise QuestionError(f"{name} starts no engine called {only[:60]!r}: it has {_listed(launches)}")
        if len(meant) == 1 or only in (meant[0].name, meant[0].model):
            return Launched(launch=meant[0], kind=found.kind)
        launches = tuple(meant)
    if len(launches) > 1 and len(_alike(launches)) == 1:
        launch, sharing, unplaced = _copies_of(launches)
        return Launched(launch=launch, kind=found.kind, sharing=sharing, unplaced=unplaced)
    if len(launches) > 1:
        raise QuestionError(
            f"{name} starts {len(launches)} engines: choose one with --only NAME or its number: {_listed(launches)}"
        )
    return Launched(launch=launches[0], kind=found.kind)


def _copies_of(launches: "Sequence[Launch]") -> tuple["Launch", int, bool]:
    """The first of servers that are alike, how many others its cards hold, and whether nobody says which card each takes."""
    shown = [one.devices for one in launches]
    copies = msgspec.structs.replace(launches[0], replicas=len(launches) * launches[0].replicas)
    if not all(shown):  # whole cards that a cluster hands out are each server's own
        return copies, 0, any(shown) or not all(one.gpus for one in launches)
    fullest = max(sum(card in other for other in shown) for card in {card for cards in shown for card in cards})
    places = len({frozenset(cards) for cards in shown})
    return msgspec.structs.replace(launches[0], replicas=places * launches[0].replicas), fullest - 1, False


def _alike(launches: "Sequence[Launch]") -> dict[object, list[int]]:
    """The places of launches that differ in addresses and names alone (a server a card), by what they share."""
    from vramcast.reading.serving.flags import is_idle, is_speed, parsed_flags

    groups: dict[object, list[int]] = {}
    for place, one in enumerate(launches, 1):
        apart = parsed_flags(one.engine, one.flags).flags
        flags = sorted((f.name, f.values) for f in apart if f.name in _RANKS or not (is_idle(f.name) or is_speed(f.name)))
        groups.setdefault((one.engine, one.version, one.model, one.card, one.gpus, *flags), []).append(place)
    return groups


def _listed(launches: "Sequence[Launch]") -> str:
    shown = [f"{place} {x.name or x.engine} ({printable(x.model)[:60] or 'no model'})" for place, x in enumerate(launches, 1)]
    more = f", and {len(shown) - _MOST_LISTED} more" if len(shown) > _MOST_LISTED else ""
    return ", ".join(shown[:_MOST_LISTED]) + more


def question_of_launch(
    held: Launched,
    flags: Sequence[str],
    options: Mapping[str, Any],
    words: Mapping[str, Any],
    ask: Callable[..., Asked[Serving]],
) -> Asked[Serving]:
    """The question of a launch, under what was typed beside it. Raises QuestionError for what is open or cannot be."""
    from vramcast.asking.engine_line import fields
    from vramcast.asking.extra_models import extra_models_of
    from vramcast.asking.sorted_flags import sorted_flags
    from vramcast.reading.shell import open_names
    from vramcast.serving.engines import engine as engine_named
    from vramcast.serving.engines.base import POOL_ENGINES

    launch, given = held.launch, {name: value for name, value in words.items() if value is not None}
    engine = _engine(launch, given)
    table = engine_named(engine.partition("==")[0])
    typed, _ = fields(flags)
    found = sorted_flags(launch, table.options, typed={*given, *typed, *options, *(_plain(flag) for flag in flags)})
    model = held.model or _without_open_folder(launch.model)
    _refuse_open(found.opened, launch, of_model=open_names(model))
    said, rest = fields(found.known)
    asked: dict[str, Any] = {"engine": engine, **said, **given}
    cards, told, unread = _cards(launch, asked)
    asked |= cards
    if table.name in POOL_ENGINES:
        asked.setdefault("tp", 1)
    model = _named(model, launch)
    beside = extra_models_of(
        launch, model, whole_number(str(asked.get("context") or "")), ask, [option.name for option in table.options]
    )
    answer = ask(model, flags=(*rest, *flags), options={**beside.options, **options}, **asked)
    kind = Assumption("engine", launch.engine, f"{launch.where or 'the pasted line'} starts it with {printable(model)[:120]}")
    copies = Assumption("replicas", launch.replicas, f"{launch.where}: each like this one, and the answer is for one")
    found = _without_counted(found, beside)
    assumed = (kind, *told, *found.assumed, *beside.assumed, *((copies,) if launch.replicas > 1 else ()))
    if held.model is None and "model" in launch.places:
        loaded = Assumption("model", launch.model, launch.places["model"])
        assumed = (*assumed, loaded)
    kept = tuple(a for a in answer.assumed if a.name != "engine")
    return msgspec.structs.replace(
        answer,
        assumed=(*assumed, *kept),
        unmodelled=(*_in_place_of(launch, table.name), *_others(held, answer), *unread, *beside.unmodelled, *found.unmodelled),
    )


def _others(held: Launched, answer: Asked[Serving]) -> tuple[Unmodelled, ...]:
    """What is said of servers like this one that stand, or may stand, on the same cards."""
    from vramcast.asking.asked import answer_serving
    from vramcast.units import gib

    where = held.launch.where or "the file"
    if held.unplaced:
        what = f"{where} starts {held.launch.replicas} like this and does not say which card each takes: those on one share it"
        return (Unmodelled(f"{what}, and the verdict is for one alone"),)
    if not held.sharing:
        return ()
    found = answer_serving(answer, advises=False)
    each = round(max(rank.claimed_bytes for rank in found.ranks))
    room = f" of {gib(found.fit.capacity_bytes)}" if found.fit and found.fit.capacity_bytes else ""
    cards = ", ".join(held.launch.devices)[:40]
    what = f"{held.sharing} more like this on the same cards ({cards}): together {gib((1 + held.sharing) * each)}{room} of each"
    return (Unmodelled(f"{what}, and the verdict is for one alone", held.sharing * each),)


def _without_counted(found: "SortedFlags", beside: "ExtraModels") -> "SortedFlags":
    """The flags less those of a projector or a draft that the answer counts."""
    heads = tuple(f"the flag {name if name.startswith('-') else f'--{name}'} " for name in beside.counted)
    return msgspec.structs.replace(
        found,
        assumed=tuple(one for one in found.assumed if one.name not in beside.counted),
        unmodelled=tuple(one for one in found.unmodelled if not one.what.startswith(heads or ("\0",))),
    )


def _plain(flag: str) -> str:
    return flag.partition("=")[0].lstrip("-").replace("_", "-")


def _engine(launch: "Launch", given: Mapping[str, Any]) -> str:
    """The engine to answer for. Raises QuestionError for one that is read and has no rules here."""
    from vramcast.reading.serving.launch import UNMODELLED

    if given.get("engine"):
        return str(given["engine"])
    if launch.engine in UNMODELLED or launch.engine == "triton":
        name, model = UNMODELLED.get(launch.engine, "Triton"), printable(launch.model)[:80] or "a model that it does not name"
        other = (
            "its kernels now run in SGLang: --engine sglang --kt-num-gpu-experts 0 keeps every routed expert on the host"
            if launch.engine == "ktransformers"
            else "--engine llama.cpp answers for a GGUF of the same model on the same Mac"
            if launch.engine == "mlx"
            else "--engine vllm answers for vLLM with the same model, cards and lengths"
        )
        raise QuestionError(
            f"{launch.where or 'this'} starts {name} with {model}{_read_of(launch)}: no memory rules are known for it; {other}"
        )
    return f"{launch.engine}=={launch.version}" if launch.version else launch.engine


def _read_of(launch: "Launch") -> str:
    """What was read of a launch whose engine has no rules, in brackets; "" for nothing."""
    from vramcast.asking.sorted_flags import sorted_flags
    from vramcast.serving.engines import engine as engine_named

    told = [a for a in sorted_flags(launch, engine_named("vllm").options).assumed if a.name != "no effect on memory"]
    said = ", ".join(f"{a.name} {a.value}" for a in told[:_MOST_LISTED])
    return f" ({said})" if said else ""


def _in_place_of(launch: "Launch", engine: str) -> tuple[Unmodelled, ...]:
    """What an answer by another engine's rules leaves out, where the launch's own has none."""
    from vramcast.reading.serving.launch import UNMODELLED

    if launch.engine not in UNMODELLED:
        return ()
    name = UNMODELLED[launch.engine]
    return (Unmodelled(f"{name}'s own pool, buffers and graphs: {engine} was asked for in its place, and its rules answer"),)


def _without_open_folder(model: str) -> str:
    """A path of which only the folder is left open (``$HOME/Qwen3-8B``) as its last part, if that names one."""
    from vramcast.reading.elsewhere import known_name
    from vramcast.reading.shell import open_names

    folder, _, name = model.rstrip("/").rpartition("/")
    if not open_names(folder) or open_names(name):
        return model
    return name if name.lower().endswith(".gguf") or known_name(name) else model


def _refuse_open(names: Sequence[str], launch: "Launch", *, of_model: Sequence[str] = ()) -> None:
    """Raises QuestionError for variables that decide something and that nobody set; ``of_model``: those of the model."""
    distinct = tuple(dict.fromkeys((*of_model, *names)))
    if not distinct:
        return
    shown = ", ".join(f"${name} (a word typed after the script)" if name.isdigit() else name for name in distinct[:12])
    examples = " ".join(f"--var {name}=..." for name in distinct[:6])
    typed = "" if names or not of_model else ", or the model itself: vramcast serve MODEL --from FILE"
    raise QuestionError(f"{launch.where or 'the line'} leaves {shown} open: say {examples}, or --from .env too{typed}")


def _named(model: str, launch: "Launch") -> str:
    """The model of a launch; of another machine's path the name at its end. Raises QuestionError where neither names one."""
    if not model and (file := _preset_of(launch)):
        raise QuestionError(
            f"{launch.where or 'the line'} starts {launch.engine} with the models of {printable(file)[:80]}, which is not at "
            "hand: ask for that file, vramcast FILE, or name the model, vramcast serve MODEL --from FILE"
        )
    if not model:
        raise QuestionError(
            f"{launch.where or 'the line'} starts {launch.engine} and names no model: give it, vramcast serve MODEL --from FILE"
        )
    is_path = model.startswith(("/", "./", "~", "..")) or model.count("/") > 1 or re.match(r"[A-Za-z]:[\\/]", model)
    if not is_path or existing_path(model):
        return model
    name = re.split(r"[\\/]", model.rstrip("\\/"))[-1]
    if name.lower() in _MOUNTS or not _names_a_model(name):
        kind = "file" if name.lower().endswith(".gguf") else "folder"
        raise QuestionError(
            f"{launch.where or 'the line'} loads {printable(model)[:80]}, a {kind} of another machine: name its model, "
            "vramcast serve MODEL --from FILE"
        )
    return name


def _preset_of(launch: "Launch") -> str:
    """The file or folder of models that llama-server chooses from (``--models-preset``, ``--models-dir``); "" for none."""
    words = iter(launch.flags)
    for word in words:
        name, joined, value = word.lstrip("-").partition("=")
        if name in ("models-preset", "models-dir"):
            return value if joined else next(words, "")
    return ""


def _names_a_model(name: str) -> bool:
    """Whether the last part of a path names a known model; a family alone (``/qwen``) names none."""
    from vramcast.asking.artefact import artefact_of, names_one
    from vramcast.models.reading import read_model
    from vramcast.reading.elsewhere import family_alone

    try:
        model = read_model(artefact_of(name).model, offline=True)
    except VramcastError:
        return False
    return not family_alone(name, model) and (bool(re.search(r"\d", name)) or names_one(name))


def _cards(launch: "Launch", asked: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Assumption, ...], tuple[Unmodelled, ...]]:
    """The cards: as typed, else those that the artefact selects, as many as it shows."""
    count = f"x{launch.gpus}" if launch.gpus > 1 else ""
    if asked.get("gpu"):
        one = count and asked["gpu"] != "local" and named_cards(asked["gpu"]).count == 1
        return ({"gpu": f"{asked['gpu']}{count}"} if one else {}), (), ()
    if not launch.card:
        return {}, (), ()
    try:
        named_cards(f"{launch.card}{count}")
    except QuestionError:
        unknown = f"the card {printable(launch.card)[:60]} in {launch.where}: none is known by that name, say it with --gpu"
        return {}, (), (Unmodelled(unknown),)
    told = Assumption("gpu", f"{launch.card}{count}", f"{launch.where}: what it asks the machine for")
    return {"gpu": f"{launch.card}{count}"}, (told,), ()
