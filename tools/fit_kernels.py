"""Fit the kernel laws to the measured corpus and write ``laws.json``: constants, n, errors in sample, held out and transferred.

``python tools/fit_kernels.py [--only KIND ...] [--score]`` reads ``../shared/kernels`` (or VRAMCAST_SHARED). ``--only`` fits the
laws of these tables and keeps the others. ``--score`` prints the table of errors that docs/kernels.md shows.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import msgspec
import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(Path(__file__).parent / "kernels"), str(ROOT / "src")]

from corpus import gather  # noqa: E402
from fitting import Fitted, Spec, Table, fit, held_out, spread  # noqa: E402
from page import page  # noqa: E402
from score import score  # noqa: E402
from sources import tables  # noqa: E402
from specs import spec_of  # noqa: E402

from vramcast.speed.kernels.law import CONSTANTS, Law, Spread  # noqa: E402
from vramcast.speed.kernels.machine import NEIGHBOURS  # noqa: E402

LEAST_ROWS = 18
PAGE = ROOT / "docs/kernels.md"
BEGIN, END = "<!-- scored -->", "<!-- /scored -->"
Key = tuple[str, str, str, str]


def main() -> None:
    """Fit, write, and say what was found."""
    options = _options()
    if options.page:
        PAGE.write_text(page(_written(), _scored()), "utf-8")
        return
    if options.score:
        _write_score(_corpus(("gemm",)))
        return
    corpus = _corpus(tuple(options.only))
    found = {key: t for key, t in corpus.items() if _asked(options.classes, key[3]) and _asked(options.precisions, key[2])}
    classes = {key: _fit(key, table) for key, table in found.items()}
    laws = [_law(key, found[key], classes) for key in found]
    kept = (
        [] if not options.only + options.classes + options.precisions else [law for law in _written() if _key(law) not in found]
    )
    CONSTANTS.write_bytes(_lines(sorted([*kept, *laws], key=_key)))
    sys.stdout.write(f"wrote {len(laws)} laws of {len(laws) + len(kept)} to {CONSTANTS.name}\n")


def _asked(names: list[str], name: str) -> bool:
    return not names or name in names


def _corpus(only: tuple[str, ...]) -> dict[Key, Table]:
    shared = Path(os.environ.get("VRAMCAST_SHARED", ROOT.parent / "shared")) / "kernels"
    every = gather(tables(shared, only))
    return {key: table for key, table in every.items() if (table.weight >= 1).sum() >= LEAST_ROWS}


def _write_score(found: dict[Key, Table]) -> None:
    """Print the table of errors and keep it for the page."""
    lines = ["| measure | left out | rows | median | p90 |", "|---|---|---|---|---|"]
    for name, how, errors in score(found, _written()):
        if not errors.n:
            continue
        lines.append(f"| {name} | {how} | {errors.n:,} | {errors.median:.1%} | {errors.p90:.0%} |")
        sys.stdout.write(lines[-1] + "\n")
        sys.stdout.flush()
    text = PAGE.read_text("utf-8") if PAGE.exists() else f"{BEGIN}\n{END}"
    PAGE.write_text(text[: text.index(BEGIN)] + "\n".join([BEGIN, *lines, ""]) + text[text.index(END) :], "utf-8")


def _scored() -> str:
    """The table of errors as the page has it."""
    text = PAGE.read_text("utf-8") if PAGE.exists() else f"{BEGIN}\n{END}\n"
    return text[text.index(BEGIN) : text.index(END) + len(END)] + "\n"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="fit only the laws of these tables: gemm, moe, nccl ...")
    parser.add_argument("--classes", nargs="*", default=[], help="of those, only on these classes of cards: hopper_dc ...")
    parser.add_argument("--precisions", nargs="*", default=[], help="of those, only these formats: int4_weight_only ...")
    parser.add_argument("--score", action="store_true", help="print the table of errors left out, and keep it for the page")
    parser.add_argument("--page", action="store_true", help="write docs/kernels.md from the laws as they are")
    return parser.parse_args()


def _fit(key: Key, table: Table) -> Fitted:
    start = time.perf_counter()
    fitted = fit(table, spec_of(key[0], key[1]))
    errors = spread(table.errors(fitted.predict(table))[table.weight >= 1])
    sys.stdout.write(
        f"{' '.join(key)}: {errors.n} rows, {errors.median:.3f} {errors.p90:.3f}, {time.perf_counter() - start:.0f} s\n"
    )
    sys.stdout.flush()
    return fitted


def _law(key: Key, table: Table, classes: dict[Key, Fitted]) -> Law:
    fitted, spec = classes[key], spec_of(key[0], key[1])
    main = table.weight >= 1
    return Law(
        operator=key[0], backend=key[1], precision=key[2], card_class=key[3],
        constants=_rounded(fitted.constants), cards={card: _rounded(own) for card, own in fitted.cards.items()},
        fitted=spread(table.errors(fitted.predict(table))[main]), held=_held(table, spec),
        transfer=_transfer(key, table, spec, classes), source=table.source,
    )  # fmt: skip


def _held(table: Table, spec: Spec) -> Spread:
    aside = held_out(table.geometry)
    if not aside.any() or aside.all():
        return Spread()
    rest = table.take(aside)
    errors = rest.errors(fit(table.take(~aside), spec).predict(rest))
    return spread(errors[rest.weight >= 1])


def _transfer(key: Key, table: Table, spec: Spec, classes: dict[Key, Fitted]) -> Spread:
    """Errors on each card with the constants of the others of its class, or of the nearest class where it is alone."""
    names = np.unique(table.cards)
    if len(names) > 1:
        errors = [_left_out(table, spec, card) for card in names]
        return spread(np.concatenate(errors))
    for place in NEIGHBOURS.get(key[3], ()):
        other = classes.get((*key[:3], place))
        if other is not None:
            predicted = Fitted(other.constants, {}).predict(table)
            return spread(table.errors(predicted)[table.weight >= 1])
    return Spread()


def _left_out(table: Table, spec: Spec, card: str) -> np.ndarray:
    one = table.take(table.cards == card)
    others = fit(table.take(table.cards != card), spec, own=False)
    return one.errors(one.seconds(others.constants))[one.weight >= 1]


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in values.items()}


def _written() -> list[Law]:
    return [law for rows in msgspec.json.decode(CONSTANTS.read_bytes(), type=dict[str, list[Law]]).values() for law in rows]


def _key(law: Law) -> Key:
    return law.operator, law.backend, law.precision, law.card_class


def _lines(laws: list[Law]) -> bytes:
    """An object of operators, each a list with one law a line."""
    parts = []
    for operator in dict.fromkeys(law.operator for law in laws):
        rows = b",\n".join(msgspec.json.encode(law) for law in laws if law.operator == operator)
        parts.append(b'"' + operator.encode() + b'": [\n' + rows + b"\n]")
    return b"{\n" + b",\n".join(parts) + b"\n}\n"


if __name__ == "__main__":
    main()
