"""Facts of ``moved.toml``: what names of earlier versions are called today."""

import re
from functools import cache
from importlib.resources import files

import msgspec


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What became of arguments of TrainingArguments: another name, another value, a part of ``fsdp_config``, nothing."""

    now: dict[str, str]
    value: dict[str, str]
    fsdp: dict[str, str]
    trl: dict[str, str]
    gone: dict[str, list[str]]


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What became of arguments of a function or class: another name, nothing, a name where it was a place.

    ``by_script``: in calls that the script itself makes.
    """

    now: dict[str, str] = {}
    gone: tuple[str, ...] = ()
    by_place: tuple[str, ...] = ()
    by_script: bool = False


class Moved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole table; a name is at ``module:name``."""

    modules: dict[str, str]
    names: dict[str, dict[str, str]]
    arguments: Arguments
    calls: dict[str, Call]
    methods: dict[str, dict[str, str]]
    called_with_more: dict[str, tuple[str, ...]]


@cache
def moved() -> Moved:
    """The table."""
    return msgspec.toml.decode(files(__package__).joinpath("moved.toml").read_text(), type=Moved)


def module_today(name: str) -> str:
    """Where a module of that name is today; "" for one that is not listed."""
    table = moved().modules
    if name in table:
        return table[name]
    for pattern, now in table.items():
        if found := re.fullmatch(re.escape(pattern).replace(r"\{\}", r"(\w+)"), name) if "{}" in pattern else None:
            return now.replace("{}", found[1])
    return ""
