"""The measured tables, read group by group into tables of one law on one class of cards."""

import dataclasses
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fitting import Array, Table

from vramcast.errors import VramcastError
from vramcast.speed.kernels.machine import Machine, card_class, machine
from vramcast.speed.kernels.rows import KINDS, card_of
from vramcast.speed.kernels.rows.products import BUILDS

SEED = 20


Columns = dict[str, Array]


def load(path: Path) -> Columns:
    """The columns of a parquet file: numbers as floats (nothing stated is 0), words as objects."""
    table = pq.read_table(path)
    return {name: _array(table[name]) for name in table.column_names}


def read(columns: Columns, kind: str, source: str) -> Iterator[Table]:
    """Tables of one group of rows each (one card, engine, kernel and format)."""
    spec = KINDS[kind]
    words = [word for word in spec.words if word in columns]
    for key, chosen in _groups([columns[word] for word in words]):
        named = dict(zip(words, key, strict=True))
        table = _table(kind, named, {n: c[chosen] for n, c in columns.items() if n not in words}, source)
        if table is not None:
            yield table


def _array(column: pa.ChunkedArray) -> Array:
    if pa.types.is_dictionary(column.type):
        column = column.combine_chunks()
        whole = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        return np.array(whole.dictionary.to_pylist(), dtype=object)[whole.indices.to_numpy(zero_copy_only=False)]
    values = column.to_numpy()
    return np.nan_to_num(values.astype(float)) if values.dtype.kind in "iuf" else values


def _groups(columns: list[Array]) -> Iterator[tuple[tuple[str, ...], Array]]:
    codes = np.zeros(len(columns[0]), dtype=np.int64)
    names = []
    for column in columns:
        values, code = np.unique(column.astype(str), return_inverse=True)
        codes = codes * len(values) + code
        names.append(values)
    order = np.argsort(codes, kind="stable")
    edges = np.flatnonzero(np.diff(codes[order])) + 1
    for chosen in np.split(order, edges):
        yield tuple(str(column[chosen[0]]) for column in columns), chosen


def _table(kind: str, words: dict[str, str], numbers: dict[str, Any], source: str) -> Table | None:
    try:
        card = card_of(words["card"])
        call = KINDS[kind].read(words, numbers, card)
        if call is None:
            return None
        on = machine(card, call.computes)
    except VramcastError:
        return None
    us = numbers["us"]
    fields = {f: np.full(len(us), float(getattr(on, f))) for f in on.__struct_fields__}
    return Table(
        call.operator, call.backend, call.precision, card_class(card), call.arguments, Machine(**fields),
        np.full(len(us), card.id, dtype=object), us, _geometry(numbers), _weight(kind, numbers, call.arguments), source,
    )  # fmt: skip


_GEOMETRY = (
    "n", "k", "hidden", "H", "channels", "v_heads", "num_v_heads", "tp_size", "topk", "moved_bytes", "inter", "experts", "heads",
    "kv_heads", "head_dim", "N", "K", "count", "bytes",
)  # fmt: skip


def _geometry(numbers: dict[str, Any]) -> Array:
    """A number for the model-side shape of a row (its batch and tokens apart), so that whole geometries are held out."""
    code = np.zeros(len(numbers["us"]), dtype=np.uint64)
    for name in (
        "n",
        "k",
        "hidden",
        "H",
        "channels",
        "v_heads",
        "num_v_heads",
        "tp_size",
        "topk",
        "moved_bytes",
        "inter",
        "experts",
        "heads",
        "kv_heads",
        "head_dim",
        "N",
        "K",
        "count",
        "bytes",
    ):
        if name in numbers:
            code = code * np.uint64(1_000_003) + numbers[name].astype(np.uint64)
    return code


def _weight(kind: str, numbers: dict[str, Any], arguments: dict[str, Any]) -> Array:
    """What a server meets counts fully: a GEMM with n or k below 512 a twentieth, a decode step from L2 a quarter."""
    if kind == "gemm":
        return np.where((numbers["n"] >= 512) & (numbers["k"] >= 512), 1.0, 0.05)
    if kind == "generation_attention":
        return np.where(arguments["warm"] > 0, 0.25, 1.0)
    return np.ones(len(numbers["us"]))


def gather(tables: Iterator[Table]) -> dict[tuple[str, str, str, str], Table]:
    """Tables joined by law and class."""
    lists: dict[tuple[str, str, str, str], list[Table]] = defaultdict(list)
    for table in tables:
        for name in _filed(table):
            lists[table.operator, name, table.precision, table.card_class].append(table)
    return {key: dataclasses.replace(_join(parts), backend=key[1]) for key, parts in lists.items()}


def _filed(table: Table) -> tuple[str, ...]:
    """The back ends a table counts for: its own, and the kernel's over all engines' builds (training, unknown engines)."""
    engine, _, kernel = table.backend.partition("/")
    return (table.backend, kernel) if kernel == "cublas" and engine in BUILDS else (table.backend,)


def _join(parts: list[Table]) -> Table:
    first = parts[0]
    arguments = {
        name: np.concatenate([p.arguments[name] for p in parts]) if isinstance(value, np.ndarray) else value
        for name, value in first.arguments.items()
    }
    fields = {f: np.concatenate([getattr(p.machine, f) for p in parts]) for f in first.machine.__struct_fields__}
    together = {f: np.concatenate([getattr(p, f) for p in parts]) for f in ("cards", "us", "geometry", "weight")}
    sources = ", ".join(sorted({p.source for p in parts}))
    return Table(
        first.operator, first.backend, first.precision, first.card_class, arguments, Machine(**fields), source=sources, **together
    )
