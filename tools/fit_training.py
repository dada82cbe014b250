"""Fits the sustained factors of training (speed/training/sustained.json) to published runs, and says how well they carry over.

    python tools/fit_training.py truth/training_speed.jsonl            # writes sustained.json, prints the errors
    python tools/fit_training.py truth/training_speed.jsonl --score    # errors alone

Few factors for each kind of framework on each class of cards, pulled towards the class's common factors and those towards the
prior (SPEED: products 1.2, scores 2, streams 1.4), so that a pair with few rows stays near its neighbours. A source weighs the
square root of its rows. Errors: in sample, and with a row's whole source left out of the fit.
"""

import argparse
import math
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from scipy.optimize import least_squares

from vramcast.speed.kernels.machine import card_class
from vramcast.speed.training import sustained as table
from vramcast.speed.training.job import Job, network_of
from vramcast.speed.training.step import ledger
from vramcast.speed.training.sustained import Sustained, kind_of
from vramcast.speed.training.work import Parts, parts_of
from vramcast.truth.judgement import source_name
from vramcast.truth.rows import read_rows
from vramcast.truth.rows import training_speed as rows_of_speed

NAMES = ("products", "experts", "scores", "streams", "exposed", "host_s")
PRIOR = Sustained()
WIDTHS = {"products": 0.10, "experts": 0.4, "scores": 0.35, "streams": 0.3, "exposed": 0.7, "host_s": 1.0}  # of the logarithm
ROW_NOISE = 0.06
BOUNDS = {
    "products": (0.9, 2.5), "experts": (1.0, 8.0), "scores": (1.0, 8.0),
    "streams": (0.5, 4.0), "exposed": (0.01, 1.0), "host_s": (2e-5, 5e-3),
}  # fmt: skip


class Run(NamedTuple):
    """One row, ready to be put together under any factors."""

    id: str
    source: str
    kind: str
    card: str
    job: Job
    parts: Parts
    measured: float


def runs_of(path: Path) -> list[Run]:
    """Every row of the file that can be asked."""
    found = []
    for row in read_rows(path):
        try:
            whole = rows_of_speed.whole_row(row)
            model, card = rows_of_speed.model_of(whole), rows_of_speed.card_of(whole)
            job = rows_of_speed.job_of_row(whole, model)
            parts = parts_of(job, model, card, network_of(card))
            measured = rows_of_speed.measured_s(whole, job)
        except Exception as error:
            sys.stderr.write(f"{row.get('id')}: {error}\n")
            continue
        kind = kind_of(job.framework, compiled=job.compiled)
        found.append(Run(str(whole["id"]), source_name(str(whole["source"])), kind, card_class(card), job, parts, measured))
    return found


def fit(runs: list[Run], prior: Sustained) -> Sustained:
    """The factors that fit these runs best, no further from the prior than their widths make likely."""
    per_source: dict[str, int] = defaultdict(int)
    for run in runs:
        per_source[run.source] += 1
    weights = np.array([1 / math.sqrt(math.sqrt(per_source[run.source])) for run in runs])
    centre = np.array([math.log(getattr(prior, name)) for name in NAMES])
    widths = np.array([WIDTHS[name] for name in NAMES])
    low = np.array([math.log(BOUNDS[name][0]) for name in NAMES])
    high = np.array([math.log(BOUNDS[name][1]) for name in NAMES])

    def residuals(logs: np.ndarray) -> np.ndarray:
        own = Sustained(**dict(zip(NAMES, np.exp(logs).tolist(), strict=True)))
        errors = np.array([math.log(ledger(run.job, run.parts, own).seconds / run.measured) for run in runs])
        return np.concatenate([weights * _robust(errors / ROW_NOISE), (logs - centre) / widths])

    start = np.clip(centre, low + 1e-6, high - 1e-6)
    found = least_squares(residuals, start, bounds=(low, high), max_nfev=60, diff_step=1e-3)
    return Sustained(**dict(zip(NAMES, (round(float(v), 7) for v in np.exp(found.x)), strict=True)))


def _robust(values: np.ndarray) -> np.ndarray:
    """Residuals beyond three widths count as their square root: a row whose words do not say all must not bend the fit."""
    size = np.abs(values)
    return np.where(size <= 3, values, np.sign(values) * (2 * np.sqrt(3 * np.maximum(size, 3)) - 3))


def table_of(runs: list[Run]) -> dict[str, Sustained]:
    """All rows: every run together, each class, each kind, each pair; a finer row is pulled towards its class's."""
    whole = fit(runs, PRIOR)
    found = {"*|*": whole}
    for card in sorted({run.card for run in runs}):
        found[f"*|{card}"] = fit([run for run in runs if run.card == card], whole)
    for kind in sorted({run.kind for run in runs}):
        found[f"{kind}|*"] = fit([run for run in runs if run.kind == kind], whole)
    for kind, card in sorted({(run.kind, run.card) for run in runs}):
        found[f"{kind}|{card}"] = fit([run for run in runs if (run.kind, run.card) == (kind, card)], found[f"*|{card}"])
    return found


def factors_in(found: dict[str, Sustained], run: Run) -> Sustained:
    """The finest row of a table for a run."""
    names = (f"{run.kind}|{run.card}", f"{run.kind}|*", f"*|{run.card}", "*|*")
    return next(found[name] for name in names if name in found)


def errors_of(runs: list[Run], found: dict[str, Sustained]) -> dict[str, float]:
    """Signed relative error of each run under a table."""
    return {run.id: ledger(run.job, run.parts, factors_in(found, run)).seconds / run.measured - 1 for run in runs}


def left_out(runs: list[Run]) -> dict[str, float]:
    """Signed relative error of each run under a table made without its source."""
    errors: dict[str, float] = {}
    for source in sorted({run.source for run in runs}):
        found = table_of([run for run in runs if run.source != source])
        errors |= errors_of([run for run in runs if run.source == source], found)
    return errors


def report(runs: list[Run], inside: dict[str, float], outside: dict[str, float]) -> dict[str, tuple[float, float]]:
    """Median errors by source, in sample and left out; printed, the macro figures last."""
    medians = {}
    for source in sorted({run.source for run in runs}):
        own = [run.id for run in runs if run.source == source]
        pair = tuple(float(np.median([abs(errors[i]) for i in own])) for errors in (inside, outside))
        bias = float(np.median([inside[i] for i in own]))
        medians[source] = (pair[0], pair[1])
        sys.stdout.write(f"{len(own):4} {source:48} in sample {pair[0]:6.1%} (bias {bias:+.1%})  left out {pair[1]:6.1%}\n")
    macro = [float(np.mean([pair[i] for pair in medians.values()])) for i in (0, 1)]
    sys.stdout.write(f"{len(runs):4} {'macro over sources':48} in sample {macro[0]:6.1%}  left out {macro[1]:6.1%}\n")
    return medians


def main() -> int:
    """Fit, write, report."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("rows", type=Path)
    asked.add_argument("--score", action="store_true", help="print errors, write nothing")
    given = asked.parse_args()
    runs = runs_of(given.rows)
    found = table_of(runs)
    inside, outside = errors_of(runs, found), left_out(runs)
    report(runs, inside, outside)
    if not given.score:
        rows = {}
        for name, own in found.items():
            kind, card = name.split("|")
            members = [run for run in runs if kind in ("*", run.kind) and card in ("*", run.card)]
            rows[name] = msgspec.structs.replace(
                own,
                n=len(members),
                sources=len({run.source for run in members}),
                median=round(float(np.median([abs(inside[run.id]) for run in members])), 4),
                left_out=round(float(np.median([abs(outside[run.id]) for run in members])), 4),
            )
        table.CONSTANTS.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
