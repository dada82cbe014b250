"""Flags of a launch by what is known of them: those that decide, each with its place; those without effect; those nobody reads.

A value that the engine's table does not know is named with the rest; nothing is dropped without a word.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from vramcast.ledger import Assumption, Unmodelled
from vramcast.reading.serving.effects import effect_of, leaves_memory
from vramcast.reading.serving.flags import Flag, is_idle, is_speed, parsed_flags
from vramcast.reading.serving.launch import Launch
from vramcast.reading.shell import open_names
from vramcast.serving.engines.options import Option
from vramcast.untrusted import printable

_UNSET = frozenset({"", "none", "null", "None", "auto", "default", "~"})
_LONGEST = 80
_ARGPARSE = ("vllm", "sglang")
_LLAMA = ("llama_cpp", "ik_llama_cpp", "ollama")


class SortedFlags(msgspec.Struct, frozen=True, kw_only=True):
    """``known``: flags as words; ``assumed`` and ``unmodelled``: what the answer must list; ``opened``: variables that decide."""

    known: tuple[str, ...]
    assumed: tuple[Assumption, ...] = ()
    unmodelled: tuple[Unmodelled, ...] = ()
    opened: tuple[str, ...] = ()


def sorted_flags(launch: Launch, options: tuple[Option, ...], *, typed: Iterable[str] = ()) -> SortedFlags:
    """The flags of a launch under an engine's table. ``typed``: words that were typed beside it and win."""
    from vramcast.asking.engine_line import FIELDS

    switches = [o.name.replace("_", "-") for o in options if o.kind == "bool"]
    apart = parsed_flags(launch.engine, launch.flags, switches).flags
    table = {option.name.replace("_", "-"): option for option in options}
    sorter = _FlagSorter(launch, won={*typed})
    names = {flag.name for flag in apart}
    for one in apart:
        if (settled := _settled(launch.engine, one, names)) is None:
            sorter.left.append(f"{printable(one.name)[:_LONGEST]} {printable(str(one.value))[:_LONGEST]}")
        else:
            flag = _in_full(settled, FIELDS, table) if launch.engine in _ARGPARSE else settled
            option = table.get(flag.name) or table.get(flag.name.removeprefix("no-"))
            if option is not None and option.kind == "bytes" and (flag.value or "").isdigit():
                flag = Flag(name=flag.name, values=(f"{flag.value}B",), typed=flag.typed)  # a bare number is bytes to the engine
            sorter.put(flag, FIELDS.get(f"--{flag.name}") or FIELDS.get(flag.name), option)
    return SortedFlags(
        known=tuple(sorter.known),
        assumed=(*sorter.told, *_left(sorter.left, launch.where), *_without_effect(sorter.idle, sorter.speed, launch.where)),
        unmodelled=(
            *(Unmodelled(what) for what in dict.fromkeys(sorter.uncounted)),
            *(Unmodelled(_unread(name, launch.where)) for name in dict.fromkeys(sorter.unread)),
        ),
        opened=tuple(dict.fromkeys(sorter.opened)),
    )


def without_rule(words: Sequence[str], engine: str, options: tuple[Option, ...]) -> SortedFlags:
    """Typed flags of the engine that no rule counts, told; ``known`` is what is left, with what nobody knows.

    A flag that has a name of ours is known under that: SGLang's --speculative-num-draft-tokens counts one more than is drafted.
    """
    from vramcast.asking.engine_line import FIELDS

    switches = [o.name.replace("_", "-") for o in options if o.kind == "bool"]
    table = {*FIELDS, *(flag for o in options for flag in (f"--{o.name.replace('_', '-')}", *o.flags))}
    apart, known = parsed_flags(engine, words, switches), []
    sorter = _FlagSorter(Launch(engine=engine, model="", where="the command line"), won=set())
    for one in apart.flags:
        ours = {one.typed, one.typed.replace("_", "-"), f"--{one.name}", f"--{one.name.removeprefix('no-')}"} & table
        if not ours and (is_idle(one.name) or is_speed(one.name) or effect_of(engine, one.name)):
            sorter.put(one, None, None)
        else:
            own = {one.typed, one.typed.replace("_", "-")} & table or not ours
            known += [one.typed if own else f"--{one.name}", *one.values]
    return SortedFlags(
        known=(*known, *apart.words),
        assumed=(*sorter.told, *_without_effect(sorter.idle, sorter.speed, "typed")),
        unmodelled=tuple(Unmodelled(what) for what in dict.fromkeys(sorter.uncounted)),
    )


class _FlagSorter:
    """Flags as they are put apart; ``won``: words that were typed beside the launch."""

    def __init__(self, launch: Launch, *, won: set[str]) -> None:
        self.launch, self.won = launch, won
        self.known: list[str] = []
        self.told: list[Assumption] = []
        self.idle: list[str] = [*launch.idle]
        self.speed: list[str] = [*launch.speed]
        self.unread: list[str] = [*launch.unread]
        self.opened: list[str] = []
        self.uncounted: list[str] = []
        self.left: list[str] = []  # set to what leaves them to the engine

    def put(self, flag: Flag, word: str | None, option: Option | None) -> None:
        """One flag to its pile: ``word`` and ``option`` are what our words and the engine's table have for it."""
        if word is None and option is None:
            self._without_rule(flag)
        elif word in self.won or flag.name in self.won:
            return
        elif flag.value is not None and open_names(flag.value):
            self.opened += open_names(flag.value)
        elif option is not None and word is None and not _can_be(option, flag):
            self.unread.append(f"{flag.name} {printable(str(flag.value))[:_LONGEST]}")
        else:
            self.known.append(_word(flag))
            name = word or (option.name if option else flag.name)
            self.told.append(Assumption(name, _told(flag), f"{self.launch.said(flag.name)} {flag.typed or flag.name}".strip()))

    def _without_rule(self, flag: Flag) -> None:
        """A flag that no rule counts: without effect, on speed alone, with an effect that is told, or unknown."""
        if is_idle(flag.name) or is_speed(flag.name) or leaves_memory(self.launch.engine, flag.name, flag.value or ""):
            (self.speed if is_speed(flag.name) else self.idle).append(_shown(flag))
        elif effect := effect_of(self.launch.engine, flag.name):
            if flag.value is not None and open_names(flag.value):
                self.unread.append(_shown(flag))
                return
            value = "set" if "{" in (flag.value or "") else _told(flag)
            self.told.append(Assumption(flag.name, value, f"{self.launch.said(flag.name)} {flag.typed or flag.name}".strip()))
            name = flag.name if flag.name.startswith("-") else f"--{flag.name}"
            self.uncounted.append(f"the flag {name} {value} in {self.launch.where}: it changes {effect}, which no rule counts")
        else:
            self.unread.append(_shown(flag))


def _unread(name: str, where: str) -> str:
    if name.startswith(("what ", "the ")):  # no flag: a file that is not at hand, words that a program adds
        return f"{name}, in {where}: it is not read, and what it changes is not counted"
    what = f"the variable {name}" if name.isupper() else f"the flag {name if name.startswith('-') else '--' + name}"
    return f"{what} in {where}: no rule reads it, and what it changes is not counted"


def _left(left: list[str], where: str) -> tuple[Assumption, ...]:
    """Flags whose value leaves them to the engine (``auto``), as their defaults do."""
    return (Assumption("left to the engine", ", ".join(dict.fromkeys(left)), where),) if left else ()


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
    if engine == "lmdeploy" and flag.name == "model-format":
        return None if value == "hf" else Flag(name="quantization", values=(value,), typed=flag.typed)
    return _of_vllm(flag, value) if engine == "vllm" else flag


def _of_vllm(flag: Flag, value: str) -> Flag:
    """Words for what vLLM's table has under another name: without a mode no graph is captured (config/compilation.py)."""
    if flag.name == "max-model-len" and value in ("-1", "auto"):
        return Flag(name=flag.name, values=("auto",), typed=flag.typed)
    if flag.name in ("cudagraph-mode", "compilation-config.cudagraph-mode") and value.upper() in ("NONE", "0"):
        return Flag(name="enforce-eager", typed=flag.typed)
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


def _in_full(flag: Flag, fields: Mapping[str, str], table: Mapping[str, Option]) -> Flag:
    """The flag by its whole name where it is the beginning of a single one, as argparse takes it."""
    known = {name.lstrip("-") for name in fields if name.startswith("--")} | table.keys()
    if len(flag.name) < 6 or flag.name in known or flag.name.removeprefix("no-") in known or is_idle(flag.name):
        return flag
    begun = [name for name in known if name.startswith(flag.name)]
    meant = {fields.get(f"--{name}", name): name for name in begun}
    return Flag(name=begun[0], values=flag.values, typed=flag.typed) if len(meant) == 1 else flag


def _can_be(option: Option, flag: Flag) -> bool:
    """Whether the table knows the value: another word is told as unread, another number is refused where it is read."""
    return not option.choices or (flag.value is not None and flag.value.lower() in {word.lower() for word in option.choices})


def _word(flag: Flag) -> str:
    name = flag.name if flag.name.startswith("-") else f"--{flag.name}"
    return name if flag.value is None else f"{name}={flag.value}"


def _told(flag: Flag) -> str:
    if flag.value is None:
        return "off" if flag.name.startswith("no-") else "on"
    long = len(flag.value) > _LONGEST and "/" in flag.value  # of a long path its file
    return printable(flag.value.rsplit("/", 1)[-1] if long else flag.value)[:_LONGEST]


def _shown(flag: Flag) -> str:
    """The name alone: a value may be a secret."""
    return printable(flag.name)[:_LONGEST]
