"""Answers that are values, as JSON: every field of a struct, and what its properties work out from them."""

import sys
from typing import Any

import msgspec


def print_struct(kind: str, value: Any, **more: Any) -> None:
    """One object on standard output: schema, what it is, and the value with its properties."""
    body = {"schema": "vramcast/1", "kind": kind, **told(value), **{name: told(part) for name, part in more.items()}}
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(body), indent=1) + b"\n")


def told(value: Any) -> Any:
    """A value of structs, lists and dicts as plain JSON values; a struct's public properties stand beside its fields."""
    if isinstance(value, msgspec.Struct):
        names = (*value.__struct_fields__, *properties(type(value)))
        return {name: told(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {str(key): told(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [told(part) for part in value]
    return value


def properties(kind: type) -> list[str]:
    """The public properties of a struct, in the order they are written."""
    return [name for name, part in vars(kind).items() if isinstance(part, property) and not name.startswith("_")]
