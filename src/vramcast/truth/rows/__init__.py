"""Raw measured rows: which format a row has, and the converter that judges it.

Formats are told by the fields a row carries, row by row, so that one file may mix them. A converter is a module here with
``judge(row) -> Judgement``; it is imported when the first row of its format is met.
"""

import hashlib
import importlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from vramcast.errors import ConfigError, MissingError, QuestionError, UnsafeFileError
from vramcast.truth.judgement import Judgement, Pair, Unexpressed, public_source
from vramcast.untrusted import finite, parse_json, shown

__all__ = ["Judgement", "Pair", "Unexpressed", "format_of", "judge", "read_rows", "row_id"]

Row = dict[str, Any]

UNREADABLE = "unreadable line"
_UNITS = ("_gib", "_mib", "_gb", "_mb", "_bytes")  # figures that a memory row is scored by; others may be text
_SEVERAL = frozenset({
    "range_gib", "per_gpu_gib", "model_buffer_mib", "compute_buffer_mib", "kv_buffer_mib", "host_buffers_mib", "rs_buffer_mib",
})  # fmt: skip
LONGEST_LINE = 4 * 2**20
MOST_ROWS = 1_000_000
MOST_TABLE_ROWS = 100_000  # of a parquet file: more are thinned evenly

# format: (fields that must be there, fields that must not, converter module or "" when no rule exists yet)
FORMATS: dict[str, tuple[frozenset[str], frozenset[str], str]] = {
    "case": (frozenset({"schema", "level", "figures"}), frozenset(), "case"),
    "own": (frozenset({"schema", "form", "subject", "facts"}), frozenset(), "own"),
    "llama_cpp_load_logs": (frozenset({"source_repo", "source_path", "commit"}), frozenset(), "llama_cpp"),
    "inference_memory": (frozenset({"engine", "usable_for", "measured"}), frozenset(), "inference"),
    "training_oom": (frozenset({"framework", "outcome"}), frozenset(), "training"),
    "training_memory": (frozenset({"framework", "method", "measured"}), frozenset(), "training"),
    "training_speed": (frozenset({"framework", "measured"}), frozenset({"method"}), "training_speed"),
    "inference_speed": (frozenset({"engine", "version", "measured"}), frozenset({"usable_for"}), "speed"),
    "kernel": (frozenset({"card", "us"}), frozenset({"measured"}), "kernel"),
}


def format_of(row: Row) -> str:
    """The name of the row's format. Raises Unexpressed when it is none of ours."""
    for name, (needed, absent, _) in FORMATS.items():
        if needed <= row.keys() and not absent & row.keys():
            return name
    raise Unexpressed(f"no known row format has the fields {', '.join(sorted(row)[:8])}")


def judge(row: Row) -> Judgement:
    """The row beside its forecast. Raises Unexpressed with the reason when it cannot be asked."""
    if UNREADABLE in row:
        raise Unexpressed(str(row[UNREADABLE]))
    form = format_of(row)
    if form == "own":
        from vramcast.truth.rows.own import restore_row

        row, form = restore_row(row), str(row["form"])
    _check_figures(row.get("measured"))
    module = FORMATS[form][2] if form in FORMATS else ""
    if not module:
        raise Unexpressed("speed rows have no forecast rules yet")
    converter = importlib.import_module(f"vramcast.truth.rows.{module}")
    return _plausible(converter.judge(row))


def _check_figures(measured: object) -> None:
    """Raises Unexpressed for a figure with a unit in its name that is no finite number."""
    for name, value in measured.items() if isinstance(measured, dict) else ():
        if str(name).endswith(_UNITS) and value is not None and name not in _SEVERAL and not finite(value):
            raise Unexpressed(f"measured.{shown(name)} is {shown(value)}: expected a number")


def _plausible(judged: Judgement) -> Judgement:
    """The judgement with its keys as text. Raises Unexpressed when a measured figure is no finite number."""
    for pair in judged.pairs:
        if isinstance(pair.measured, bool) or not isinstance(pair.measured, int | float) or not math.isfinite(pair.measured):
            raise Unexpressed(f"the measured {pair.measure} is {str(pair.measured)[:40]!r}, no number")
    return msgspec.structs.replace(judged, id=str(judged.id), keys={k: public_source(str(v)) for k, v in judged.keys.items()})


def row_id(row: Row) -> str:
    """The row's own id, or one made from its content: load logs carry none."""
    if isinstance(row.get("id"), str):
        return str(row["id"])
    try:
        content = msgspec.json.encode(row, order="deterministic")
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can escape and UTF-8 cannot hold
        content = json.dumps(row, sort_keys=True).encode()
    digest = hashlib.sha256(content).hexdigest()[:10]
    name = str(row.get("file", "row")).replace("\\", "/")
    return f"{Path(name).stem[:40] or 'row'}-{digest}"


def read_rows(path: Path) -> Iterator[Row]:
    """The objects of a JSON-lines file, in order; blank lines are skipped.

    A line that is no JSON object is a row that cannot be asked: it costs itself alone. Raises QuestionError when there is no such
    file, UnsafeFileError for a line that is far too long.
    """
    if not path.is_file():
        raise QuestionError(f"no file {str(path)!r}: give a JSON-lines file of measured rows or cases")
    if path.suffix == ".parquet":
        yield from _table_rows(path)
        return
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if len(line) > LONGEST_LINE or number > MOST_ROWS:
                raise UnsafeFileError(f"{path.name}, line {number}: longer than {LONGEST_LINE:,} bytes or {MOST_ROWS:,} rows")
            if line.strip():
                yield _object(line, path, number)


def _table_rows(path: Path) -> Iterator[Row]:
    """Rows of a parquet file of kernel times, evenly spaced where there are more than can be listed one by one.

    Raises MissingError without pyarrow, QuestionError for a file that is no parquet.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingError.extra("parquet", "reading a parquet file") from None
    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise QuestionError(f"{path.name} is no parquet file that can be read: {str(error)[:120]}") from None
    step = -(-table.num_rows // MOST_TABLE_ROWS) or 1
    yield from table.take(list(range(0, table.num_rows, step))).to_pylist()


def _object(line: bytes, path: Path, number: int) -> Row:
    where = f"{path.name}, line {number}"
    try:
        value = parse_json(line, where)
    except ConfigError as error:
        return {"id": where, UNREADABLE: f"{error}: expected one object per line"}
    if not isinstance(value, dict):
        return {"id": where, UNREADABLE: f"{where}: expected an object, found {type(value).__name__}"}
    return value
