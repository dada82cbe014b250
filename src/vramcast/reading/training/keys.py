"""A format's keys as a table: where each value goes, and how it is read from what people write."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from vramcast.errors import QuestionError, nearest
from vramcast.reading.training.settings import UNSET, Settings
from vramcast.units import dtype_name, parse_count
from vramcast.untrusted import shown

Convert = Callable[[Any], Any]
Handler = Callable[[Settings, Any, str], None]
Rule = tuple[str, Convert] | Handler
OPEN = re.compile(
    r"^\$|\$\{|\{\{|^<[^<>]{1,100}>$|^\[(?:num|your|path|insert|model)\w{0,60}\]$|"
    r"^(?:TO_BE_FILLED|TODO|TBD|FIXME|CHANGE_?ME)(?=/|$)",
    re.I,
)  # a template's or a shell's name, not resolved; <what to put here>
# Keys that name a further model: it scores, teaches or values while the trained one learns.
_BESIDE = re.compile(r"(?:^|\.)(?:reward|teacher|critic|value|judge)_(?:model|pretrain)(?:_name_or_path|_path|_name|_id)?$")
DEEPEST, MOST_KEYS, _DASHED = 12, 3000, 3
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


def whole(value: Any) -> int | None:
    """A whole number, also as ``1_000``, ``4k`` or text; None for what is unset. Raises ValueError for one below zero."""
    if value in UNSET:
        return None
    if isinstance(value, (int, float)) and not value >= 0:
        raise ValueError("expected a whole number, at least 1")
    if "," in str(value) and not re.fullmatch(r"\d{1,3}(?:,\d{3})+", str(value)):
        raise ValueError("expected one whole number")
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    if re.fullmatch(r"\s*-\d{1,12}", str(number)):
        raise ValueError("expected a whole number, at least 1")
    found = number if isinstance(number, int) else parse_count(str(value), what="a size")
    return found if found >= 1 else None


def natural(value: Any) -> int | None:
    """A whole number from zero on."""
    return 0 if str(value) == "0" else whole(value)


def number(value: Any) -> float | None:
    """A number; None for what is unset."""
    return None if value in UNSET else float(value)


def flag(value: Any) -> bool | None:
    """A switch, also written as a word; a bare flag of a command line is on."""
    if value in UNSET:
        return None
    text = str(value).lower()
    return True if text in _TRUE else False if text in _FALSE else None


def text(value: Any) -> str | None:
    """A word; None for what is unset."""
    return None if value in UNSET else str(value)


# A list that a shell hands over as words: '["q_proj", "v_proj"]', '(q_proj, v_proj)'; no pattern: '(q_proj|v_proj)'.
_LISTED = re.compile(r"\s*(?:\[[^\[\]]*\]|\([^()|*]*,[^()|*]*\))\s*")


def names(value: Any) -> tuple[str, ...] | None:
    """A list of names, also as one string with commas or spaces."""
    if value in UNSET:
        return None
    if isinstance(value, list | tuple) and len(value) == 1 and isinstance(value[0], list | tuple):  # ([...],) of a dataclass
        value = value[0]
    whole = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    if _LISTED.fullmatch(whole):
        return tuple(filter(None, (one.strip("[]()\"'") for one in whole.replace(",", " ").split()))) or None
    return tuple(map(str, value) if isinstance(value, list | tuple) else whole.replace(",", " ").split()) or None


def dtype(value: Any) -> str | None:
    """The torch name of a dtype; None for auto."""
    found = text(value)
    return dtype_name(found) if found else None


def one_of(meanings: Mapping[str, Any]) -> Convert:
    """A word by its meaning here; unknown words stay as they are."""
    return lambda value: meanings.get(str(value).lower(), None if value in UNSET else value)


def when(meaning: Any, otherwise: Any = None) -> Convert:
    """``meaning`` where the switch is on, ``otherwise`` where it is off."""
    return lambda value: {True: meaning, False: otherwise, None: None}[flag(value)]


def flat(mapping: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one with dotted names; lists stay whole. Raises QuestionError beyond what any configuration has."""
    found: dict[str, Any] = {}
    if prefix.count(".") > DEEPEST:
        raise QuestionError(f"{prefix[:60]} is nested deeper than {DEEPEST} levels: is this a training configuration?")
    for key, value in mapping.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{name}.")
        else:
            found[name] = value
        if len(found) > MOST_KEYS:
            raise QuestionError(f"more than {MOST_KEYS:,} keys: is this a training configuration?")
    return found


def underscored(keys: dict[str, Any]) -> dict[str, Any]:
    """Keys with ``_`` where a file has the dashes of flags (``num-layers``, as GPT-NeoX takes them both ways)."""
    if sum("-" in key.split(".", 1)[0] for key in keys) < _DASHED:
        return keys
    return {key.replace("-", "_"): value for key, value in keys.items()}


def apply(settings: Settings, mapping: Mapping[str, Any], rules: Mapping[str, Rule], idle: Iterable[str], *, where: str) -> None:
    """Read every key of ``mapping``: by its rule, as idle, or as unread. Raises QuestionError for a value that cannot be."""
    quiet = tuple(idle)
    for key, value in mapping.items():
        rule = rules.get(key)
        if rule is None and _BESIDE.search(key) and isinstance(value, str) and "/" in value:
            settings.unread.append(f"{key}: a model beside the trained one, which is not counted")
        elif rule is None:
            known = key in quiet or any(
                key.startswith(word[:-1]) if word.endswith("*") else key.endswith(word[1:]) for word in quiet if "*" in word
            )
            (settings.idle if known else settings.unread).append(key if known else _perhaps(key, (*rules, *quiet)))
        elif isinstance(rule, tuple) and rule[0] == "file.deepspeed" and (leaf := _leaf(value)):
            settings.put(rule[0], leaf, f"{where}: {key}")
        elif isinstance(rule, tuple) and rule[0] == "model" and named_at_end(value):
            settings.put(rule[0], str(value), f"{where}: {key}")
        elif isinstance(rule, tuple) and rule[0] == "zero" and (stage := _stage_named(value)):
            settings.put("zero", int(stage[1]), f"{where}: {key}, {stage[0]} by its name")
            settings.unread += [f"{key} ({value}: what it keeps on the host)"] if "offload" in value.lower() else []
        elif any(isinstance(one, str) and OPEN.search(one) for one in (value if isinstance(value, list) else [value])):
            settings.unread.append(f"{key} ({value})")
            settings.leave_open(rule[0] if isinstance(rule, tuple) else "", value)
        elif value in (None, "") and isinstance(rule, tuple) and rule[0] == "adapter.on":
            settings.put(rule[0], False, f"{where}: {key}, which is empty")  # every program takes an empty switch for off
        elif value is not None and value != "":
            settings.refused = ""
            read_key(settings, rule, key, value, where)
            if settings.refused:
                settings.overruled.append(f"{key} ({settings.because[settings.refused]})")


def named_at_end(value: Any) -> bool:
    """Whether a path whose folder a variable holds names a model itself: ``${HOME}/models/Qwen2.5-7B``."""
    leaf = value.rstrip("/").rsplit("/", 1)[-1] if isinstance(value, str) and "/" in value else ""
    return bool(OPEN.search(str(value))) and bool(re.search(r"\d", leaf)) and not re.search(r"[$<>{}]", leaf)


def _stage_named(value: Any) -> re.Match[str] | None:
    """The stage that an open placeholder's own name tells: ``${deepspeed_zero3}``."""
    is_open = isinstance(value, str) and OPEN.search(value)
    return re.search(r"zero[-_]?([0-3])(?!\d)", value, re.I) if is_open else None


def _leaf(value: Any) -> str:
    """The name of a file whose folder a variable holds (``${HOME}/configs/zero2.json``); "" for what is none."""
    leaf = value.rsplit("/", 1)[-1] if isinstance(value, str) and OPEN.search(value) else ""
    return leaf if leaf.endswith((".json", ".yaml", ".yml")) and not OPEN.search(leaf) else ""


def _perhaps(key: str, known: Iterable[str]) -> str:
    """An unknown key, with the known one that it may be a misspelling of."""
    meant = nearest(key, known, most=1, cutoff=0.85)
    return f"{key} (did you mean {meant[0]}?)" if meant else key


def read_key(settings: Settings, rule: Rule, key: str, value: Any, where: str) -> None:
    """Read one key by its rule. Raises QuestionError for a value that cannot be."""
    because = f"{where}: {key}"
    if isinstance(rule, tuple) and rule[0] == "seq" and str(value) == "-1":  # ms-swift's and others' word for no limit
        settings.unread.append(f"{key} (-1: samples are not cut; the longest decides, --seq N says it)")
        return
    try:
        if isinstance(rule, tuple):
            settings.put(rule[0], rule[1](value), because)
        else:
            rule(settings, value, because)
    except (TypeError, ValueError, ArithmeticError, AttributeError, LookupError) as error:
        raise QuestionError(f"{where}: {shown(key)} is {shown(value)}, which cannot be read: {str(error)[:80]}") from None
