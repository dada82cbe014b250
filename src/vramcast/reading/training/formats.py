"""The formats of training files by name: their rules, which one a file's keys are of, and how its keys are read."""

import importlib
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Protocol, cast

from vramcast.errors import QuestionError
from vramcast.reading.training import model_names, shared, tables
from vramcast.reading.training.deepspeed import parameters_stay
from vramcast.reading.training.idle_keys import idle_keys
from vramcast.reading.training.keys import OPEN, Rule, apply, flag, flat
from vramcast.reading.training.settings import Settings
from vramcast.untrusted import printable

_DEEPEST_SECTION, _OWN_KEYS = 4, 3
_BY_FILE = ("axolotl", "litgpt")  # whose own commands have names of their own: a person's program with such flags is none
_OF_A_TOOL = 2  # names of a tool's own among the flags of a program: one is anybody's (model_name)
_FOLDED = ("megatron", "megatron_bridge", "torchtitan")  # expert parallelism over the other axes
MODULES = (
    "axolotl", "llama_factory", "llama_factory_v1", "ms_swift", "torchtune", "torchtitan", "litgpt", "llm_foundry", "nemo",
    "verl", "megatron", "huggingface", "accelerate", "deepspeed", "peft_config",
)  # fmt: skip
# names that no other program's files have: one is as good as two
SURE = {
    "deepspeed": frozenset({"zero_optimization", "train_micro_batch_size_per_gpu"}), "verl": frozenset({"actor_rollout_ref"}),
    "accelerate": frozenset({"distributed_type"}),
}  # fmt: skip
# what stands beside a framework's own file and never names the framework first
BESIDE = ("accelerate", "deepspeed", "peft_config")


class Rules(Protocol):
    """What a format has: its name, keys that files of its kind have, rules by key, keys without effect, and a last step."""

    NAME: str
    SIGNATURE: frozenset[str]
    RULES: dict[str, Rule]
    IDLE: tuple[str, ...]

    def finish(self, settings: Settings) -> None:
        """What several keys mean together, and the defaults."""


@cache
def rules_of(name: str) -> Rules:
    """A format's rules: a module's, or those of a recorded table."""
    table = tables.tables().get(name)
    if table is None:
        return cast("Rules", importlib.import_module(f"vramcast.reading.training.{name}"))
    base = importlib.import_module(f"vramcast.reading.training.{table.base}") if table.base else None
    return tables.Format(table, base)


def formats() -> tuple[str, ...]:
    """Every format's name: those of modules, then the recorded tables."""
    return *MODULES, *tables.tables()


def sure_of(name: str) -> frozenset[str]:
    """The names that no other program's files have."""
    table = tables.tables().get(name)
    return frozenset(table.sure.split()) if table else SURE.get(name, frozenset())


def _names_in(keys: Iterable[str]) -> set[str]:
    """The keys and every section that they stand in."""
    return {".".join(parts[:end]) for key in keys for parts in (key.split("."),) for end in range(1, len(parts) + 1)}


_SWITCHES = ("enabled", "enable", "is_enabled")


def switched(keys: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """The keys without those of sections that a switch turns off, told as idle.

    It stands in the section (``lora_cfg.enabled: false``) or beside it (``use_unsloth: false``, ``unsloth_configs:``).
    """
    off = _switched_off_beside(keys) + tuple(
        f"{section}."
        for key, value in keys.items()
        for section, _, leaf in (key.rpartition("."),)
        if section and leaf in _SWITCHES and flag(value) is False
    )
    if not off:
        return keys
    dropped = [key for key in keys if any(key.startswith(section) and not _stays(key, section) for section in off)]
    settings.idle += [f"{key} (switched off)" for key in dropped]
    return {key: value for key, value in keys.items() if key not in set(dropped)}


_OF_QUANTISATION = "quantization|quant|bitsandbytes|bnb"
_SECTION_ENDS = "(?:_(?:configs?|cfg|args|kwargs|params|settings))?"


def _switched_off_beside(keys: dict[str, Any]) -> tuple[str, ...]:
    """The sections, with a dot behind, that a ``use_NAME`` or ``is_NAME`` at their side turns off; an empty one does too."""
    off: list[str] = []
    for key, value in keys.items():
        above, _, leaf = key.rpartition(".")
        named = re.fullmatch(r"(?:(?:use|enable|is)_)?(quantized?)|(?:use|enable|is)_(\w+)", leaf.lower())
        if named is None or not (flag(value) is False or value in (None, "")):
            continue
        place = rf"{re.escape(above)}\." if above else ""
        name = _OF_QUANTISATION if named[1] else re.escape(named[2])
        section = re.compile(rf"{place}(?i:(?:{name}){_SECTION_ENDS})\.")
        off += [found[0] for one in keys if (found := section.match(one))]
    return tuple(dict.fromkeys(off))


def _stays(key: str, section: str) -> bool:
    """The section's own switch, and the cards that a role has where it does not share those of another."""
    return key.removeprefix(section) in _SWITCHES or ".resources." in key


def _is_off(key: str, keys: dict[str, Any]) -> bool:
    """Whether a key is a section's own switch, turned off."""
    return key.rpartition(".")[2] in _SWITCHES and flag(keys.get(key)) is False


def by_rules(name: str, keys: dict[str, Any], settings: Settings, *, where: str, launch: tuple[str, ...] = ()) -> None:
    """Read a file's keys by its format's rules, then those left over by the names that programs share."""
    keys = switched(keys, settings)
    model_names.note(settings, keys, where)
    if name == "shared":
        starts = {key for key in keys if shared.rule_of(key) is None and any(fnmatchcase(key, one) for one in launch)}
        settings.idle += sorted(starts)
        shared.read(settings, {key: value for key, value in keys.items() if key not in starts}, where=where)
        return
    rules = rules_of(name)
    apply(settings, keys, rules.RULES, (*rules.IDLE, *launch, *idle_keys(name)), where=where)
    off = {line for line in settings.unread if _is_off(line.split(" ", 1)[0], keys)}
    settings.idle += [f"{line.split(' ', 1)[0]} (off)" for line in settings.unread if line in off]
    settings.unread[:] = [line for line in settings.unread if line not in off]
    if name not in BESIDE and name not in tables.tables():
        shared.also(settings, keys, where=where, generic=name == "huggingface")


def embedded(mapping: dict[str, Any], above: str = "") -> tuple[str, dict[str, Any]] | None:
    """The section that is a file of a known format by itself, by three keys of its own: its dotted name and its keys."""
    for key, value in mapping.items():
        place = f"{above}{key}"
        if isinstance(value, dict) and place.count(".") < _DEEPEST_SECTION:
            inner = flat(value)
            names = _names_in(inner)
            if max(len(rules_of(name).SIGNATURE & names) for name in formats()) >= _OWN_KEYS:
                return place, inner
            if (found := embedded(value, f"{place}.")) is not None:
                return found
    return None


def format_of(keys: dict[str, Any], *, where: str) -> str:
    """The format whose own keys a file has most of. Raises QuestionError when it has none of any."""
    names = _names_in(keys)
    scores = {name: len(rules_of(name).SIGNATURE & names) for name in formats()}
    best = max(formats(), key=lambda name: scores[name])
    if best == "huggingface":  # its keys are LLaMA-Factory's and ms-swift's too: two of their own decide
        best = max(("llama_factory", "ms_swift"), key=lambda name: scores[name])
        best = best if scores[best] >= 2 else _of_family(scores) or "huggingface"
    marks = shared.marks(keys)
    if scores[best] <= 1 and (marks >= shared.FEWEST or (marks and best in _BY_FILE)):
        # one key may be anybody's: the rules that read more of the file decide
        own = sum(key in rules_of(best).RULES for key in keys) if scores[best] else 0
        if own <= sum(shared.rule_of(key) is not None for key in keys):
            return "shared"
    if not scores[best]:
        known = ", ".join(rules_of(name).NAME for name in formats())
        raise QuestionError(
            f"{where} is no training configuration known here: its keys are {', '.join(list(keys)[:6])}; known: {known}"
        )
    return best


def _of_family(scores: dict[str, int]) -> str:
    """The recorded program whose own flags a copy of it has beside TrainingArguments' own (LLaVA's under another folder)."""
    family = [name for name, table in tables.tables().items() if table.base == "huggingface"]
    best = max(family, key=lambda name: scores[name])
    return best if scores[best] >= _OWN_KEYS else ""


def format_of_flags(given: dict[str, Any], where: str, scripts: list[str]) -> str:
    """The format of a command's flags; a launcher with a DeepSpeed file starts a program of its own, whatever its flags are.

    Raises QuestionError where the flags are of none known, naming the program that holds the settings.
    """
    try:
        found = format_of(given, where=where)
        told = len(rules_of(found).SIGNATURE & _names_in(given)) >= _OF_A_TOOL or sure_of(found) & _names_in(given)
        anybodys = found in _BY_FILE or not (told or found in ("shared", "huggingface"))
        return "shared" if scripts and anybodys else found
    except QuestionError:
        if {"deepspeed", "deepspeed_config"} & given.keys():
            return "shared"
        held = next((str(one) for one in (given.get("config"), *scripts) if isinstance(one, str)), "")
        if not held:
            raise
        if OPEN.search(held.rsplit("/", 1)[-1]):
            raise QuestionError(
                f"{where} gives no sizes of its own: a variable that nobody set ({printable(held)[:60]}) names the file that "
                f"holds them; give that file too, vramcast train --from {where} --from FILE"
            ) from None
        held = printable(held.rsplit("/", 1)[-1])[:80]
        raise QuestionError(
            f"{where} gives no sizes of its own: {held} holds them; give it too, vramcast train --from {where} --from {held}"
        ) from None


def cards_of_layout(settings: Settings) -> None:
    """As many cards as the layout asks for, where nobody says how many there are."""
    sizes = {name: settings.get(f"parallel.{name}") or 1 for name in ("tp", "pp", "cp", "ep", "replicate", "shard")}
    if settings.get("gpus") or not all(isinstance(size, int) for size in sizes.values()):
        return
    model = sizes["tp"] * sizes["pp"] * sizes["cp"]
    inner = sizes["tp"] * sizes["cp"] if settings.get("framework") in _FOLDED else 1  # ranks that experts are spread over too
    needed = model * max(sizes["replicate"] * sizes["shard"], -(-sizes["ep"] // inner))
    if needed > 1:
        settings.put("gpus", needed, "the fewest cards that its layout fits on, where it does not say how many")


_SCHEMES = {"awq": "awq", "gptq": "gptq", "bnb-4bit": "nf4", "bnb_4bit": "nf4"}
_SCHEME_NAMED = re.compile(r"(?<![a-z])(awq|gptq|bnb[-_]4bit)(?![a-z])", re.I)


_BY_NAME = "the name of "


def quantised_by_name(settings: Settings, typed: str = "") -> None:
    """Adapters over a checkpoint whose name says that it is quantised: it is loaded as it lies, whatever the file leaves out.

    ``typed``: a model that stands before the file's, with what its own name says instead.
    """
    model = typed or str(settings.get("model", ""))
    if typed and settings.get("quant") and settings.because["quant"].startswith(_BY_NAME):
        settings.drop("quant")
        settings.replace("method", "lora")
    named = _SCHEME_NAMED.search(model.rpartition("/")[2])
    if named and settings.get("method") == "lora" and not settings.get("quant"):
        settings.put("quant", _SCHEMES[named[1].lower()], f"{_BY_NAME}{model}")
        settings.replace("method", "qlora")


def settle(settings: Settings) -> None:
    """What the settings of all the files mean together, whatever their formats."""
    loaded = settings.get("param_dtype")
    if settings.get("off.autocast") and settings.get("compute_dtype") == "float32" and loaded in ("bfloat16", "float16"):
        settings.replace("compute_dtype", loaded, settings.because["off.autocast"])
        settings.put("options.autocast", False, settings.because["off.autocast"])
    cards_of_layout(settings)
    parameters_stay(settings)
    quantised_by_name(settings)


def finish_format(name: str, settings: Settings) -> None:
    """A format's last step, over all its keys. Raises QuestionError for values that no such file can hold."""
    try:
        rules_of(name).finish(settings)
    except (TypeError, ValueError, ArithmeticError, AttributeError, LookupError) as error:
        raise QuestionError(f"{rules_of(name).NAME}: its values cannot stand together: {str(error)[:120]}") from None
