"""Fits the sustained factors of training (speed/training/sustained.json) to published runs, and says how well they carry over.

    python tools/fit_training.py truth/training_speed.jsonl            # writes sustained.json, prints the errors
    python tools/fit_training.py truth/training_speed.jsonl --score    # errors alone

The logarithm of a factor is its prior, plus a part for all runs, one for the kind of framework (the attention kernel, for
scores), one for the class of cards and one for the pair; each part is pulled towards nothing by its width, so a pair that was
seldom or never measured takes what its kind and its class show elsewhere. A source weighs little more than one of its rows.
Errors: in sample; with a fifth of each source's rows left out, five times; and with a row's whole source left out.
"""

import argparse
import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from vramcast.speed.kernels.machine import card_class
from vramcast.speed.training import sustained as table
from vramcast.speed.training.job import Job
from vramcast.speed.training.step import KINDS, Loads, loads_of, slowest, step_seconds
from vramcast.speed.training.sustained import Sustained, kind_of, prior
from vramcast.truth.judgement import source_name
from vramcast.truth.rows import read_rows
from vramcast.truth.rows import training_speed as rows_of_speed

FACTORS = ("products", "narrow", "experts", "scores", "streams", "scans", "exposed", "host_s", "routed_s")
# Widths of the logarithms: of the part for all runs, for a kind, for a class, for a pair.
WIDTHS = {
    "products": (0.10, 0.10, 0.10, 0.05), "narrow": (0.20, 0.15, 0.12, 0.05), "experts": (0.40, 0.20, 0.20, 0.10),
    "scores": (0.10, 0.12, 0.12, 0.12), "streams": (0.30, 0.20, 0.15, 0.10), "scans": (0.50, 0.001, 0.001, 0.001),
    "exposed": (0.60, 0.40, 0.30, 0.20), "host_s": (0.30, 0.30, 0.20, 0.10), "routed_s": (0.40, 0.001, 0.20, 0.001),
}  # fmt: skip
ROW_NOISE, BEYOND = 0.07, 2.5  # a row's own scatter; residuals beyond so many of it count as their square root
CROWD = -0.3  # a row weighs (rows of its source) ** CROWD
ROUNDS, STEP, FOLDS = 30, 1.002, 5


class Run(NamedTuple):
    """One row, ready to be put together under any factors. ``keys``: of each factor, its kind (or attention kernel) and class."""

    id: str
    source: str
    kind: str
    attention: str
    card: str
    job: Job
    loads: Loads
    measured: float

    def key(self, factor: str) -> str:
        """What a factor belongs to beside the class."""
        return self.attention if factor == "scores" else self.kind


def runs_of(path: Path) -> list[Run]:
    """Every row of the file that can be asked and whose words decide its time."""
    found, marks = [], msgspec.json.decode((path.parent / "marks.json").read_bytes(), type=dict[str, str])
    for row in read_rows(path):
        if row["id"] in marks:
            continue
        whole = rows_of_speed.whole_row(row)
        try:
            model, card = rows_of_speed.model_of(whole), rows_of_speed.card_of(whole)
            job = rows_of_speed.job_of_row(whole, model)
            factors = table.sustained(kind_of(job.framework, compiled=job.compiled), job.attention, card_class(card))
            loads = loads_of(job, slowest(job, model, card, factors))
            measured = rows_of_speed.measured_s(whole, job)
        except Exception as error:
            sys.stderr.write(f"{row.get('id')}: {error}\n")
            continue
        if rows_of_speed.doubt(whole):
            sys.stderr.write(f"{row.get('id')}: {rows_of_speed.doubt(whole)}\n")
            continue
        kind, source = kind_of(job.framework, compiled=job.compiled), source_name(str(whole["source"]))
        found.append(Run(str(whole["id"]), source, kind, job.attention, card_class(card), job, loads, measured))
    return found


class Shape(NamedTuple):
    """The parts there are: names of kinds and kernels, of classes, and pairs of both."""

    keys: list[str]
    cards: list[str]
    pairs: list[tuple[str, str]]

    @classmethod
    def of(cls, runs: list[Run]) -> "Shape":
        """Those that these runs have."""
        pairs = {(run.key(name), run.card) for run in runs for name in ("products", "scores")}
        return cls(sorted({key for key, _ in pairs}), sorted({card for _, card in pairs}), sorted(pairs))

    @property
    def parts(self) -> int:
        """Rows of the matrix of parts: one for all, then keys, cards, pairs."""
        return 1 + len(self.keys) + len(self.cards) + len(self.pairs)

    def places(self, key: str, card: str) -> list[tuple[int, int]]:
        """The rows of one key and class, each with its column of widths; a key or class that is not there has none."""
        found = [(0, 0)]
        if key in self.keys:
            found.append((1 + self.keys.index(key), 1))
        if card in self.cards:
            found.append((1 + len(self.keys) + self.cards.index(card), 2))
        if (key, card) in self.pairs:
            found.append((1 + len(self.keys) + len(self.cards) + self.pairs.index((key, card)), 3))
        return found


class Sample:
    """Runs as arrays: their loads, what was measured, and which parts each of their factors takes."""

    def __init__(self, runs: list[Run], shape: Shape) -> None:
        self.runs, self.shape = runs, shape
        self.loads = _stacked([run.loads for run in runs])
        self.measured = np.log([run.measured for run in runs])
        self.centre = np.log([[getattr(prior(run.attention, run.card), f) for f in FACTORS] for run in runs])
        self.taken = np.zeros((len(runs), len(FACTORS), shape.parts))
        for i, run in enumerate(runs):
            for j, name in enumerate(FACTORS):
                for place, width in shape.places(run.key(name), run.card):
                    self.taken[i, j, place] = WIDTHS[name][width]
        crowd = Counter(run.source for run in runs)
        self.weights = np.array([crowd[run.source] ** CROWD for run in runs])

    def logs(self, parts: np.ndarray) -> np.ndarray:
        """Logarithm of the forecast of each run under a matrix of parts [factor, part]."""
        return self._time(self.centre + np.einsum("ijp,jp->ij", self.taken, parts))

    def _time(self, logs: np.ndarray) -> np.ndarray:
        return np.log(step_seconds(self.loads, Sustained(**dict(zip(FACTORS, np.exp(logs).T, strict=True)))))

    def residuals(self, parts: np.ndarray) -> np.ndarray:
        """Weighted errors of the runs in their scatter, then the parts themselves."""
        errors = (self.logs(parts) - self.measured) / ROW_NOISE
        return np.concatenate([self.weights * _robust(errors), parts.ravel()])

    def slopes(self, parts: np.ndarray) -> np.ndarray:
        """Derivatives of the residuals by every part: nine of the time, one a factor, spread over the parts that a run takes."""
        logs = self.centre + np.einsum("ijp,jp->ij", self.taken, parts)
        base = self._time(logs)
        errors = np.abs(base - self.measured) / ROW_NOISE
        bent = np.where(errors <= BEYOND, 1.0, np.sqrt(BEYOND / np.maximum(errors, BEYOND))) * self.weights / ROW_NOISE
        found = np.zeros_like(self.taken)
        for j in range(len(FACTORS)):
            moved = logs.copy()
            moved[:, j] += math.log(STEP)
            found[:, j, :] = (bent * (self._time(moved) - base) / math.log(STEP))[:, None] * self.taken[:, j, :]
        return np.vstack([found.reshape(len(self.runs), -1), np.eye(parts.size)])


def fit(runs: list[Run], shape: Shape) -> np.ndarray:
    """The parts [factor, part] that fit these runs best under their widths (Levenberg and Marquardt)."""
    sample, parts, damping = Sample(runs, shape), np.zeros((len(FACTORS), shape.parts)), 1e-3

    def cost(at: np.ndarray) -> float:
        return float(np.sum(sample.residuals(at) ** 2))

    best = cost(parts)
    for _ in range(ROUNDS):
        slopes, errors = sample.slopes(parts), sample.residuals(parts)
        square, pull = slopes.T @ slopes, -slopes.T @ errors
        for _ in range(6):
            move = np.clip(np.linalg.solve(square + damping * np.eye(len(pull)), pull), -2, 2).reshape(parts.shape)
            found = cost(parts + move)
            if found < best:
                break
            damping = max(damping * 10, 1e-2)
        else:
            return parts
        gained, parts, best = best - found, parts + move, found
        damping = max(damping / 5, 1e-6)
        if gained < 1e-4 * best:
            return parts
    return parts


def errors_of(runs: list[Run], shape: Shape, parts: np.ndarray) -> dict[str, float]:
    """Signed relative error of each run."""
    sample = Sample(runs, shape)
    return dict(zip([run.id for run in runs], np.expm1(sample.logs(parts) - sample.measured).tolist(), strict=True))


def left_out(runs: list[Run], shape: Shape, groups: dict[str, Any]) -> dict[str, float]:
    """Signed relative error of each run under parts fitted without its group."""
    errors: dict[str, float] = {}
    for group in sorted(set(groups.values()), key=str):
        parts = fit([run for run in runs if groups[run.id] != group], shape)
        errors |= errors_of([run for run in runs if groups[run.id] == group], shape, parts)
    return errors


def folds_of(runs: list[Run]) -> dict[str, int]:
    """A fifth of each source's rows in each fold, by chance with a fixed seed."""
    chance, found = np.random.default_rng(0), {}
    for source in sorted({run.source for run in runs}):
        own = [run.id for run in runs if run.source == source]
        found |= {own[i]: place % FOLDS for place, i in enumerate(chance.permutation(len(own)))}
    return found


def report(runs: list[Run], scored: dict[str, dict[str, float]]) -> None:
    """Median errors by source under each way of leaving out; the macro figures last."""
    medians = []
    for source in sorted({run.source for run in runs}):
        own = [run.id for run in runs if run.source == source]
        medians.append([float(np.median([abs(errors[i]) for i in own])) for errors in scored.values()])
        bias = float(np.median([next(iter(scored.values()))[i] for i in own]))
        told = "  ".join(f"{name} {size:6.1%}" for name, size in zip(scored, medians[-1], strict=True))
        sys.stdout.write(f"{len(own):4} {source:40} {told}  (bias {bias:+.1%})\n")
    macro = np.mean(medians, axis=0)
    told = "  ".join(f"{name} {size:6.1%}" for name, size in zip(scored, macro, strict=True))
    sys.stdout.write(f"{len(runs):4} {'macro over sources':40} {told}\n")


def table_of(runs: list[Run], shape: Shape, parts: np.ndarray, scored: dict[str, dict[str, float]]) -> dict[str, Sustained]:
    """The rows of sustained.json: every kind and every attention kernel on every class, "*" for classes that nobody measured."""
    kinds, kernels = sorted({run.kind for run in runs}), sorted({run.attention for run in runs})
    found = {}
    for key in [*kinds, *kernels]:
        for card in [*shape.cards, "*"]:
            own = [f for f in FACTORS if (f == "scores") == (key in kernels)]
            given = prior(key, card)
            values = {name: _factor(name, given, shape.places(key, card), parts) for name in own}
            members = [run for run in runs if key in (run.kind, run.attention) and card in ("*", run.card)]
            fitted = {"n": len(members), "sources": len({run.source for run in members})}
            for name, errors in (("median", scored["in sample"]), ("left_out", scored["source left out"])):
                if members:
                    fitted[name] = round(float(np.median([abs(errors[run.id]) for run in members])), 4)
            found[f"{key}|{card}"] = Sustained(**values, **fitted)
    return found


def _factor(name: str, given: Sustained, places: list[tuple[int, int]], parts: np.ndarray) -> float:
    row = parts[FACTORS.index(name)]
    log = math.log(getattr(given, name)) + sum(row[place] * WIDTHS[name][width] for place, width in places)
    return float(f"{math.exp(log):.4g}")


def _robust(values: np.ndarray) -> np.ndarray:
    """A row whose words do not say all must not bend the fit."""
    size = np.abs(values)
    return np.where(size <= BEYOND, values, np.sign(values) * (2 * np.sqrt(BEYOND * np.maximum(size, BEYOND)) - BEYOND))


def _stacked(loads: list[Loads]) -> Loads:
    def column(name: str) -> Any:
        if name in ("forward", "backward", "again"):
            return {kind: np.array([getattr(one, name)[kind] for one in loads]) for kind in KINDS}
        return np.array([getattr(one, name) for one in loads], dtype=float)

    return Loads(**{name: column(name) for name in Loads.__struct_fields__})


def main() -> int:
    """Fit, write, report."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("rows", type=Path)
    asked.add_argument("--score", action="store_true", help="print errors, write nothing")
    given = asked.parse_args()
    runs = runs_of(given.rows)
    shape = Shape.of(runs)
    parts = fit(runs, shape)
    scored = {
        "in sample": errors_of(runs, shape, parts),
        "a fifth left out": left_out(runs, shape, folds_of(runs)),
        "source left out": left_out(runs, shape, {run.id: run.source for run in runs}),
    }
    report(runs, scored)
    if not given.score:
        rows = table_of(runs, shape, parts, scored)
        table.CONSTANTS.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
