"""A fitted law, an estimate made with it, and the one file that holds every constant (written by ``tools/fit_kernels.py``)."""

import functools
from pathlib import Path
from typing import Any

import msgspec

from vramcast.errors import UnmodelledError
from vramcast.hardware.accelerator import Accelerator
from vramcast.models.layers import smaller
from vramcast.speed.kernels.machine import CDNA, NEIGHBOURS, OF_ANOTHER_MAKER, SUSTAINED, card_class
from vramcast.speed.kernels.machine import backend as default_backend

__all__ = ["larger", "logarithm", "smaller", "whole"]

_SMALL = 1e-7


def larger(a: Any, b: Any) -> Any:
    """The larger of two numbers, or of two arrays element by element."""
    return (a + b + abs(a - b)) / 2


def whole(x: Any) -> Any:
    """Rounded up to the next whole number."""
    return -(-x // 1)


def logarithm(x: Any) -> Any:
    """Natural logarithm as the limit (x^e - 1)/e, to a relative error below 1e-5 for 1 <= x <= 1e12."""
    return (x**_SMALL - 1) / _SMALL


Key = tuple[str, str, str, str]
"""Operator, back end, precision, card class."""
CONSTANTS = Path(__file__).with_name("laws.json")
# Formats whose kernels are one another's nearest kin: products of the same units, with other scales.
ALIKE = {
    "fp16": ("bf16",), "tf32": ("bf16", "fp32"), "int8": ("fp8",), "mxfp4": ("nvfp4", "mxfp4_weight_only", "int4_weight_only"),
    "nvfp4": ("mxfp4_mxfp8", "mxfp4_weight_only", "int4_weight_only"), "fp8_block": ("fp8",), "fp8": ("fp8_block", "bf16"),
    "mxfp4_weight_only": ("int4_weight_only", "mxfp4"), "int4_weight_only": ("mxfp4_weight_only", "int8_weight_only"),
    "int8_weight_only": ("int4_weight_only",), "mxfp4_mxfp8": ("nvfp4", "mxfp4_weight_only"), "fp32": ("bf16",),
    "mamba2": ("gdn",),  # the same state, read and written once a token
    "kda": ("gdn",),
    "gdn": ("kda",),
    # The modules of sparse attention were measured with an 8-bit cache alone.
    # vLLM's of DeepSeek-V4 with its projections in 8 bits alone, which are left out again (latent.sparse_attention).
    "bf16, bf16 cache": ("bf16, fp8 cache", "fp8_block, fp8 cache"), "bf16, fp8 cache": ("fp8_block, fp8 cache",),
    "fp8_block, bf16 cache": ("fp8_block, fp8 cache", "bf16, fp8 cache"),
}  # fmt: skip
_ANY = 0.35  # relative error assumed where a law is borrowed from a class and its transfer was never measured


class Spread(msgspec.Struct, frozen=True, omit_defaults=True):
    """Errors |predicted/measured - 1| of ``n`` rows: their median and their 90th percentile."""

    n: int = 0
    median: float = 0
    p90: float = 0


class Law(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Few physical constants of one operator, back end and number format on one class of cards.

    ``cards``: the measured cards by id, each with its own value of the constants that differ from card to card within a class
    (the share of peak rate and bandwidth that it holds, its launch time).

    ``fitted``: errors on the rows of the fit. ``held``: on shapes left out. ``transfer``: on a card left out of the class
    (or, where the class has one measured card, on this class with the constants of its nearest neighbour).
    """

    operator: str
    backend: str
    precision: str
    card_class: str
    constants: dict[str, float]
    cards: dict[str, dict[str, float]] = {}
    fitted: Spread = Spread()
    held: Spread = Spread()
    transfer: Spread = Spread()
    source: str = ""

    @property
    def name(self) -> str:
        """``gemm cublas bf16 on hopper_dc``."""
        return f"{self.operator} {self.backend} {self.precision} on {self.card_class}"


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """The law taken for a card, with the card's own constants where it was measured.

    ``borrowed`` says what was missing when it is not the law that was asked for.
    """

    law: Law
    error: Spread
    constants: dict[str, float] = {}
    borrowed: str = ""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of one kernel call (a number or an array), the parts they come from, and the law with its error.

    ``parts``: seconds by what could bind ("launch", "bandwidth", "compute", "unit", "link"), before they are combined.
    """

    seconds: Any
    parts: dict[str, Any]
    formula: str
    chosen: Chosen

    @property
    def law(self) -> Law:
        """The law that was evaluated."""
        return self.chosen.law

    @property
    def error(self) -> Spread:
        """Relative error to expect of this estimate: on shapes left out, or of the transfer when the card is not measured."""
        return self.chosen.error

    @property
    def binds(self) -> str:
        """The largest part: bandwidth, compute, launch, unit or link. For single estimates, not arrays."""
        return max(self.parts, key=lambda part: float(self.parts[part]))

    @property
    def why(self) -> str:
        """The formula, its parts in microseconds and the law they come from. For single estimates, not arrays."""
        parts = ", ".join(f"{name} {float(value) * 1e6:,.1f}" for name, value in self.parts.items())
        note = f"; {self.chosen.borrowed}" if self.chosen.borrowed else ""
        return f"{self.formula} = {float(self.seconds) * 1e6:,.1f} µs ({parts} µs; law {self.law.name}{note})"


@functools.cache
def laws() -> dict[Key, Law]:
    """Every law by operator, back end, precision and card class, in the order of the file."""
    return {key: law for operator in _file() for key, law in _laws_of(operator).items()}


@functools.cache
def _file() -> dict[str, msgspec.Raw]:
    """The file by operator, each part still text: a forecast decodes the few operators it meets."""
    return msgspec.json.decode(CONSTANTS.read_bytes(), type=dict[str, msgspec.Raw])


@functools.cache
def _laws_of(operator: str) -> dict[Key, Law]:
    rows = msgspec.json.decode(_file().get(operator, b"[]"), type=list[Law])
    return {(row.operator, row.backend, row.precision, row.card_class): row for row in rows}


def law_for(operator: str, backend: str, precision: str, card: Accelerator) -> Chosen:
    """The law of this operator on the card's class, or the nearest one there is, with what was missing.

    ``backend``: empty for the one that current vLLM takes (machine.py).

    Tried in turn: for weights that are unpacked, the same kernel on the class with others; the class itself and its neighbours,
    each with the same back end and then another engine's call of the same kernel; the same in the format nearest to this one;
    other back ends; any law of this operator and format.
    Raises UnmodelledError when the operator has no law in that precision.
    """
    kind, measured = card_class(card), card.id
    backend = backend or default_backend(operator=operator, card=card, precision=precision).name
    law = _find(operator, backend, precision, kind)
    if (law.card_class, law.backend, law.precision) == (kind, backend, precision):
        if measured in law.cards:
            own = law.constants | law.cards[measured]
            return Chosen(law=law, constants=own, error=law.held if law.held.n else law.fitted)
        because = f"{card.name} was not measured: constants of its class, {kind}"
    else:
        because = f"no law of {backend} {precision} on {kind}: constants of {law.backend} {law.precision} on {law.card_class}"
    return Chosen(law=law, constants=_sustained(law, kind), error=_transferred(law, kind), borrowed=because)


def _sustained(law: Law, kind: str) -> dict[str, float]:
    """The law's constants on another class: a board that cannot hold its clock computes less, another maker's moves less.

    NCCL's own laws are kept: RCCL is a library of its own, and its transfer error says what is not known of it.
    """
    if law.card_class[:4] == kind[:4]:
        return law.constants
    held = dict(SUSTAINED.get(kind, {}))
    if kind in CDNA and law.backend != "nccl":
        held |= OF_ANOTHER_MAKER.get(law.operator, {})
    return law.constants | {name: law.constants[name] * share for name, share in held.items() if name in law.constants}


@functools.lru_cache(maxsize=4096)
def _find(operator: str, backend: str, precision: str, kind: str) -> Law:
    found = _laws_of(operator)
    places, alike = (kind, *NEIGHBOURS.get(kind, ())), (precision, *ALIKE.get(precision, ()))
    unpacked = (found.get((operator, backend, like, kind)) for like in alike if _unpacks(precision) and _unpacks(like))
    if (own := next((law for law in unpacked if law), None)) is not None:
        return own
    for like in alike:
        law = next((law for place in places if (law := _kin(found, backend, like, place))), None)
        if law is not None:
            return law
    for like in alike:
        same = [law for law in found.values() if law.precision == like]
        near = [law for place in places for law in same if law.card_class == place]
        if near or same:
            return (near or same)[0]
    raise UnmodelledError(f"no law of {operator} in {precision}: known are {_known(operator)}")


def _unpacks(precision: str) -> bool:
    """Whether a kernel multiplies 16-bit numbers that it unpacks: its class then tells more of it than what it unpacks."""
    return precision.endswith("weight_only")


def _kin(found: dict[Key, Law], backend: str, precision: str, place: str) -> Law | None:
    """The back end's law on a class, or that of another engine's call of the same kernel."""
    here = [law for law in found.values() if (law.precision, law.card_class) == (precision, place)]
    exact = [law for law in here if law.backend == backend]
    same_kernel = [law for law in here if law.backend.rpartition("/")[2] == backend.rpartition("/")[2]]
    return next(iter(exact + same_kernel), None)


def _transferred(law: Law, kind: str) -> Spread:
    """The error to expect of a law on a card it was not measured on.

    In its own class: what leaving a card out cost, of this law or of the operator's laws in the middle. On another class: what
    the operator's laws cost there, in the middle.
    """
    if law.card_class == kind and len(law.cards) > 1 and law.transfer.n:
        return law.transfer
    usual = _typical(law.operator, law.card_class == kind)
    known = law.held if law.held.n else law.fitted
    return Spread(usual.n, max(usual.median, known.median), max(usual.p90, known.p90))


@functools.cache
def _typical(operator: str, within: bool) -> Spread:
    """Medians over the operator's laws of the error of a card left out of its class, or of a whole class left out."""
    each = [law.transfer for law in _laws_of(operator).values() if law.transfer.n and (len(law.cards) > 1) == within]
    if not each:
        return Spread(0, _ANY / 2, _ANY)
    middle = [sorted(getattr(one, name) for one in each)[len(each) // 2] for name in ("median", "p90")]
    return Spread(len(each), *middle)


def _known(operator: str) -> str:
    return ", ".join(sorted({law.precision for law in _laws_of(operator).values()})) or "none"
