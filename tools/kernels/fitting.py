"""Constants of a law from measured rows: robust least squares on the logarithm, over a few rows of each card."""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from vramcast.speed.kernels.law import Spread
from vramcast.speed.kernels.machine import Machine
from vramcast.speed.kernels.operators import seconds

Array = NDArray[Any]
SCALE = 0.05  # relative error beyond which a row counts linearly, not as its square
ROUTING_NS = 20.2  # of vLLM's Marlin on an RTX PRO 6000, whose table has 32 and 128 experts


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of one law on one class: arguments, machine, card ids, microseconds, and the geometry that is held out as one."""

    operator: str
    backend: str
    precision: str
    card_class: str
    arguments: dict[str, Any]
    machine: Machine
    cards: Array
    us: Array
    geometry: Array
    weight: Array
    source: str

    def take(self, chosen: Array) -> "Table":
        """Only these rows (a mask or indices)."""
        arguments = {k: v[chosen] if isinstance(v, np.ndarray) else v for k, v in self.arguments.items()}
        fields = {f: getattr(self.machine, f)[chosen] for f in self.machine.__struct_fields__}
        parts = {f: getattr(self, f)[chosen] for f in ("cards", "us", "geometry", "weight")}
        return dataclasses.replace(self, arguments=arguments, machine=Machine(**fields), **parts)

    def seconds(self, constants: dict[str, float]) -> Array:
        """The law at these constants, one value a row."""
        return seconds(self.operator, constants, self.machine, **self.arguments)

    def errors(self, predicted: Array) -> Array:
        """|predicted / measured - 1|."""
        return np.abs(predicted / (self.us * 1e-6) - 1)


@dataclasses.dataclass(frozen=True)
class Spec:
    """The constants of an operator: start, lower and upper bound of each, and those that a measured card has of its own."""

    constants: dict[str, tuple[float, float, float]]
    per_card: tuple[str, ...]


def subsample(table: Table, most: int, seed: int = 0) -> Table:
    """At most so many rows, the same for each card, drawn by weight, deterministic."""
    rng = np.random.default_rng(seed)
    names = np.unique(table.cards)
    chosen = []
    for card in names:
        rows = np.flatnonzero((table.cards == card) & (table.weight > 0))
        size = min(len(rows), most // len(names))
        share = table.weight[rows] / table.weight[rows].sum()
        chosen.append(rng.choice(rows, size=min(size, np.count_nonzero(share)), replace=False, p=share))
    return table.take(np.sort(np.concatenate(chosen)))


def solve(table: Table, spec: Spec, start: dict[str, float], free: tuple[str, ...], most: int = 3000) -> dict[str, float]:
    """The free constants that fit the rows best, the others as in ``start``."""
    rows = subsample(table, most)
    measured = np.log(rows.us * 1e-6)
    low, high = (np.array([spec.constants[name][i] for name in free]) for i in (1, 2))
    first = np.clip([start[name] for name in free], low + 1e-9, high - 1e-9)

    def residual(values: Array) -> Array:
        return np.log(rows.seconds(start | dict(zip(free, values, strict=True)))) - measured

    scale = np.maximum(np.abs(first), 0.05 * (high - low))
    found = least_squares(
        residual,
        first,
        bounds=(low, high),
        loss="soft_l1",
        f_scale=SCALE,
        x_scale=scale,
        diff_step=1e-3,
        max_nfev=40,
        ftol=1e-4,
        xtol=1e-4,
    )
    return start | {name: float(value) for name, value in zip(free, found.x, strict=True)}


@dataclasses.dataclass(frozen=True)
class Fitted:
    """Constants of the class and of each card."""

    constants: dict[str, float]
    cards: dict[str, dict[str, float]]

    def predict(self, table: Table) -> Array:
        """Seconds of each row, with its own card's constants where the card was measured."""
        out = np.empty(len(table.us))
        for card in np.unique(table.cards):
            rows = np.flatnonzero(table.cards == card)
            out[rows] = table.take(rows).seconds(self.constants | self.cards.get(card, {}))
        return out


def identified(table: Table, spec: Spec) -> Spec:
    """The spec with sorting by expert held still where a table has one number of experts: it cannot tell it from a launch."""
    if "routing_ns" not in spec.constants or len(np.unique(table.arguments["experts"])) > 1:
        return spec
    return dataclasses.replace(
        spec, constants=spec.constants | {"routing_ns": (ROUTING_NS, ROUTING_NS - 0.01, ROUTING_NS + 0.01)}
    )


def fit(table: Table, spec: Spec, *, own: bool = True) -> Fitted:
    """The class's constants over all its cards, then each card's own."""
    spec = identified(table, spec)
    start = {name: value[0] for name, value in spec.constants.items()}
    shared = solve(table, spec, start, tuple(spec.constants))
    names = np.unique(table.cards)
    cards: dict[str, dict[str, float]] = {str(card): {} for card in names}
    if own and len(names) > 1:
        for card in names:
            mine = solve(table.take(table.cards == card), spec, shared, spec.per_card, 1200)
            cards[str(card)] = {name: mine[name] for name in spec.per_card}
    return Fitted(shared, cards)


def spread(errors: Array) -> Spread:
    """n, median and 90th percentile, rounded as they are printed."""
    if not len(errors):
        return Spread()
    return Spread(len(errors), round(float(np.median(errors)), 4), round(float(np.percentile(errors, 90)), 4))


def held_out(geometry: Array, part: int = 4) -> Array:
    """True for a quarter of the geometries, chosen by a fixed hash of their numbers."""
    return (geometry * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)) % np.uint64(part) == 0
