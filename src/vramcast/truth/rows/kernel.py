"""Kernel rows (one product, attention call, expert layer or collective and its microseconds) beside the kernel laws."""

from typing import Any

from vramcast.errors import VramcastError
from vramcast.speed.kernels.scoring import kind_of, predict
from vramcast.truth.judgement import Judgement, Pair, Unexpressed

__all__ = ["judge", "kind_of"]


def judge(row: dict[str, Any]) -> Judgement:
    """The row's time beside the law's. Raises Unexpressed where no law or card covers it, or the time is no positive number."""
    measured = row.get("us")
    if isinstance(measured, bool) or not isinstance(measured, (int, float)) or not measured > 0:
        raise Unexpressed(f"us is {str(measured)[:40]!r}: expected microseconds")
    try:
        one = predict(row)
    except VramcastError as error:
        raise Unexpressed(str(error)) from None
    except (KeyError, TypeError, ValueError) as error:
        raise Unexpressed(f"a column of the {kind_of(row)} table cannot be read: {error!r}") from None
    measure = "decode_attention_cold" if one.operator == "decode_attention" and one.cold else one.operator
    keys = {
        "engine": str(row.get("engine", "")), "source": str(row.get("source", "kernel rows")), "card": one.card,
        "quant": one.precision, "backend": one.backend,
    }  # fmt: skip
    name = " ".join(str(row[column]) for column in row if column != "us")[:120]
    return Judgement(id=name, keys=keys, pairs=(Pair(measure=measure, predicted=one.predicted_s, measured=one.measured_s),))
