"""Measured kernel rows beside the laws: one prediction a row, and the transformer layers that products make together.

Rows are dicts in the columns of public tables (``rows`` tells the kind by the columns). Products are scored summed over the four
of a layer where all were measured; decode steps whose cache fits in L2 are told apart, since a server's cache is cold.
"""

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from vramcast.errors import UnmodelledError
from vramcast.speed.kernels.law import law_for
from vramcast.speed.kernels.machine import machine
from vramcast.speed.kernels.operators import seconds
from vramcast.speed.kernels.rows import KINDS, Call, card_of

# Hidden sizes, query widths and expert or MLP widths that layers are built from; a layer counts where its four products exist.
_HIDDEN = (2048, 3072, 4096, 5120, 6144, 7168, 8192)
_INNER = (1024, 1536, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 10240, 12288, 16384)
Shape = tuple[float, float, float]


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """One row: what the law says, what was measured, and where it belongs."""

    kind: str
    operator: str
    backend: str
    precision: str
    card: str
    predicted_s: float
    measured_s: float
    cold: bool = True
    borrowed: bool = False


def kind_of(columns: Iterable[str]) -> str | None:
    """The kind of table with these columns, the most specific first; None for none of ours."""
    names = set(columns)
    fitting = [kind for kind, known in KINDS.items() if known.needs <= names and ("us" in names)]
    return max(fitting, key=lambda kind: len(KINDS[kind].needs), default=None)


def predict(row: Mapping[str, Any]) -> Prediction:
    """The law's answer for one row. Raises UnmodelledError or QuestionError where no law or card covers it."""
    kind = kind_of(row)
    if kind is None:
        raise UnmodelledError(f"no kernel table has the columns {', '.join(sorted(map(str, row))[:8])}")
    known = KINDS[kind]
    words = {name: str(row[name]) for name in known.words if name in row}
    numbers = {name: _number(value) for name, value in row.items() if name not in words}
    card = card_of(words["card"])
    call = known.read(words, numbers, card)
    if call is None:
        raise UnmodelledError(f"no law covers {' '.join(words.values())}")
    chosen = law_for(call.operator, call.backend, call.precision, card)
    on = machine(card, call.computes)
    return Prediction(
        kind=kind, operator=call.operator, backend=chosen.law.backend, precision=call.precision, card=words["card"],
        predicted_s=float(seconds(call.operator, chosen.constants, on, **call.arguments)), measured_s=numbers["us"] * 1e-6,
        cold=_is_cold(call), borrowed=bool(chosen.borrowed),
    )  # fmt: skip


def layers(shapes: Iterable[Shape]) -> Iterator[tuple[Shape, Shape, Shape, Shape]]:
    """The layers whose four products (QKV, output, gate and up, down) are all among these shapes (m, n, k)."""
    known = set(shapes)
    for tokens in sorted({shape[0] for shape in known}):
        for hidden, query, inner in _widths():
            for ratio in (1.25, 1.5, 3):
                four = (
                    (tokens, query * ratio, hidden), (tokens, hidden, query), (tokens, 2 * inner, hidden), (tokens, hidden, inner)
                )  # fmt: skip
                if known.issuperset(four):
                    yield four


@functools.cache
def _widths() -> tuple[tuple[int, int, int], ...]:
    return tuple((hidden, hidden // part, inner) for hidden in _HIDDEN for part in (1, 2, 4, 8) for inner in _INNER)


def _number(value: Any) -> float:
    """A column's value; nothing stated (None, NaN) is 0, as the tables mean it."""
    return float(value) if isinstance(value, (int, float)) and not math.isnan(value) else 0.0


def _is_cold(call: Call) -> bool:
    return not call.arguments.get("warm", 0)
