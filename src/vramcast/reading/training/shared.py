"""Keys that training programs share: what one means by its name alone, whatever program the file belongs to.

Most programs name the same few things alike (``micro_batch_size``, ``lora_r``, ``tensor_parallel_size``), each in sections of
its own. A program with a table of its own is read by that; the keys that it leaves open, and files of programs without one, are
read here. What is said of other models and other phases (a reward model, an engine for rollouts, evaluation) is passed over.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from vramcast.errors import QuestionError
from vramcast.reading.training import huggingface
from vramcast.reading.training.idle_keys import idle_anywhere
from vramcast.reading.training.keys import OPEN, named_at_end, read_key
from vramcast.reading.training.settings import Settings
from vramcast.reading.training.shared_names import ELSEWHERE, RULES, rule_of

__all__ = ["IDLE", "NAME", "RULES", "SIGNATURE", "also", "finish", "marks", "read", "rule_of"]

NAME = "another program's configuration, by the names that training programs share"
SIGNATURE: frozenset[str] = frozenset()
WITHOUT_RULES = "of a program without rules of its own here"
FEWEST = 3  # marks of training before a file of an unknown program counts as one
IDLE: tuple[str, ...] = ()
_MARKS = frozenset(
    {"micro_batch", "global_batch", "accumulate", "adapter.rank", "zero", "cards.each", "cards.nodes", "seq", "size.any"}
)
_PHRASES = re.compile(
    r"(?:learning_rate|lr|lr_scheduler\w*|num_train_epochs|num_epochs|total_epochs|max_epochs|max_steps|train_iters|total_steps|"
    r"weight_decay|warmup\w*|lr_warmup\w*|optim|optimizer|checkpoint_activations|\w*gradient_checkpointing|max_iters|num_steps|steps|iters|epochs|load_in_4bit|load_in_8bit|lora_alpha|output_dir|save_strategy)"
)
_SIZES = frozenset({"micro_batch", "global_batch", "accumulate", "size.any"})


def marks(keys: Iterable[str]) -> int:
    """How many things that only training has these keys name; 0 where none says how much a step takes."""
    found: set[str] = set()
    sized = False
    for key in keys:
        leaf = key.lower().replace("-", "_").rsplit(".", 1)[-1]
        rule = rule_of(key)
        if isinstance(rule, tuple) and rule[0] in _MARKS:
            found.add(rule[0])
            sized = sized or rule[0] in _SIZES
        elif _PHRASES.fullmatch(leaf) and not ELSEWHERE & set(key.lower().split(".")[:-1]) - {"scheduler", "lr_scheduler"}:
            found.add(leaf)
    return len(found) if sized or ("adapter.rank" in found and len(found) >= FEWEST) else 0


def mark_of(key: str) -> str:
    """What a key by its last name says of a step or of how it learns (``batch``, ``seq``, ``learning_rate``); "" for nothing."""
    leaf = key.lower().replace("-", "_").rpartition(".")[2]
    rule = rule_of(leaf)
    if isinstance(rule, tuple) and rule[0] in _MARKS:
        return "batch" if rule[0] in _SIZES - {"accumulate"} else rule[0]
    return leaf if _PHRASES.fullmatch(leaf) else ""


def read(settings: Settings, keys: Mapping[str, Any], *, where: str) -> None:
    """Read every key of a file by the names that programs share; the rest is told as unread, in one line."""
    rest: list[str] = []
    keys = {**keys, **_longest_of_lists(keys)}
    for key, value in keys.items():
        if not _taken(settings, key, value, where):
            (settings.idle if idle_anywhere(key) else rest).append(key)
    if rest:
        more = f" and {len(rest) - _SHOWN} more" if len(rest) > _SHOWN else ""
        settings.unread.append(f"{', '.join(rest[:_SHOWN])}{more} {WITHOUT_RULES}")
    together(settings, where)


def _longest_of_lists(keys: Mapping[str, Any]) -> dict[str, int]:
    """The longest length that entries of a list say (``[[datasets]] sequence_len = 2048``), by its dotted name."""
    found: dict[str, int] = {}
    for key, value in keys.items():
        for entry in value if isinstance(value, list) else ():
            for name, inner in entry.items() if isinstance(entry, dict) else ():
                if isinstance(inner, int) and isinstance(rule := RULES.get(str(name)), tuple) and rule[0] == "seq":
                    found[f"{key}.{name}"] = max(inner, found.get(f"{key}.{name}", 0))
    return found


_SHOWN = 12


def also(settings: Settings, keys: Mapping[str, Any], *, where: str, every: bool = False, generic: bool = False) -> None:
    """Read by their shared names the keys that the rules of a file's own format left unread; ``every``: all of them.

    ``generic``: the format is anybody's, so that what costs nothing in any program costs nothing at its root either.
    """
    if every:
        for key, value in keys.items():
            _taken(settings, key, value, where)
    for key, value in _longest_of_lists(keys).items() if settings.get("seq") is None else ():
        _taken(settings, key, value, where)
    unread = list(settings.unread)
    settings.unread.clear()  # a rule may tell a key again
    for line in unread:
        key = line.split(" ", 1)[0]
        if key not in keys or not _taken(settings, key, keys[key], where):
            plain = line.split(" (did you mean", 1)[0]
            costless = plain == key and (generic or "." in key) and idle_anywhere(key) and not ELSEWHERE & set(key.split("."))
            (settings.idle if costless else settings.unread).append(plain if costless else line)
    for key in [one for one in settings.idle if "." in one and one in keys]:  # a section's name is not the key's
        rule = rule_of(key)
        if isinstance(rule, tuple) and rule[0].startswith("parallel.") and _taken(settings, key, keys[key], where):
            settings.idle.remove(key)
    together(settings, where)


def _taken(settings: Settings, key: str, value: Any, where: str) -> bool:
    """Whether a key was read; one whose value is open is told, and holds its place against defaults."""
    rule = rule_of(key)
    if rule is None or isinstance(value, dict):
        return False
    named = rule in (RULES["model_name_or_path"], RULES["model_path"]) and named_at_end(value)
    if isinstance(value, str) and OPEN.search(value) and not named:
        settings.leave_open(rule[0] if isinstance(rule, tuple) else "", value)
        return False
    if value in (None, "") and isinstance(rule, tuple) and rule[0] == "adapter.on":
        settings.put(rule[0], False, f"{where}: {key}, which is empty")
    if value is None:
        return True
    try:
        read_key(settings, rule, key, value, where)
    except QuestionError:
        return False  # the name is shared, the meaning is not
    return True


def _size_apart(settings: Settings) -> int | None:
    """``batch_size`` where it has not told the micro-batch already, in the command that starts its program."""
    return None if settings.because.get("micro_batch", "").endswith(": batch_size") else settings.get("size.any")


def together(settings: Settings, where: str) -> None:
    """Lengths and cards that two keys give together."""
    source, target = settings.get("length.source"), settings.get("length.target") or settings.get("length.generated")
    if source and target:
        settings.put("seq", source + target, f"{where}: the longest prompt and the longest answer")
    elif source or target:  # one part alone decides nothing
        told = next(name for name in ("length.source", "length.target", "length.generated") if settings.get(name))
        key, other = settings.because[told].rpartition(": ")[2], "answer" if told == "length.source" else "prompt"
        if settings.get("seq"):  # the whole length decides
            settings.overruled.append(f"{key} ({settings.because['seq']})")
        else:
            settings.unread.append(f"{key} (the longest {other} is not said, so the two do not give a length)")
    if settings.get("size.rollouts") and settings.get("size.any"):  # answers of a step over all cards
        settings.unread.append(f"batch_size ({settings.get('size.any')} answers of a step: how many a card takes is not said)")
    elif size := _size_apart(settings):  # beside a micro-batch the whole, by itself what a card takes at once
        settings.put("global_batch" if settings.get("micro_batch") else "micro_batch", size, f"{where}: batch_size")
    if settings.get("off.deepspeed") and "file.deepspeed" in settings.values:
        settings.overruled.append(
            f"{settings.because['file.deepspeed'].rsplit(': ', 1)[-1]} ({settings.because['off.deepspeed']})"
        )
        settings.drop("file.deepspeed")
    if settings.get("host.asked"):  # DeepSpeed-Chat, get_train_ds_config: both on the host
        if settings.get("zero") is None:
            settings.unread.append("offload (of what, it does not say)")
        for part in ("parameters", "optimizer") if settings.get("zero") is not None else ():
            settings.add("offload", part, f"{where}: offload")
    tokens, longest = settings.get("tokens.at_once"), settings.get("seq")
    if tokens and longest and settings.get("micro_batch") is None:  # packed up to this many on a card
        settings.put("micro_batch", max(1, tokens // longest), f"{where}: {tokens:,} tokens at once")
    each, nodes, whole_ = (settings.get(f"cards.{name}") for name in ("each", "nodes", "all"))
    if each or whole_:
        settings.put("gpus", whole_ or each * (nodes or 1), f"{where}: its cards")
    settings.drop(
        "size.any",
        "size.rollouts",
        "length.source",
        "length.target",
        "length.generated",
        "cards.each",
        "cards.nodes",
        "cards.all",
        "host.asked",
        "off.deepspeed",
        "tokens.at_once",
    )


def finish(settings: Settings) -> None:
    """What several keys mean together; the framework stays open but where only some can hold the layout."""
    sizes = [settings.get(f"parallel.{name}") or 1 for name in ("tp", "pp", "cp", "ep")]
    if max(sizes) > 1:
        of_megatron = settings.get("shape.layers") or settings.get("parallel.sp") is not None
        framework = "megatron" if of_megatron and not settings.get("fsdp") else "torchtitan"
        settings.put(
            "framework", framework, "the program has no rules of its own here: tensor, pipeline or expert parallel as there"
        )
    huggingface.adapters(settings)
