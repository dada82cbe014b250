"""One question of the ledger of answers, asked as it would be typed, and its figures by group and name."""

import json
import shlex
import zlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from answers.text import Groups, shown
from vramcast.asking.doors import answer_serving, answer_training
from vramcast.asking.serving import serving_question
from vramcast.asking.training import training_question
from vramcast.cli import serve, train
from vramcast.errors import VramcastError
from vramcast.hardware.cards import least_card
from vramcast.ledger import Forecast, RankMemory, Term, Unmodelled
from vramcast.models.inventory import Block, Model
from vramcast.models.reading import read_model
from vramcast.planning.serving import speed_of as speed_of_serving
from vramcast.planning.training import speed_of as speed_of_training
from vramcast.serving.engines.base import answer_of as served
from vramcast.training.forecast import forecast_training as trained
from vramcast.training.recipe.draft import flat
from vramcast.training.recipe.parts import Recipe

CONFIGS = Path(__file__).parents[2] / "tests" / "answers" / "configs.jsonl"
# Counters that are left out where they equal another.
_ALIKE = {"reserved": "allocated", "needed": "device", "claimed": "reserved"}
_VERBS = ("speed", "plan", "recipe", "sums")


def figures(line: str) -> Groups:
    """The answer to a question; of a row of questions the first one whole, and what differs in each of the others.

    ``each FLAG VALUE ... : QUESTION`` asks it with each value, and tells what differs from the first; ``along`` from the one
    before (releases, sizes). FLAG ``+`` takes each value as further words.
    """
    words = shlex.split(line)
    if words[0] not in ("each", "along"):
        return _figures(words)
    kind, flag, colon = words[0], words[1], words.index(":")
    values, question = words[2:colon], words[colon + 1 :]
    lean = _leaner if kind == "along" else _leanest
    before = _leaner(_figures([*question, *_more(flag, values[0])]))
    told = {f"[{shown(values[0])}] {name}": held for name, held in before.items()}
    for value in values[1:]:
        now = _leaner(_figures([*question, *_more(flag, value)]))
        told |= {f"[{shown(value)}] {name}": held for name, held in lean(_differing(before, now)).items()}
        before = now if kind == "along" else before
    return told


def _more(flag: str, value: str) -> list[str]:
    return shlex.split(value) if flag == "+" else [flag, value]


def _leaner(groups: Groups) -> Groups:
    """The figures of one question in a row: terms without their parts, seconds with one level of them."""
    found: Groups = {}
    for group, held in groups.items():
        most = 1 if group == "terms" else 0 if group.startswith("terms ") else 9
        found[group] = {name: value for name, value in held.items() if name.count(".") <= most}
    return found


def _leanest(groups: Groups) -> Groups:
    """The same without what an engine was told to take."""
    return {name: held for name, held in _leaner(groups).items() if name != "takes"}


def _differing(before: Groups, now: Groups) -> Groups:
    """The figures of ``now`` that are others than before, and those that are no more as ``none``."""
    found: Groups = {}
    for group in {**before, **now}:
        was, held = before.get(group, {}), now.get(group, {})
        names = [*held, *(name for name in was if name not in held)]
        if moved := {name: held.get(name, "none") for name in names if was.get(name) != held.get(name)}:
            found[group] = moved
    return found


def _figures(words: list[str]) -> Groups:
    """The answer to one question, or ``refused`` with the reason."""
    verb, words = (words[0], words[1:]) if words[0] in _VERBS else ("memory", words)
    try:
        if words[0] == "model":
            said = _model(_read(words[1]) if len(words) == 2 else _changed(words[1], words[2:]))
            return _sums(said) if verb == "sums" else said
        if words[0] == "card":
            return _card(" ".join(words[1:]))
        return (_serve if words[0] == "serve" else _train)(verb, words[1:])
    except VramcastError as error:
        return {"refused": {"because": shown(str(error).split("; use", maxsplit=1)[0][:160])}}


def _serve(verb: str, words: list[str]) -> Groups:
    given = serve.command.make_context("serve", words).params
    asked = serving_question(given["model"], flags=given["engine_flags"], **serve.words_of(given))
    if verb == "plan":
        return _plan(answer_serving(asked))
    answer = served(asked.question, model=_read(asked.question.model), limits=verb != "speed")
    if verb == "speed":
        block, _, slow = speed_of_serving(answer)
        return _speed(block, slow)
    limits: dict[str, object] = {
        "max_context": answer.max_context,
        "max_concurrency": answer.max_concurrency,
        **({"starts": False} if answer.start_error else {}),
    }
    asked_for = {"context": answer.resolved.context, **answer.resolved.options}
    return {
        "takes": {name: shown(value) for name, value in asked_for.items() if value is not None},
        "cache": _fields(answer.cache),
        "limits": {name: shown(value) for name, value in limits.items()},
        **_ranks(answer.ranks),
        **_unmodelled((*asked.unmodelled, *answer.resolved.unmodelled)),
    }


def _train(verb: str, words: list[str]) -> Groups:
    given = train.command.make_context("train", words).params
    asked = training_question(given["model"], files=given["files"], **train.words_of(given))
    model = asked.model or _read(asked.question.model)
    asked = msgspec.structs.replace(asked, model=model)
    if verb == "plan":
        return _plan(answer_training(asked))
    card = least_card(asked.question.gpu) if asked.question.gpu else None
    answer = trained(asked.question, model=model, card=card)
    if verb == "speed":
        return _speed(*speed_of_training(answer, model, card))
    if verb == "recipe":
        usual = flat(Recipe())
        return {
            "recipe": {
                name: shown(value) for name, value in flat(answer.recipe).items() if value != usual[name] and name != "version"
            }
        }
    return {
        "trained": {"parameters": shown(answer.trainable_parameters), "novel": shown(answer.novel)},
        **_ranks(answer.ranks),
        **({"host": dict(_tree(answer.host))} if answer.host else {}),
        **_unmodelled((*asked.unmodelled, *answer.unmodelled)),
    }


def _speed(block: dict[str, Any], slow: Iterable[Unmodelled]) -> Groups:
    """The speed block and its seconds by term."""
    said = {name: value for name, value in block.items() if name not in ("terms", "intervals", "unknowns", "convention")}
    return {"speed": dict(_flat("", said)), "terms": dict(_tree(block.get("terms", ()))), **_unmodelled(slow)}


def _plan(forecast: Forecast) -> Groups:
    """All that planning says: verdict, limits, intervals, advice, cards."""
    fit, changes = forecast.fit, forecast.advice
    ranks = ((r.rank, {"needed": r.needed_bytes, **(r.interval.as_dict() if r.interval else {})}) for r in forecast.ranks)
    return {
        "fit": {**_fields(fit), "exit": shown(_exit_code(forecast))},
        "limits": _fields(forecast.limits),
        **{f"rank {shown(name)}": {k: shown(v) for k, v in values.items()} for name, values in ranks},
        **{f"advice {n}": _fields(change) for n, change in enumerate(changes, 1)},
        **{f"card {n}": _fields(row) for n, row in enumerate(forecast.cards, 1)},
        "assumed": {shown(a.name): shown(a.value) for a in forecast.assumed} if "recipe" not in forecast.workload else {},
        **_unmodelled(forecast.unmodelled),
    }


def _exit_code(forecast: Forecast) -> int:
    from vramcast.planning.verdict import exit_code

    return exit_code(forecast.fit)


def _ranks(ranks: Iterable[RankMemory]) -> Groups:
    """Counters of each kind of rank, every moment's total, and the terms of its peak down to the leaves."""
    groups: Groups = {}
    for rank in ranks:
        names = ("allocated", "reserved", "device", "needed", "claimed", "first_step")
        counters = {name: getattr(rank, f"{name}_bytes") for name in names}
        said = {
            name: value for name, value in counters.items() if value is not None and value != counters.get(_ALIKE.get(name, ""))
        }
        groups[f"rank {shown(rank.rank)}"] = {name: shown(value) for name, value in said.items()}
        groups[f"moments {shown(rank.rank)}"] = {shown(i.name): shown(i.bytes) for i in rank.instants}
        groups[f"terms {shown(rank.rank)}"] = dict(_tree(rank.terms))
    return groups


def _tree(terms: Iterable[Term], above: str = "") -> Iterable[tuple[str, str]]:
    """Every term with the names above it; a second one of a name is told by its number; what is nothing is left out."""
    seen: dict[str, int] = {}
    for term in terms:
        seen[term.name] = seen.get(term.name, 0) + 1
        name = above + shown(term.name) + (f"#{seen[term.name]}" if seen[term.name] > 1 else "")
        if term.value:
            yield name, shown(term.value)
        yield from _tree(term.terms, f"{name}.")


def _unmodelled(parts: Iterable[Unmodelled]) -> Groups:
    bounds = [part.bound_bytes for part in parts]
    return {"unmodelled": {"parts": shown(len(bounds)), "bound": shown(sum(b or 0 for b in bounds))}} if bounds else {}


def _fields(value: msgspec.Struct) -> dict[str, str]:
    said = ((name, getattr(value, name)) for name in value.__struct_fields__)
    return {name: shown(held) for name, held in said if held not in (None, "", (), 0, False)}


def _flat(above: str, value: Any) -> Iterable[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flat(f"{above}{'.' if above else ''}{shown(name)}", inner)
    elif value is not None:
        yield above, shown(value)


@cache
def configs() -> dict[str, dict[str, Any]]:
    """Configs of configs.jsonl by id: of published ones, the fields that decide what the model is."""
    rows = (json.loads(line) for line in CONFIGS.read_text("utf-8").splitlines())
    return {row["id"]: row["config"] for row in rows}


@cache
def _read(name: str) -> Model:
    """A config of configs.jsonl by its id after ``config:``, or a model as users name it."""
    if name.startswith("config:"):
        held = name.removeprefix("config:")
        return _of_config(configs()[held], held)
    return read_model(name, offline=True)


def _changed(name: str, words: list[str]) -> Model:
    """The model of a config of configs.jsonl under ``field=value`` changes; ``text_config.field=value`` for a nested one."""
    raw = json.loads(json.dumps(configs()[name.removeprefix("config:")]))
    for word in words:
        path, _, value = word.partition("=")
        *above, field = [path] if path in raw or "general.architecture" in raw else path.split(".")
        inner = raw
        for part in above:
            inner = inner.setdefault(part, {})
        inner[field] = json.loads(value) if value[:1] in "-0123456789[{tfn" else value
    return _of_config(raw, name)


def _of_config(raw: dict[str, Any], name: str) -> Model:
    """The model of a config.json, or of a GGUF header where the architecture is told its way."""
    from vramcast.models.families.gguf import read_metadata
    from vramcast.models.sources.described import from_config

    if "general.architecture" in raw:
        return read_metadata({k: v for k, v in raw.items() if k != "tied"}, tied=raw.get("tied"))
    return from_config(raw, name=name, where="config.json")


def _model(model: Model) -> Groups:
    """What a model is: counts, and per block and tower the elements by role, with a check sum over every tensor's facts."""
    counts = {n: getattr(model, n) for n in ("hidden", "vocab", "layers", "parameters", "active_parameters", "stored_parameters",
              "matmul_flops", "positions", "dtype", "tied", "family", "text_class")}  # fmt: skip
    groups = {"counts": {name: shown(value) for name, value in counts.items()}, "ends": _roles(model.tensors)}
    if model.facts:
        groups["facts"] = {shown(name): shown(value) for name, value in model.facts.items()}
    if model.unmodelled:
        groups["unmodelled"] = {"parts": shown(len(model.unmodelled))}
    for number, block in enumerate(model.blocks):
        groups |= _block(f"block {number}", block)
    for tower in model.towers:
        name = f"tower {shown(tower.name)}"
        facts = {shown(k): shown(v) for k, v in tower.facts.items()}
        groups[name] = {"kind": tower.kind, "hidden": shown(tower.hidden), "stored_only": shown(tower.stored_only), **facts}
        groups[f"{name} own"] = _roles(tower.tensors)
        for number, block in enumerate(tower.blocks):
            groups |= _block(f"{name} block {number}", block)
    return groups


def _sums(said: Groups) -> Groups:
    """The counts alone, and one check sum over all else that is said of a model."""
    counts = {name: said["counts"][name] for name in ("parameters", "active_parameters", "stored_parameters")}
    return {"sums": {**counts, "all": _sum_of(said)}}


def _block(name: str, block: Block) -> Groups:
    parts = [*block.mixers, *((block.feedforward,) if block.feedforward else ()), *((block.cross,) if block.cross else ())]
    held = {
        f"{type(p).__name__}.{k}": shown(v)
        for p in parts
        for k, v in msgspec.structs.asdict(p).items()
        if v not in (None, 0, False)
    }
    cache_elements = {"cache": sum(getattr(m, "cache_elements", 0) for m in block.mixers)}
    marks = {"count": block.count, "indices": _sum_of(block.indices), "shares": block.shares_cache, "parallel": block.parallel}
    return {
        name: {k: shown(v) for k, v in {**marks, **cache_elements}.items() if v} | held,
        f"{name} tensors": _roles(block.tensors),
    }


def _roles(tensors: Iterable[Any]) -> dict[str, str]:
    """Elements by role, and one check sum over names, shapes, axes, groups and types."""
    found: dict[str, int] = {}
    for tensor in tensors:
        found[tensor.role] = found.get(tensor.role, 0) + tensor.elements
    return {shown(role): shown(elements) for role, elements in found.items()} | {
        "all": _sum_of(msgspec.to_builtins(tuple(tensors)))
    }


def _sum_of(value: object) -> str:
    return f"x{zlib.crc32(msgspec.json.encode(value)):08x}"


def _card(name: str) -> Groups:
    card = least_card(name)
    held = {k: v for k, v in msgspec.structs.asdict(card).items() if k not in ("sources", "keys", "aliases", "note", "inferred")}
    return {"card": dict(_flat("", held)), "unified": {"memory": shown(card.unified)}}
