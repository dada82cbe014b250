"""Write what transformers says of every class into src/vramcast/models/classes/rows.jsonl.

    python tools/build_classes.py [model_type ...]       # default: every registered text class that transformers has

Needs the [torch] extra. A class gets a row when it has none; the fields that can be asked (``class_questions.py``) are written
over, all others stay as they are. What could not be built is listed, and its row is left alone.
"""

import sys
from typing import Any

import msgspec
import transformers
from activation_kinds import KINDS, config_of
from class_questions import answers, is_text

from vramcast.models.classes import ROWS, ModelClass, readers

# What a run of a small model does not show: V4's attention lies between hyper-connections, whose norms take its result.
UNSHOWN = {"deepseek_v4": {"norms"}}


def asked(kind: str) -> dict[str, dict[str, Any]]:
    """The groups and fields that transformers answers for that class."""
    found = answers(kind, config_of(kind) if kind in KINDS else None)
    return {group: {f: v for f, v in fields.items() if f not in UNSHOWN.get(kind, ())} for group, fields in found.items()}


def with_answers(row: dict[str, Any], found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The row with those fields, what equals a default left out."""
    version = ".".join(transformers.__version__.split(".")[:2])
    groups = {group: (row.get(group) or {}) | fields for group, fields in found.items()}
    return compact({**row, **groups, "asked": version})


def compact(row: dict[str, Any]) -> dict[str, Any]:
    """The row as it is written: no defaults, no empty group but ``layer``, whose presence says that it was read."""
    given = msgspec.convert(row, ModelClass)
    plain = {name: own_words(getattr(given, name)) for name in given.__struct_fields__}
    return {name: value for name, value in plain.items() if value or (name in ("layer", "traced") and value is not None)}


def own_words(value: Any) -> Any:
    """A group as its fields that differ from the defaults; anything else as it is."""
    if not isinstance(value, msgspec.Struct):
        return value
    given = ((field, getattr(value, field.name)) for field in msgspec.structs.fields(value))
    return {field.name: held for field, held in given if field.required or held != field.default}


def write(rows: dict[str, dict[str, Any]]) -> None:
    """Write the table, one class a line, in alphabetical order."""
    lines = [msgspec.json.encode(compact(rows[name])) for name in sorted(rows)]
    ROWS.write_bytes(b"\n".join(lines) + b"\n")


def main(wanted: list[str]) -> None:
    """Ask for every class named, write the table, and list what did not answer."""
    rows = {row["name"]: row for row in map(msgspec.json.decode, ROWS.read_bytes().splitlines())}
    for kind in wanted or [k for k in readers() if is_text(k)]:
        try:
            rows[kind] = with_answers(rows.get(kind, {"name": kind}), asked(kind))
        except Exception as error:
            print(f"{kind}: {type(error).__name__}: {str(error).splitlines()[0][:110]}")
    write(rows)
    print(f"{len(rows)} classes, {sum('asked' in row for row in rows.values())} asked")


if __name__ == "__main__":
    main(sys.argv[1:])
