"""Flags of a launch by what is known of them: those that decide, each with its place; those without effect; those nobody reads.

A value that the engine's table does not know is named with the rest; nothing is dropped without a word.
"""

from collections.abc import Iterable

import msgspec

from vramcast.ledger import Assumption, Unmodelled
from vramcast.reading.serving.flags import Flag, is_idle, is_speed, taken_apart
from vramcast.reading.serving.launch import Launch
from vramcast.reading.shell import open_names
from vramcast.serving.engines.options import Option
from vramcast.untrusted import printable

_UNSET = frozenset({"", "none", "null", "None", "auto", "default", "~"})
_LONGEST = 80
_LLAMA = ("llama_cpp", "ik_llama_cpp", "ollama")


class Sorted(msgspec.Struct, frozen=True, kw_only=True):
    """``known``: flags as words; ``assumed`` and ``unmodelled``: what the answer must list; ``opened``: variables that decide."""

    known: tuple[str, ...]
    assumed: tuple[Assumption, ...] = ()
    unmodelled: tuple[Unmodelled, ...] = ()
    opened: tuple[str, ...] = ()


def sorted_flags(launch: Launch, options: tuple[Option, ...], *, typed: Iterable[str] = ()) -> Sorted:
    """The flags of a launch under an engine's table. ``typed``: words that were typed beside it and win."""
    from vramcast.asking.engine_line import FIELDS

    switches = [o.name.replace("_", "-") for o in options if o.kind == "bool"]
    apart = taken_apart(launch.engine, launch.flags, switches).flags
    table = {option.name.replace("_", "-"): option for option in options}
    won = {*typed}
    known: list[str] = []
    told: list[Assumption] = []
    idle: list[str] = [*launch.idle]
    speed: list[str] = []
    unread: list[str] = [*launch.unread]
    opened: list[str] = []
    names = {flag.name for flag in apart}
    for flag in (_settled(launch.engine, one, names) for one in apart):
        if flag is None:
            continue
        word = FIELDS.get(f"--{flag.name}") or FIELDS.get(flag.name)
        option = _option(flag.name, table)
        if word is None and option is None:
            (idle if is_idle(flag.name) else speed if is_speed(flag.name) else unread).append(_shown(flag))
        elif word in won or flag.name in won:
            continue
        elif flag.value is not None and open_names(flag.value):
            opened += open_names(flag.value)
        elif option is not None and word is None and not _can_be(option, flag):
            unread.append(f"{flag.name} {printable(str(flag.value))[:_LONGEST]}")
        else:
            known.append(_word(flag))
            name = word or (option.name if option else flag.name)
            told.append(Assumption(name, _told(flag), f"{launch.said(flag.name)} {flag.typed or flag.name}".strip()))
    return Sorted(
        known=tuple(known),
        assumed=(*told, *_without_effect(idle, speed, launch.where)),
        unmodelled=tuple(Unmodelled(_unread(name, launch.where)) for name in dict.fromkeys(unread)),
        opened=tuple(dict.fromkeys(opened)),
    )


def _unread(name: str, where: str) -> str:
    what = f"the variable {name}" if name.isupper() else f"the flag {name if name.startswith('-') else '--' + name}"
    return f"{what} in {where}: no rule reads it, and what it changes is not counted"


def _without_effect(idle: list[str], speed: list[str], where: str) -> tuple[Assumption, ...]:
    found = []
    if idle:
        found.append(Assumption("no effect on memory", ", ".join(dict.fromkeys(idle)), f"{where}: address, logging, sampling"))
    if speed:
        found.append(
            Assumption("no effect on memory", ", ".join(dict.fromkeys(speed)), f"{where}: on speed alone, and not counted there")
        )
    return tuple(found)


def _settled(engine: str, flag: Flag, names: set[str]) -> Flag | None:
    """The flag as the engine's table takes it; None for one that leaves a default as it is."""
    value = (flag.value or "").strip()
    if flag.values and value in _UNSET and flag.name not in ("max-model-len",):
        return None
    if engine in _LLAMA:
        return _of_llama(flag, value)
    if engine == "sglang":
        return _of_sglang(flag, value, names)
    if engine == "vllm" and flag.name == "max-model-len" and value in ("-1", "auto"):
        return Flag(name=flag.name, values=("auto",), typed=flag.typed)
    return flag


def _of_llama(flag: Flag, value: str) -> Flag | None:
    if flag.name == "ctx-size" and value == "0":
        return None
    if flag.name == "n-gpu-layers" and (value == "all" or (value.startswith("-") and value[1:].isdigit())):
        return None if value == "-1" else Flag(name=flag.name, values=("-1",), typed=flag.typed)
    if flag.name == "flash-attn" and value == "-1":
        return None
    if flag.name == "tensor-split":
        return Flag(name=flag.name, values=(value.replace("/", ","),), typed=flag.typed)
    return flag


def _of_sglang(flag: Flag, value: str, names: set[str]) -> Flag | None:
    if flag.name == "data-parallel-size" and "enable-dp-attention" in names:
        return Flag(name="dp-size", values=flag.values, typed=flag.typed)
    if flag.name == "chunked-prefill-size" and value.startswith("-"):
        return Flag(name="chunked-prefill-size (off)", typed=flag.typed)
    return flag


def _option(name: str, table: dict[str, Option]) -> Option | None:
    """The option of that name; of a negated switch; or the only one that it begins, as argparse takes it."""
    found = table.get(name) or (table.get(name.removeprefix("no-")) if name.startswith("no-") else None)
    if found is not None or len(name) < 6:
        return found
    begun = [option for known, option in table.items() if known.startswith(name)]
    return begun[0] if len(begun) == 1 else None


def _can_be(option: Option, flag: Flag) -> bool:
    """Whether the table knows the value: another word is told as unread, another number is refused where it is read."""
    return not option.choices or (flag.value is not None and flag.value.lower() in {word.lower() for word in option.choices})


def _word(flag: Flag) -> str:
    name = flag.name if flag.name.startswith("-") else f"--{flag.name}"
    return name if flag.value is None else f"{name}={flag.value}"


def _told(flag: Flag) -> str:
    return printable(flag.value)[:_LONGEST] if flag.value is not None else "off" if flag.name.startswith("no-") else "on"


def _shown(flag: Flag) -> str:
    """The name alone: a value may be a secret."""
    return printable(flag.name)[:_LONGEST]
