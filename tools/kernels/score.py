"""The table the laws are held to: layers of products, decode steps with a cold cache, expert layers and collectives, left out."""

from collections.abc import Callable, Iterator

import numpy as np
from fitting import Array, Fitted, Table, fit, held_out, spread
from specs import spec_of

from vramcast.speed.kernels.law import Law, Spread
from vramcast.speed.kernels.scoring import layers

Key = tuple[str, str, str, str]
FOLDS = 4


MEASURES: dict[str, Callable[[Law], bool]] = {
    "decode attention, cold, bf16 cache": lambda law: (law.operator, law.precision) == ("decode_attention", "bf16"),
    "decode attention, cold, fp8 cache": lambda law: (law.operator, law.precision) == ("decode_attention", "fp8"),
    "prefill attention": lambda law: law.operator == "prefill_attention",
    "MoE layer": lambda law: law.operator == "moe",
    "latent attention, whole module": lambda law: "module" in law.operator,
    "recurrent layers": lambda law: law.operator.startswith("recurrent"),
    "collectives": lambda law: law.operator in {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"},
    "expert exchange": lambda law: law.operator in {"dispatch", "combine"},
}
PRODUCTS: dict[str, Callable[[Key], bool]] = {
    "GEMM, sum of a layer, bf16": lambda key: key[0] == "gemm" and key[2] == "bf16",
    "GEMM, sum of a layer, fp8": lambda key: key[0] == "gemm" and key[2] in {"fp8", "fp8_block"} and key[1] in FP8,
}
FP8 = {"trtllm", "vllm/cutlass", "sglang/cutlass", "deepgemm"}


def score(tables: dict[Key, Table], laws: list[Law]) -> Iterator[tuple[str, str, Spread]]:
    """(measure, how it was left out, errors): the median over laws of each law's median and p90.

    Layers of products are fitted again in folds; the others are what the fit noted with each law.
    """
    for name, belongs in PRODUCTS.items():
        chosen = [table for key, table in tables.items() if belongs(key)]
        for how, predicted in (("geometries", _out_of_fold), ("card, others of its class measured", _card_left_out)):
            errors = [_layers(table, times) for table in chosen if (times := predicted(table)) is not None]
            yield name, how, _of_laws([spread(part) for part in errors if len(part)])
    for name, of in MEASURES.items():
        mine = [law for law in laws if of(law)]
        yield name, "geometries", _of_laws([law.held for law in mine if law.held.n])
        yield (
            name,
            "card, others of its class measured",
            _of_laws([w.transfer for w in mine if w.transfer.n and len(w.cards) > 1]),
        )
        yield (
            name,
            "whole class, constants of the nearest",
            _of_laws([w.transfer for w in mine if w.transfer.n and len(w.cards) == 1]),
        )


def _of_laws(each: list[Spread]) -> Spread:
    """Each law (back end, format, class) counts the same, however many rows it has."""
    if not each:
        return Spread()
    middle, high = (round(float(np.median([getattr(one, name) for one in each])), 4) for name in ("median", "p90"))
    return Spread(sum(one.n for one in each), middle, high)


def _out_of_fold(table: Table) -> Array | None:
    spec = spec_of(table.operator, table.backend)
    out = np.full(len(table.us), np.nan)
    for fold in range(FOLDS):
        aside = held_out(table.geometry + np.uint64(fold * 7919), FOLDS)
        if aside.any() and not aside.all():
            out[aside] = fit(table.take(~aside), spec).predict(table.take(aside))
    return out


def _card_left_out(table: Table) -> Array | None:
    spec = spec_of(table.operator, table.backend)
    names = np.unique(table.cards)
    if len(names) < 2:
        return None
    out = np.full(len(table.us), np.nan)
    for card in names:
        aside = table.cards == card
        constants = fit(table.take(~aside), spec, own=False).constants
        out[aside] = Fitted(constants, {}).predict(table.take(aside))
    return out


def _layers(table: Table, times: Array) -> Array:
    """Errors of the sum over a layer's four products, for each card."""
    errors: list[float] = []
    for card in np.unique(table.cards):
        rows = np.flatnonzero((table.cards == card) & np.isfinite(times))
        columns = (table.arguments[name][rows] for name in "mnk")
        both = {shape: (times[i], table.us[i] * 1e-6) for shape, i in zip(zip(*columns, strict=True), rows, strict=True)}
        errors += [abs(sum(both[s][0] for s in four) / sum(both[s][1] for s in four) - 1) for four in layers(both)]
    return np.array(errors)
