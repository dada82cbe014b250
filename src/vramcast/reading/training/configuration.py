"""A configuration's keys read into settings: its format, a format's section in a program's own file, and which run is meant."""

from typing import Any

from vramcast.errors import QuestionError
from vramcast.reading.training import model_names, objectives, shared
from vramcast.reading.training.formats import by_rules, embedded, format_of, rules_of
from vramcast.reading.training.hydra import interpolated
from vramcast.reading.training.keys import flat, underscored
from vramcast.reading.training.settings import Settings
from vramcast.untrusted import printable

_OF_ONE_FORMAT = 4  # keys of a section that make it one of its neighbour's format
_POINTERS = {"config_path", "config_file", "config", "path", "file"}  # a section that only says where DeepSpeed's file lies
_OBJECTIVES = ("sft", "dpo", "kto", "orpo", "grpo", "ppo", "rm", "cpt", "pretrain")  # sections of a run each
_REPEATED = 2  # settings of a step that a section says again: it is a run of its own, no part of this one


def apply_configuration(mapping: dict[str, Any], settings: Settings, *, where: str, otherwise: str = "") -> str:
    """Read a configuration; ``otherwise``: the format that stands for keys of none known. Returns the format."""
    inline = mapping.get("deepspeed")
    if isinstance(inline, dict) and (set(inline) <= _POINTERS or rules_of("deepspeed").SIGNATURE & inline.keys()):
        pointed = next(iter(inline.values())) if set(inline) <= _POINTERS and len(inline) == 1 else inline
        settings.put("file.deepspeed", pointed, f"{where}: deepspeed")
        mapping = {key: value for key, value in mapping.items() if key != "deepspeed"}
    mapping = of_one_run(mapping, settings)
    keys = interpolated(underscored(flat(mapping)))
    model_names.note(settings, keys, where)
    name = _format_or(keys, where, otherwise)
    if name != "shared" or (found := embedded(mapping)) is None:
        by_rules(name, keys, settings, where=where)
        if name == "huggingface" and not settings.because.get("model", "model_name_or_path").endswith("model_name_or_path"):
            _loads_itself(settings, where)
        objectives.objective_named(settings, _stem(where) if name == "huggingface" else "", where)
        return name
    section, inner = found
    name = format_of(inner, where=where)
    objectives.objective_named(settings, section.rpartition(".")[2], f"{where}: {section}")
    by_rules(name, inner, settings, where=f"{where}: {section}")
    if name == "huggingface":
        _loads_itself(settings, where)
    objectives.objective_named(settings, _stem(where) if name == "huggingface" else "", where)
    taken = [f"{section}.", *_further(mapping, section, name, settings, where)]
    shared.read(settings, {key: value for key, value in keys.items() if not key.startswith(tuple(taken))}, where=where)
    return name


def _further(mapping: dict[str, Any], section: str, name: str, settings: Settings, where: str) -> list[str]:
    """Further sections of the same format, which are read too (TRL's arguments of model and training apart): their prefixes."""
    rules, found = rules_of(name).RULES, []
    for key, value in mapping.items():
        inner = flat(value) if isinstance(value, dict) and key != section.partition(".")[0] else {}
        if len(rules.keys() & inner.keys()) >= _OF_ONE_FORMAT:
            by_rules(name, inner, settings, where=f"{where}: {key}")
            found.append(f"{key}.")
    return found


def _format_or(keys: dict[str, Any], where: str, otherwise: str) -> str:
    try:
        return format_of(keys, where=where)
    except QuestionError:
        if not otherwise:
            raise
        return otherwise


def _stem(where: str) -> str:
    """The name of the file without its ending; "" for a text that has none."""
    return where.partition(":")[0].rpartition(".")[0]


def _loads_itself(settings: Settings, where: str) -> None:
    """A program's own file: TRL's parser takes a model as ``model_name_or_path`` at the root (trl 1.16.0, model_config.py)."""
    because = f"{where}: no file of TRL's own, so its program is taken to load the model and to hand it to the trainer"
    settings.put("model.handed", because, because)


def of_one_run(mapping: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """The keys of one run: a section of another objective that says a step's settings again is told as a further run.

    ``sft:`` and ``dpo:`` with a batch and a learning rate each are two runs, of which the first is answered; beside a step at the
    file's root both are further ones. A section that repeats nothing (``grpo: {num_generations: 8}``) is a part of the run, and
    the one that a key of the root names (``stage: dpo``) is the run.
    """
    sections = {name: part for name, part in mapping.items() if str(name).lower() in _OBJECTIVES and isinstance(part, dict)}
    if not sections:
        return mapping
    plain = {name: value for name, value in mapping.items() if name not in sections}
    chosen = {str(value).lower() for value in plain.values() if isinstance(value, str)} & {str(one).lower() for one in sections}
    order = sorted(sections, key=lambda name: str(name).lower() not in chosen)
    of_root = {} if chosen else {name: value for name, value in plain.items() if not isinstance(value, dict)}
    said, further = _of_a_step(of_root), []
    for name in order:
        own = _of_a_step(sections[name])
        if len(again := [one for one in own if one in said]) >= _REPEATED:
            further.append(name)
            told = f"a run of its own, which says {', '.join(again[:3])} again; another one is answered"
            settings.unread.append(f"{printable(str(name))[:40]} ({told})")
        said += own
    return {name: value for name, value in mapping.items() if name not in further}


def _of_a_step(keys: dict[str, Any]) -> list[str]:
    """What of a step and of how it learns the keys say, whatever each is called: ``batch``, ``seq``, ``learning_rate``."""
    return list(dict.fromkeys(filter(None, map(shared.mark_of, flat(keys)))))
