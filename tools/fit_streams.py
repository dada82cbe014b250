"""Fits the constants of engines without kernel tables (speed/stream_rows.py) and says how well they carry over.

    python tools/fit_streams.py truth/speed            # every fit: constants, errors in sample and left out
    python tools/fit_streams.py truth/speed gddr hbm   # some of them

It prints; the constants are then written into the table by hand, rounded. A fit is few fields of the rows of some engine and
classes of cards, found by least squares of log(forecast/measured) with a loss that outliers do not govern, a group (card and
model) weighing the square root of its figures, and a weak pull towards what the table says. Left out: one card (``by`` card) or
one model at a time.
"""

import argparse
import math
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

import msgspec
import numpy as np
from scipy.optimize import least_squares

from vramcast.errors import VramcastError
from vramcast.speed.deployment import Deployment
from vramcast.speed.kernels.machine import card_class
from vramcast.speed.step import Step
from vramcast.speed.stream_rows import Stream
from vramcast.speed.streams import stream_of
from vramcast.truth.judgement import Unexpressed
from vramcast.truth.rows import read_rows
from vramcast.truth.rows import speed as rows_of_speed
from vramcast.truth.rows import speed_words as words
from vramcast.truth.rows.training_speed import whole_row

PULL = 0.7  # standard deviation of a constant's logarithm around the table's
NOISE = 0.06


class Fit(NamedTuple):
    """Fields of the rows of ``engine`` on ``classes`` (all when none) and card ids that start with ``cards``.

    A field ``module_s.awq`` is that entry of the tuple. Figures of larger batches than ``most_batch`` and of releases outside
    ``builds`` are left aside.
    """

    engine: str
    fields: tuple[str, ...]
    classes: tuple[str, ...] = ()
    cards: tuple[str, ...] = ()
    measure: str = "tokens_per_s"
    by: str = "card"
    most_batch: int = 1
    builds: tuple[int, int] = (0, 10**9)


_GDDR = ("geforce", "ampere_pro", "turing_pro", "ada_pro", "blackwell_pro")
_LAYERS = ("bandwidth", "unpack", "layer_s", "routed_s", "delta_s")
_BOARDS = ("geforce", "ampere_pro", "turing_pro", "ada_pro")
_PROMPTS = ("compute", "compute_quantised", "score_passes")
_LATER = ("apple-m2", "apple-m3", "apple-m4")
_OLD, _NEW = (2500, 3100), (6700, 10**9)
FITS = {
    "gddr": Fit("llama_cpp", ("bandwidth", "unpack", "layer_s", "cache_cycle", "hop_s"), _GDDR, builds=_OLD),
    "gddr new": Fit("llama_cpp", _LAYERS, _BOARDS, builds=_NEW),
    "gb10 new": Fit("llama_cpp", ("bandwidth", "layer_s"), ("blackwell_pro",), ("gb10",), by="model", builds=_NEW),
    "other new": Fit("llama_cpp", ("bandwidth", "layer_s", "routed_s", "delta_s"), ("rdna3", "rdna4", "rdna3.5"), builds=_NEW),
    "apple new": Fit("llama_cpp", _LAYERS, ("apple",), builds=_NEW),
    "apple-later new": Fit("llama_cpp", _LAYERS, ("apple",), _LATER, builds=_NEW),
    "a100": Fit("llama_cpp", ("bandwidth", "quantised", "layer_s", "cache_cycle", "hop_s"), ("ampere_dc",)),
    "h100": Fit("llama_cpp", ("bandwidth", "quantised", "layer_s", "cache_cycle", "hop_s"), ("hopper_dc",)),
    "hbm": Fit("llama_cpp", ("weight_cycle", "layer_s", "cache_cycle", "hop_s"), ("ampere_dc", "hopper_dc")),
    "apple": Fit("llama_cpp", ("bandwidth", "layer_s", "unpack", "cache_cycle"), ("apple",)),
    "apple-later": Fit("llama_cpp", ("bandwidth", "layer_s", "unpack", "cache_cycle"), ("apple",), _LATER, builds=_OLD),
    "apple-m1 new": Fit("llama_cpp", ("unpack",), ("apple",), ("apple-m1",), builds=_NEW),
    "apple-m1": Fit("llama_cpp", ("unpack",), ("apple",), ("apple-m1",), builds=_OLD),
    **{
        f"{name} prompts": Fit("llama_cpp", _PROMPTS, (kind,), measure="prefill_tokens_per_s")
        for name, kind in (
            ("geforce", "geforce"), ("pro", "ada_pro"), ("ampere", "ampere_pro"), ("a100", "ampere_dc"), ("h100", "hopper_dc"),
            ("apple", "apple"),
        )
    },
    "transformers a100": Fit(
        "transformers",
        ("layer_s", "kernels_s", "cache_cycle", "bandwidth", "quantised", "module_s.awq", "module_s.gptq-int8"),
        ("ampere_dc",), by="model",
    ),
    "transformers h20": Fit(
        "transformers", ("layer_s", "cache_cycle", "bandwidth", "quantised", "expert_s", "module_s.fp8"), ("hopper_dc",),
        by="model",
    ),
    "litgpt": Fit("litgpt", ("layer_s", "module_s.nf4-dq", "module_s.nf4"), by="model"),
    "gpt_fast": Fit("gpt_fast", ("bandwidth", "quantised", "layer_s", "exchange_s"), by="model"),
    "exllama": Fit("exllama", ("bandwidth", "layer_s"), ("geforce",)),
    "tinychat": Fit("tinychat", ("bandwidth", "quantised", "layer_s")),
    "autoawq": Fit("autoawq", ("bandwidth", "quantised", "layer_s"), ("geforce",), by="model", most_batch=8),
    "autoawq_gemv": Fit("autoawq_gemv", ("quantised", "layer_s", "row_share"), ("geforce",), by="model", most_batch=8),
    "fastertransformer": Fit("fastertransformer", ("bandwidth", "layer_s", "exchange_s"), by="model", most_batch=99),
}  # fmt: skip


class Run(NamedTuple):
    """One figure of a row on its deployment."""

    row: dict[str, object]
    on: Deployment
    stream: Stream
    card: str
    model: str
    measured: float
    measure: str

    def forecast(self, stream: Stream) -> float:
        """What the row's figure would be under other constants."""
        step = Step(self.on, stream=stream)
        pairs = rows_of_speed.figures_of(self.row, step, self.row["measured"], self.row["settings"])
        return next(float(pair.predicted) for pair in pairs if pair.measure == self.measure)


def runs_of(path: Path, fit: Fit) -> list[Run]:
    """The figures of the file that a fit may use."""
    found = []
    for row in (row for file in sorted(path.glob("*_speed.jsonl")) for row in read_rows(file)):
        try:
            whole = whole_row(row)
            if words.engine(whole) != fit.engine:
                continue
            on = rows_of_speed.deployment_of_row(whole)
            pairs = list(rows_of_speed.figures_of(whole, Step(on), whole["measured"], whole["settings"]))
        except (VramcastError, Unexpressed):
            continue
        stream = stream_of(on.engine.engine, on.card, on.version)
        batch = whole["settings"].get("batch_size") or 1
        if on.engine.engine != fit.engine or stream is None or batch > fit.most_batch:
            continue
        if fit.builds != (0, 10**9) and not fit.builds[0] <= on.version[0] < fit.builds[1]:
            continue
        if (fit.classes and card_class(on.card) not in fit.classes) or not on.card.id.startswith(fit.cards or ("",)):
            continue
        for pair in pairs:
            if pair.measure == fit.measure:
                found.append(Run(whole, on, stream, on.card.name, str(whole["model_id"]), pair.measured, pair.measure))
    return found


def changed(stream: Stream, fields: tuple[str, ...], shares: np.ndarray) -> Stream:
    """The row with these fields as shares of what the table says: rows of one fit may differ by release and family of cards."""
    values = [float(share) * start_of(stream, name) for name, share in zip(fields, shares, strict=True)]
    plain = {name: value for name, value in zip(fields, values, strict=True) if "." not in name}
    modules = {name.split(".", 1)[1]: value for name, value in zip(fields, values, strict=True) if "." in name}
    if modules:
        plain["module_s"] = tuple((form, modules.get(form, seconds)) for form, seconds in stream.module_s)
    return msgspec.structs.replace(stream, **plain)


def start_of(stream: Stream, name: str) -> float:
    """The table's value; a plausible one where it says nothing."""
    if "." in name:
        return dict(stream.module_s)[name.split(".", 1)[1]]
    said = float(getattr(stream, name))
    usual = {
        "quantised": stream.bandwidth,
        "unpack": 1.0,
        "hop_s": 2e-4,
        "exchange_s": 1e-5,
        "compute_quantised": stream.compute,
        "routed_s": 2e-5,
        "delta_s": 7e-5,
    }
    return said or usual.get(name, 1.0)


def solved(runs: list[Run], fields: tuple[str, ...]) -> np.ndarray:
    """The shares of the table's constants that fit these figures best."""
    sizes: dict[tuple[str, str], int] = defaultdict(int)
    for run in runs:
        sizes[run.card, run.model] += 1
    weights = np.array([sizes[run.card, run.model] ** -0.25 for run in runs])
    centre = np.zeros(len(fields))

    def residuals(x: np.ndarray) -> np.ndarray:
        values = np.exp(x)
        off = [math.log(run.forecast(changed(run.stream, fields, values)) / run.measured) / NOISE for run in runs]
        return np.concatenate([np.array(off) * weights, (x - centre) / PULL])

    return np.exp(least_squares(residuals, centre, loss="soft_l1", diff_step=0.01, max_nfev=40).x)


def errors_of(runs: list[Run], fields: tuple[str, ...], values: np.ndarray) -> list[float]:
    """Signed relative errors."""
    return [run.forecast(changed(run.stream, fields, values)) / run.measured - 1 for run in runs]


def left_out(runs: list[Run], fit: Fit) -> dict[str, list[float]]:
    """Errors of each card or model when the others alone were fitted."""
    names = sorted({getattr(run, fit.by) for run in runs})
    found = {}
    for name in names:
        rest, own = [r for r in runs if getattr(r, fit.by) != name], [r for r in runs if getattr(r, fit.by) == name]
        if rest:
            found[name] = errors_of(own, fit.fields, solved(rest, fit.fields))
    return found


def main() -> None:
    """Print every fit asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, help="a folder of rows")
    parser.add_argument("fits", nargs="*", help=f"of {', '.join(FITS)}")
    asked = parser.parse_args()
    for name in asked.fits or FITS:
        fit = FITS[name]
        runs = runs_of(asked.rows, fit)
        if not runs:
            continue
        values = solved(runs, fit.fields)
        now = [abs(run.forecast(run.stream) / run.measured - 1) for run in runs]
        after = [abs(e) for e in errors_of(runs, fit.fields, values)]
        sys.stdout.write(f"{name}: {len(runs)} figures, median error now {median(now):.1%}, fitted {median(after):.1%}\n")
        for field, value in zip(fit.fields, values, strict=True):
            start = start_of(runs[0].stream, field)
            sys.stdout.write(f"    {field} {start:.4g} -> {start * value:.4g}\n")
        by = left_out(runs, fit)
        for key, errors in by.items():
            sys.stdout.write(f"    without {key}: {median(map(abs, errors)):.1%}, bias {median(errors):+.1%} ({len(errors)})\n")
        if by:
            sys.stdout.write(f"    left out, mean of medians: {mean(median(map(abs, e)) for e in by.values()):.1%}\n")


if __name__ == "__main__":
    main()
