"""How well files that people hold are read, against what a person read in them before the program did.

    python benchmarks/reading/score.py FOLDER...      a line a file with a fault, then the table
    python benchmarks/reading/score.py FOLDER --all   every file

A folder holds the files and ``truth.json``: by file name ``{"task": "serving" | "training" | "none"}`` and, for serving,
``engine``, ``model``, ``memory`` and ``speed`` (keys by the engine's long flag, with values); for training, ``framework``,
``model`` and ``memory`` (by our word: micro_batch, seq, adapter.rank ...). ``open`` is a value that a file leaves to a variable.
Neither the files nor their truths are part of the project. Nothing is run or fetched.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from vramcast.asking.sorted_flags import sorted_flags
from vramcast.errors import VramcastError
from vramcast.reading.kinds import kinds_of, taken_for
from vramcast.reading.serving.files import find_launches
from vramcast.reading.serving.flags import parsed_flags, plain_name
from vramcast.reading.serving.launch import UNMODELLED, Launch
from vramcast.reading.serving.spelling import ALIASES
from vramcast.reading.shell import open_names
from vramcast.serving.engines import engine as engine_named

TASKS = {("serve", "--from"): "serving", ("serve",): "serving", ("train", "--from"): "training"}
READ, TOLD, UNREAD, MISREAD, DROPPED = "read", "told without a rule", "listed as unread", "misread", "dropped"
GOOD = (READ, TOLD)  # its value stands in the answer; TOLD: beside what it changes, which no rule counts


def score(folder: Path) -> dict[str, Any]:
    """A row a file: its kind, whether engine and model are right, and the fate of every key of its truth."""
    truths = json.loads((folder / "truth.json").read_text())
    return {name: _row(folder / name, truth) for name, truth in sorted(truths.items())}


def _row(path: Path, truth: dict[str, Any]) -> dict[str, Any]:
    taken = taken_for(kinds_of(path.read_bytes(), path.name, folder=path.parent))
    task = TASKS.get(taken.command, "other") if taken else "undecided"
    row: dict[str, Any] = {"task": truth["task"], "kind": "right", "keys": {}, "faults": []}
    if task != truth["task"] and not (truth["task"] == "none" and task == "undecided"):
        row["kind"] = "undecided" if task == "undecided" else "wrong"
        row["faults"].append(f"taken for {taken.what if taken else 'nothing'}")
    try:
        if truth["task"] == "serving":
            _serving(path, truth, row)
        elif truth["task"] == "training":
            _training(path, truth, row)
    except VramcastError as error:
        row["faults"].append(str(error)[:160])
        row["keys"] |= dict.fromkeys((*truth.get("memory", {}), *truth.get("speed", {})), DROPPED)
        row["recognised"] = False
    return row


def _serving(path: Path, truth: dict[str, Any], row: dict[str, Any]) -> None:
    found = find_launches(path.read_text("utf-8", "replace"), path.name, folder=path.parent)
    rows = [_launch(launch, truth) for launch in found.launches if _same_engine(launch.engine, truth["engine"])]
    if not rows:
        row["recognised"] = False
        started = sorted({launch.engine for launch in found.launches})
        row["faults"].append(f"engine {truth['engine']} not found, but {started}")
        row["keys"] = dict.fromkeys((*truth["memory"], *truth["speed"]), DROPPED)
        return
    best = max(rows, key=lambda one: (sum(fate in GOOD for fate in one["keys"].values()), one["model"]))
    row["recognised"] = best["model"]
    row["keys"] = best["keys"]
    row["faults"] += best["faults"]


def _same_engine(one: str, other: str) -> bool:
    return one == other or {one, other} == {"llama_cpp", "ik_llama_cpp"}


def _launch(launch: Launch, truth: dict[str, Any]) -> dict[str, Any]:
    """One launch held against the truth."""
    name = "vllm" if launch.engine in UNMODELLED or launch.engine == "triton" else launch.engine
    options = engine_named(name).options
    told = sorted_flags(launch, options)
    known = {word.lstrip("-").partition("=")[0]: word.partition("=")[2] or "on" for word in told.known}
    typed = {flag.name: flag.value for flag in parsed_flags(launch.engine, launch.flags, ()).flags}
    unread = " ".join(u.what for u in told.unmodelled)
    quiet = " ".join(str(a.value) for a in told.assumed if a.name == "no effect on memory")
    left = ", ".join(str(a.value) for a in told.assumed if a.name == "left to the engine").split(", ")
    known |= {name: value for name, _, value in (one.partition(" ") for one in left) if name not in known}
    shown_only = {a.name: str(a.value) for a in told.assumed if a.name not in known}
    keys, faults = {}, []
    for group in ("memory", "speed"):
        for key, value in truth[group].items():
            fate = _fate(
                plain_name(f"--{key}", ALIASES.get(launch.engine, {})), value, (known, typed, shown_only), (unread, quiet)
            )
            keys[key] = READ if group == "speed" and fate == "quiet" else DROPPED if fate == "quiet" else fate
            if keys[key] not in GOOD:
                shown = known.get(key, typed.get(key))
                faults.append(f"{key}={value}: {fate}{f' (found {shown})' if shown else ''}")
    model = _model(launch, truth["model"])
    if not model:
        faults.append(f"model {launch.model!r}, not {truth['model']!r}")
    if truth.get("gpu") and _squeezed(truth["gpu"]) not in _squeezed(launch.card):
        faults.append(f"card {launch.card!r}, not {truth['gpu']!r}")
    return {"keys": keys, "faults": faults, "model": model}


def _fate(name: str, value: str, flags: tuple[dict[str, Any], ...], lists: tuple[str, str]) -> str:
    """``flags``: those read, those typed, those told without a rule; ``lists``: words of those unread, those without effect."""
    (known, typed, told), (unread, quiet) = flags, lists
    if value == "open":
        return READ if open_names(str(typed.get(name, ""))) else MISREAD if name in known else DROPPED
    for spelling, given in ((name, known.get(name)), (f"no-{name}", "off" if f"no-{name}" in known else None)):
        if given is not None:
            return READ if _plain(given) == _plain(value) else MISREAD
        if spelling in told and spelling not in typed.keys() - told.keys():
            return TOLD if _plain(told[spelling]) == _plain(value) else MISREAD
        if spelling in unread.split() or f"--{spelling}" in unread.replace(" in ", " ").split():
            return UNREAD
    words = quiet.replace(",", " ").split()
    if name in words or f"no-{name}" in words or f"{name.replace('-', '_')}={value}" in words:
        return "quiet"
    return DROPPED


def _plain(value: Any) -> str:
    """A value as one spelling: switches as on and off, numbers without their dress."""
    word = str(value).strip().lower().strip("\"'")
    if word in ("on", "true", "yes", "enabled"):
        return "1"
    if word in ("off", "false", "no", "disabled"):
        return "0"
    scales = {"k": 1024, "m": 1024**2}
    word = word[:-1] if word[-1:] == "b" and word[:-1].isdigit() else word  # bytes
    try:
        return f"{float(word[:-1]) * scales[word[-1]]:g}" if word[-1:] in scales else f"{float(word):g}"
    except ValueError:
        return word.rsplit("/", 1)[-1].rstrip("b") if word.endswith(".gguf") else word


def _model(launch: Launch, expected: str) -> bool:
    if expected in ("open", ""):
        return not launch.model or bool(open_names(launch.model)) or launch.model.startswith(("/", "$", "{"))
    leaf = expected.rstrip("/").rsplit("/", 1)[-1].lower()
    return launch.model.rstrip("/").rsplit("/", 1)[-1].lower().split("@")[0] == leaf


def _squeezed(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalnum())


def _training(path: Path, truth: dict[str, Any], row: dict[str, Any]) -> None:
    from vramcast.reading.training.files import read_training_files

    settings = read_training_files((str(path),))
    row["recognised"] = True
    said = {name: value for name, value in settings.values.items() if value is not None}
    framework = truth.get("framework")
    if framework and said.get("framework", framework) != framework:
        row["faults"].append(f"framework {said.get('framework')!r}, not {framework!r}")
    if truth.get("model") and str(said.get("model")).rsplit("/", 1)[-1].lower() != truth["model"].rsplit("/", 1)[-1].lower():
        row["faults"].append(f"model {said.get('model')!r}, not {truth['model']!r}")
        row["recognised"] = False
    for key, value in truth["memory"].items():
        given = said.get(key)
        fate = _fate_of_training(key, value, given, settings.unread)
        row["keys"][key] = fate
        if fate != READ:
            row["faults"].append(f"{key}={value}: {fate}{f' (found {given})' if given is not None else ''}")
    if settings.unread:
        row["unread"] = settings.unread


def _fate_of_training(key: str, value: Any, given: Any, unread: list[str]) -> str:
    if isinstance(value, list):
        return READ if given is not None and sorted(map(str, given)) == sorted(map(str, value)) else MISREAD if given else DROPPED
    if value == "open":
        return READ if given is None and any("$" in word or "{" in word for word in unread) else DROPPED
    if given is None:
        return UNREAD if any(word.split(" ")[0].rsplit(".", 1)[-1] == key for word in unread) else DROPPED
    return READ if _plain(given) == _plain(value) else MISREAD


def show(rows: dict[str, Any], *, everything: bool) -> None:
    """The files with a fault, then counts by file and by key."""
    for name, row in rows.items():
        if everything or row["faults"]:
            print(f"{row['kind']:9s} {name[:90]}\n" + "".join(f"          {fault}\n" for fault in row["faults"]), end="")
    for task in ("serving", "training", "none"):
        some = [row for row in rows.values() if row["task"] == task]
        if not some:
            continue
        kinds = Counter(row["kind"] for row in some)
        print(f"\n{task}: {len(some)} files; kind right {kinds['right']}, undecided {kinds['undecided']}, wrong {kinds['wrong']}")
        if task == "none":
            continue
        whole, ruled = (
            sum(bool(row.get("recognised")) and all(f in good for f in row["keys"].values()) for row in some)
            for good in (GOOD, (READ,))
        )
        misread = sum(MISREAD in row["keys"].values() for row in some)
        recognised = sum(bool(row.get("recognised")) for row in some)
        print(f"  recognised with its model {recognised}, every key read {whole} ({ruled} by rules alone), ", end="")
        print(f"files with a misread key {misread}")
        fates = Counter(fate for row in some for fate in row["keys"].values())
        print(f"  keys: {dict(fates)} of {sum(fates.values())}")


if __name__ == "__main__":
    everything = "--all" in sys.argv
    merged: dict[str, Any] = {}
    for folder in [word for word in sys.argv[1:] if not word.startswith("-")]:
        merged |= score(Path(folder))
    show(merged, everything=everything)
