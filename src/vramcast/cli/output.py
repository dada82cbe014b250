"""The JSON of the contract: exactly one object, in the order and with the names callers rely on."""

import sys
from typing import Any

import msgspec

from vramcast.ledger import Forecast, RankMemory, Term
from vramcast.quantity import SECONDS

SCHEMA = "vramcast/1"


def as_contract(forecast: Forecast) -> dict[str, Any]:
    """The forecast as the object that ``--json`` prints (DESIGN, "the contract")."""
    builtin = {name: msgspec.to_builtins(getattr(forecast, name)) for name in ("workload", "model", "fit", "limits", "cards")}
    return {
        "schema": SCHEMA,
        "workload": builtin["workload"],
        "assumed": [{"name": a.name, "value": a.value, "because": a.because} for a in forecast.assumed],
        "unmodelled": [{"what": u.what, "bound_bytes": u.bound_bytes} for u in forecast.unmodelled],
        "model": builtin["model"],
        "memory": {"per_gpu": [as_rank(r) for r in forecast.ranks], "host": [_term(t) for t in forecast.host]},
        "fit": builtin["fit"],
        "limits": builtin["limits"],
        "speed": _speed(forecast.speed),
        "advice": [msgspec.to_builtins(a) for a in forecast.advice],
        "cards": builtin["cards"],
    }


def print_json(forecast: Forecast) -> None:
    """Write the contract's object to standard output."""
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(as_contract(forecast)), indent=1) + b"\n")


def _speed(speed: dict[str, Any]) -> dict[str, Any]:
    return {**speed, "terms": [_term(t) for t in speed["terms"]]} if "terms" in speed else speed


def as_rank(rank: RankMemory) -> dict[str, Any]:
    """One kind of rank as the contract prints it."""
    peak = rank.peak
    return {
        "rank": rank.rank,
        "instant": peak.name,
        "allocated_bytes": rank.allocated_bytes,
        "reserved_bytes": rank.reserved_bytes,
        "device_bytes": rank.device_bytes,
        "needed_bytes": rank.needed_bytes,
        "claimed_bytes": rank.claimed_bytes,
        "interval": rank.interval.as_dict() if rank.interval else None,
        "terms": [_term(t) for t in rank.terms],
        "instants": [{"name": i.name, "bytes": i.bytes} for i in rank.instants],
        **({"first_step_bytes": rank.first_step_bytes} if rank.first_step_bytes is not None else {}),
    }


def _term(term: Term) -> dict[str, Any]:
    unit = "seconds" if term.unit == SECONDS else "bytes"
    own = {"name": term.name, unit: term.value, "why": term.why, "terms": [_term(t) for t in term.terms]}
    return {**own, "source": term.source} if term.source else own
