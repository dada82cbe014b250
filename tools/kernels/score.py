"""The table the laws are held to: layers of products, decode steps with a cold cache, expert layers and collectives, left out."""

from collections.abc import Callable, Iterator

import numpy as np
from fitting import Array, Fitted, Spec, Table, fit, held_out, spread
from specs import spec_of

from vramcast.speed.kernels.law import Spread
from vramcast.speed.kernels.scoring import layers

Key = tuple[str, str, str, str]
FOLDS = 4


def score(tables: dict[Key, Table]) -> Iterator[tuple[str, str, Spread]]:
    """(measure, how it was left out, errors), each over all laws of its kind; the median over a row's law and card."""
    kinds: tuple[tuple[str, Callable[[Key], bool], Callable[[Table, Array], Array]], ...] = (
        ("GEMM, sum of a layer, bf16", lambda key: key[0] == "gemm" and key[2] == "bf16", _layers),
        ("GEMM, sum of a layer, fp8", _is_fp8, _layers),
        ("decode attention, cold, bf16 cache", lambda key: key[0] == "decode_attention" and key[2] == "bf16", _cold),
        ("decode attention, cold, fp8 cache", lambda key: key[0] == "decode_attention" and key[2] == "fp8", _cold),
        ("prefill attention", lambda key: key[0] == "prefill_attention", _rows),
        ("MoE layer", lambda key: key[0] == "moe", _rows),
        ("collectives", lambda key: key[0] in {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}, _rows),
    )
    for name, wanted, errors in kinds:
        laws = {key: table for key, table in tables.items() if wanted(key) and "eager" not in key[1]}
        for how, predicted in (("geometries left out", _out_of_fold), ("card left out", _card_left_out)):
            parts = [
                errors(table, times) for key, table in laws.items() if (times := predicted(table, spec_of(*key[:2]))) is not None
            ]
            if parts:
                yield name, how, _of_laws(parts)


def _of_laws(parts: list[Array]) -> Spread:
    """Each law (back end, format, class) counts the same, however many rows it has: the median of medians, and of p90s."""
    each = [spread(part) for part in parts if len(part)]
    return Spread(
        sum(one.n for one in each),
        round(float(np.median([s.median for s in each])), 4),
        round(float(np.median([s.p90 for s in each])), 4),
    )


def _is_fp8(key: Key) -> bool:
    return (
        key[0] == "gemm" and key[2] in {"fp8", "fp8_block"} and key[1] in {"trtllm", "vllm/cutlass", "sglang/cutlass", "deepgemm"}
    )


def _out_of_fold(table: Table, spec: Spec) -> Array | None:
    out = np.full(len(table.us), np.nan)
    for fold in range(FOLDS):
        aside = held_out(table.geometry + np.uint64(fold * 7919), FOLDS)
        if aside.any() and not aside.all():
            out[aside] = fit(table.take(~aside), spec).predict(table.take(aside))
    return out


def _card_left_out(table: Table, spec: Spec) -> Array | None:
    names = np.unique(table.cards)
    if len(names) < 2:
        return None
    out = np.full(len(table.us), np.nan)
    for card in names:
        aside = table.cards == card
        constants = fit(table.take(~aside), spec, own=False).constants
        out[aside] = Fitted(constants, {}).predict(table.take(aside))
    return out


def _rows(table: Table, times: Array) -> Array:
    known = np.isfinite(times) & (table.weight >= 1)
    return table.errors(times)[known]


def _cold(table: Table, times: Array) -> Array:
    known = np.isfinite(times) & (table.arguments["warm"] == 0)
    return table.errors(times)[known]


def _layers(table: Table, times: Array) -> Array:
    """Errors of the sum over a layer's four products, for each card."""
    errors: list[float] = []
    for card in np.unique(table.cards):
        rows = np.flatnonzero((table.cards == card) & np.isfinite(times))
        columns = (table.arguments[name][rows] for name in "mnk")
        both = {shape: (times[i], table.us[i] * 1e-6) for shape, i in zip(zip(*columns, strict=True), rows, strict=True)}
        errors += [abs(sum(both[s][0] for s in four) / sum(both[s][1] for s in four) - 1) for four in layers(both)]
    return np.array(errors)
