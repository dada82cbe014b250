"""Write src/vramcast/models/families/derived.json: shapes of transformers' classes, derived from the classes themselves.

    python tools/build_derived.py [model_type ...]       # default: every type of transformers without a family of its own

Needs the [torch] extra. A class is built on the meta device from numbers that remember how they were computed
(``deriving/symbols.py``); layers are folded into stacks (``deriving/folding.py``), and the row is held against the class on
changed configs (``deriving/checking.py``). What does not hold is refused at run time; what cannot be derived is listed.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "deriving"))

import classes
import msgspec
import rows
import transformers
from checking import Check, used

from vramcast.models.classes import readers
from vramcast.models.families.derived import ROWS, Condition, Row

_LARGE = 12_000
"""Bytes of a row from which on only two of a type's classes are kept: towers written out stage by stage."""


def derive(model_type: str, cls: Any) -> tuple[Row, int]:
    """(the row, how many builds it was held against). Raises LookupError where no row holds.

    A depth that only one number of layers was found for is begun again with the class's own.
    """
    deep: frozenset[str] = frozenset()
    while True:
        row, compared = _derive(model_type, cls, deep)
        flat = {p for p in row.only if classes.is_depth(p) or p.rpartition(".")[2] in classes.PATTERNS} - deep
        if not flat or not _shrunk(model_type, flat, deep):
            return row, compared
        deep = deep | flat | {p for p in _depths(model_type) if p.rpartition(".")[0] in {f.rpartition(".")[0] for f in flat}}


def _depths(model_type: str) -> set[str]:
    return {p for p in rows.flat(classes.default(model_type)) if classes.is_depth(p)}


def _shrunk(model_type: str, paths: set[str], deep: frozenset[str]) -> bool:
    """Whether any of those fields, or the depth beside it, is not as the class has it."""
    whole, small = classes.default(model_type), classes.beginning(model_type, deep)
    nodes = {p.rpartition(".")[0] for p in paths}
    return any(rows.get(whole, p) != rows.get(small, p) for p in _depths(model_type) if p.rpartition(".")[0] in nodes)


def _derive(model_type: str, cls: Any, deep: frozenset[str]) -> tuple[Row, int]:
    study = rows.begin(model_type, cls, deep)
    text = rows.text_of(study)
    drop = text[1] if text else None
    rows.find_depths(study)
    row = _first(study, drop)
    fields, aliases = classes.filled(transformers.CONFIG_MAPPING[model_type].from_dict(study.raw))
    hidden, vocab, positions = (rows.plain(each) for each in study.base.sizes)
    row = msgspec.structs.replace(
        row,
        generates=classes.writes(cls, model_type),
        main=rows.main_of(row, study),
        hidden=hidden,
        vocab=vocab,
        positions=positions,
        window=classes.window(model_type),
        tied=_tied(study),
        fields={**dict.fromkeys(study.base.fields), **fields, **{p: {"is": q, "always": True} for p, q in study.forced.items()}},
        aliases=aliases,
        conditions=_conditions(study, text),
        text=(text[0], text[1], _ties(study, text[0])) if text else None,
    )
    check = Check(study, row, drop)
    if not check.holds(study.raw, study.base):
        raise LookupError("the row does not give what it was derived from")
    for path in study.base.fields:
        if path in classes.said():
            check.row = msgspec.structs.replace(check.row, only={**check.row.only, path: [rows.get(study.raw, path)]})
        elif text is None or not path.startswith(f"{text[0]}."):
            check.field(path)
    check.together()
    _nested_types(check, text)
    return _trimmed(check.row), check.compared


def _first(study: rows.Study, drop: str | None) -> Row:
    """The row of the first build; stacks that no rule orders are written out layer by layer."""
    while True:
        try:
            return rows.row_of(study, study.base, study.seen, drop)
        except rows.UnruledError as error:
            del study.prefixes[error.prefix]


def _tied(study: rows.Study) -> tuple[str, Any]:
    ends = ["tie_word_embeddings", *(p for p in study.base.fields if p.endswith(".tie_word_embeddings"))]
    for path in ends:
        other = study.tried(rows.put(study.raw, path, not rows.get(study.raw, path)))
        if other is not None and other.tied != study.base.tied:
            return path, None
    return "", study.base.tied


def _ties(study: rows.Study, path: str) -> tuple[bool, bool, bool, bool]:
    """Whether the head is tied when neither, the outer, the inner and both configs say so."""
    found = []
    for inner in (False, True):
        for outer in (False, True):
            raw = rows.put(rows.put(study.raw, f"{path}.tie_word_embeddings", inner), "tie_word_embeddings", outer)
            built = study.tried(raw)
            found.append(bool(built and "lm_head.weight" not in built.shapes))
    return tuple(found)  # type: ignore[return-value]


def _conditions(study: rows.Study, text: tuple[str, str] | None) -> tuple[Condition, ...]:
    """The comparisons that decided, those of the text's own family left out."""
    inner = f"{text[0]}." if text else "\0"
    return tuple(
        c for c in rows.conditions(study.base) if not any(p.startswith(inner) for p in rows.paths_in((0, c.left, c.right)))
    )


def _nested_types(check: Check, text: Any) -> None:
    """Nested configs must be of the classes that were tried; the text's own family decides about itself."""
    for path, value in check.row.fields.items():
        if path.endswith(".model_type") and not (text and path == f"{text[0]}.model_type"):
            check.row = msgspec.structs.replace(check.row, only={**check.row.only, path: [value]})


def _trimmed(row: Row) -> Row:
    wanted = {*used(row)}
    if row.text:
        wanted |= {f"{row.text[0]}.model_type", "tie_word_embeddings"}
    wanted |= {p.rpartition(".")[0] for p in wanted if p.rpartition(".")[2].isdigit()}
    more = wanted
    while more:
        known = [row.fields[p] for p in more if isinstance(row.fields.get(p), dict)]
        more = {p for how in known for p in rows.paths_in(how["is"])} - wanted
        wanted |= more
    fields = {p: v for p, v in row.fields.items() if p in wanted}
    aliases = {a: b for a, b in row.aliases.items() if b in wanted}
    return msgspec.structs.replace(row, fields=fields, aliases=aliases)


def main() -> None:
    """Derive the types that are named, or all, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*")
    parser.add_argument("--first", action="store_true", help="only the class that a checkpoint of the type usually is")
    parser.add_argument("--missing", action="store_true", help="keep the rows of classes that have one, derive the others")
    asked = parser.parse_args()
    transformers.logging.set_verbosity_error()
    known = msgspec.json.decode(ROWS.read_bytes()) if ROWS.is_file() else {}
    written = {*readers()}
    for model_type in asked.types or [t for t in transformers.CONFIG_MAPPING if t not in written]:
        found = [msgspec.convert(row, Row) for row in known.get(model_type, [])] if asked.missing else []
        kept = {row.architecture for row in found}
        for cls in classes.classes(model_type)[: 1 if asked.first else None]:
            if cls.__name__ in kept:
                continue
            if len(found) > 1 and len(msgspec.json.encode(found[0])) > _LARGE:
                break
            began = time.monotonic()
            try:
                row, compared = derive(model_type, cls)
                size = len(msgspec.json.encode(row))
            except Exception as error:  # a class fails in any way it likes
                print(f"{model_type} {cls.__name__}: {type(error).__name__}: {str(error)[:160]}", flush=True)
                continue
            found += [*_otherwise(model_type, cls, row), row]
            refused = ", ".join(row.only)[:150] or "nothing"
            told = f"{compared} builds, {size} bytes, one value only of {refused} ({time.monotonic() - began:.0f} s)"
            print(f"{model_type} {cls.__name__}: {told}", flush=True)
        if found:
            known[model_type] = msgspec.to_builtins(found)
            write(known)
    print(f"{len(known)} types, {sum(map(len, known.values()))} classes")


def _otherwise(model_type: str, cls: Any, row: Row) -> Iterator[Row]:
    """The row for the other values of fields on which this one hangs."""
    fields = classes.TWICE.get(model_type, {})
    hangs = {*row.only} | {path for c in row.conditions for path in rows.paths_in((0, c.left, c.right))}
    if hangs & {"num_labels" if name == "id2label" else name for name in fields}:
        with classes.saying(fields):
            yield derive(model_type, cls)[0]


def write(known: dict[str, Any]) -> None:
    """Write the table, one type a line."""
    lines = ",\n".join(f"{msgspec.json.encode(t).decode()}:{msgspec.json.encode(known[t]).decode()}" for t in sorted(known))
    ROWS.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
